package cni

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// add gives a sandbox its network: assign, build, done, and only then the result. The daemon takes the address back when
// the connection ends before done; whatever stands in the kernel is removed first.
func (a Around) add(args *skel.CmdArgs) error {
	c, refused := a.parseConf(args.StdinData)
	if refused != nil {
		return refused
	}
	if c.previous != nil {
		return c.failed("ADD", badField("prevResult", "aws-cni must be the first plugin of its list"))
	}
	pod, refused := parseNamedPod(args.Args)
	if refused != nil {
		return c.failed("ADD", refused)
	}
	result, refused := build(c, args, pod)
	if refused != nil {
		return c.failed("ADD", refused)
	}
	return a.do("print result", func() error { return printResult(result, c.cniVersion) })
}

// build runs the transaction with the daemon.
func build(c conf, args *skel.CmdArgs, pod api.Pod) (*current.Result, *types.Error) {
	ctx := within(assignDeadline + answerMargin)
	client, err := c.dial(ctx)
	if err != nil {
		return nil, c.refusal("assign address", err)
	}
	defer client.Close() // ends the transaction, after the kernel work was undone where it had to be

	key := attachment(c, args)
	var recipe api.PodNetwork
	err = c.around.do("ask assign", func() error {
		recipe, err = client.Assign(ctx, api.AssignRequest{
			Attachment: key, Pod: pod, NetNS: args.Netns, DeadlineMS: assignDeadline.Milliseconds(),
		})
		return err
	})
	if err != nil {
		return nil, c.refusal("assign address", err)
	}
	pair, err := podnet.Around(c.around).Setup(args.Netns, args.IfName, recipe, func() error {
		return c.around.do("ask permission", func() error { return stillOurs(ctx, client, key, recipe) })
	})
	if err != nil {
		return nil, kernelError(fmt.Sprintf("set up %s with %s", args.IfName, recipe.Addr), err)
	}
	done := func() error { return client.Done(within(doneTimeout), api.DoneRequest{Attachment: key}) }
	if err := c.around.do("ask done", done); err != nil {
		return nil, c.undo(args, recipe, err)
	}
	return resultOf(args, recipe, pair), nil
}

// stillOurs asks whether the sandbox is still the one to have the address: the daemon refuses one that a newer sandbox of
// its pod has superseded, and one whose transaction has ended.
func stillOurs(ctx context.Context, client *api.Client, key api.Attachment, recipe api.PodNetwork) error {
	now, err := client.Check(ctx, key)
	if err != nil {
		return fmt.Errorf("ask for permission: %w", err)
	}
	if now.Addr != recipe.Addr {
		return fmt.Errorf("ask for permission: the sandbox's address is %s by now, not %s", now.Addr, recipe.Addr)
	}
	return nil
}

// unconfirmed is code 11 whatever the daemon's reason: the address is not the sandbox's (any more), another ADD gets one.
func (c conf) unconfirmed(err error) *types.Error {
	refused := c.refusal("confirm address", err)
	refused.Code = api.CodeTryAgain
	return refused
}

// undo removes what was built for an address that is not the sandbox's. A pod that was alive before this ADD keeps its
// network: the ADD was a repeat.
func (c conf) undo(args *skel.CmdArgs, recipe api.PodNetwork, why error) *types.Error {
	refused := c.unconfirmed(why)
	if recipe.Repeat {
		return refused
	}
	if err := podnet.Around(c.around).Teardown(args.Netns, args.IfName); err != nil {
		refused.Details += "; and the veth could not be removed: " + err.Error()
	}
	return refused
}

// resultOf is what the runtime and chained plugins read: the host's end, the pod's end, the address on it, the routes.
func resultOf(args *skel.CmdArgs, recipe api.PodNetwork, pair podnet.Pair) *current.Result {
	gateway := net.IP(recipe.Gateway.AsSlice())
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if !recipe.Gateway.Is4() {
		everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var routes []*types.Route
	for _, destination := range append([]netip.Prefix{everything}, recipe.Routes...) {
		routes = append(routes, &types.Route{Dst: ipNet(destination), GW: gateway})
	}
	return &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: recipe.HostVeth, Mac: pair.HostMAC.String()},
			{Name: args.IfName, Mac: pair.PodMAC.String(), Sandbox: args.Netns},
		},
		IPs:    []*current.IPConfig{{Interface: current.Int(1), Address: ipNet(recipe.Addr), Gateway: gateway}},
		Routes: routes,
	}
}

func ipNet(prefix netip.Prefix) net.IPNet {
	addr := prefix.Addr()
	return net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}
