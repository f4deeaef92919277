package cni

import (
	"context"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// check compares a sandbox with the daemon's recipe and says what differs, if anything.
func (a Around) check(args *skel.CmdArgs) error {
	c, refused := a.parseConf(args.StdinData)
	if refused != nil {
		return refused
	}
	var recipe api.PodNetwork
	err := c.ask("check", func(ctx context.Context, client *api.Client) (err error) {
		recipe, err = client.Check(ctx, attachment(c, args))
		return err
	})
	if err != nil {
		return c.failed("CHECK", c.refusal("read recipe", err))
	}
	if err := comparePrevious(c, recipe); err != nil {
		return c.failed("CHECK", err)
	}
	if err := podnet.Check(args.Netns, args.IfName, recipe); err != nil {
		return c.failed("CHECK", kernelError("check "+args.IfName, err))
	}
	return nil
}

// comparePrevious tells whether the result that the runtime kept has the address that the daemon gave.
func comparePrevious(c conf, recipe api.PodNetwork) *types.Error {
	if c.previous == nil {
		return nil
	}
	kept, refused := c.previousAddrs()
	if refused != nil {
		return refused
	}
	if addr := recipe.Addr.Addr(); !slices.Contains(kept, addr) {
		return types.NewError(api.CodeDiffers, "check address: the kept result differs from the recipe",
			fmt.Sprintf("prevResult lacks %s", addr))
	}
	return nil
}
