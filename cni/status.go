package cni

import (
	"context"

	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// status tells whether an ADD could be served now: code 50 when the daemon is not there or not ready, 51 when it says that
// running pods suffer too.
func (a Around) status(args *skel.CmdArgs) error {
	c, refused := a.parseConf(args.StdinData)
	if refused != nil {
		return refused
	}
	err := c.ask("status", func(ctx context.Context, client *api.Client) error { return client.Status(ctx) })
	if err == nil {
		return nil
	}
	refused = c.refusal("ask for readiness", err)
	if refused.Code != api.CodeLimited {
		refused.Code = api.CodeNotAvailable
	}
	return c.failed("STATUS", refused)
}
