package cni

import (
	"context"

	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// gc has the daemon free every attachment that the runtime does not call valid. Without a list nothing is freed: a runtime
// that passes none (libcni with nil arguments) does not mean that no pod is alive.
func (a Around) gc(args *skel.CmdArgs) error {
	c, refused := a.parseConf(args.StdinData)
	if refused != nil {
		return refused
	}
	if !c.hasValid {
		return c.failed("GC", badField("cni.dev/valid-attachments", "it is missing; nothing was freed"))
	}
	err := c.ask("gc", func(ctx context.Context, client *api.Client) error {
		_, err := client.GC(ctx, api.GCRequest{Network: c.network, Valid: c.valid})
		return err
	})
	if err != nil {
		return c.failed("GC", c.refusal("free stale attachments", err))
	}
	return nil
}
