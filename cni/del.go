package cni

import (
	"context"
	"errors"
	"time"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// del takes a sandbox's network away: the kernel's state first, then the address, so that nobody is given an address that
// an old veth still answers for. It succeeds as soon as the kernel's state is gone. What the daemon could not be told is
// left in a record for it: a pod must not hang in Terminating because its node's daemon is down.
func (a Around) del(args *skel.CmdArgs) error {
	c, refused := a.parseConf(args.StdinData)
	if refused != nil {
		return refused
	}
	pod, unreadable := parsePod(args.Args)
	if unreadable != nil { // the attachment decides; the pod's name is for the daemon's log
		c.note("pod is not named", args.ContainerID, unreadable)
	}
	// A link of that name that is no veth is not ours, and neither are the host's own: there is nothing of the sandbox to remove.
	err := podnet.Around(a).Teardown(args.Netns, args.IfName)
	if err != nil && !errors.Is(err, podnet.ErrForeignLink) && !errors.Is(err, podnet.ErrHostNamespace) {
		return c.failed("DEL", kernelError("remove "+args.IfName, err))
	}
	message := api.ReleaseRequest{Attachment: attachment(c, args), Pod: pod}
	err = c.ask("release", func(ctx context.Context, client *api.Client) error { return client.Release(ctx, message) })
	if err == nil {
		return nil
	}
	c.note("deletion left for the daemon", message.ContainerID, err)
	record := api.PendingDel{ReleaseRequest: message, At: time.Now()}
	if err := api.Around(a).LeavePending(c.socket, record); err != nil {
		// The daemon's evidence audit releases the address without a record, only later.
		c.note("deletion not recorded", message.ContainerID, err)
	}
	return nil
}
