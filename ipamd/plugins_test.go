package ipamd_test

import (
	"errors"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// What a plugin does, step by step, so that it can be stopped between any two of them.

// begin is the first: the plugin is given an address and a recipe.
func (w *world) begin(p *pod) (*api.Client, api.Attachment, api.PodNetwork) {
	w.t.Helper()
	client, err := api.Dial(w.t.Context(), w.socket())
	w.check(err)
	w.t.Cleanup(func() { _ = client.Close() })
	key := api.Attachment{Network: "aws-cni", ContainerID: p.conf.ContainerID, IfName: "eth0"}
	args := p.conf.Args
	recipe, err := client.Assign(w.t.Context(), api.AssignRequest{
		Attachment: key, Pod: api.Pod{Namespace: args[1][1], Name: args[2][1], UID: args[4][1]},
		NetNS: p.conf.NetNS, DeadlineMS: patience.Milliseconds(),
	})
	w.check(err)
	return client, key, recipe
}

// build is the plugin's kernel work.
func (w *world) build(p *pod, recipe api.PodNetwork) {
	w.t.Helper()
	w.check(w.node.Do(func() error {
		_, err := podnet.Setup(p.ns.Path(), "eth0", recipe, func() error { return errors.New("nobody may") })
		return err
	}))
	p.addr = recipe.Addr.Addr()
}

// cannotBuild is the kernel work of a plugin that lost its daemon, on an address that may be another's by now: what that one
// has in the kernel, it keeps.
func (w *world) cannotBuild(p *pod, recipe api.PodNetwork, other *pod) {
	w.t.Helper()
	err := w.node.Do(func() error {
		_, err := podnet.Setup(p.ns.Path(), "eth0", recipe, func() error { return errors.New("nobody answers") })
		return err
	})
	if same := other.addr == recipe.Addr.Addr(); same != errors.Is(err, podnet.ErrTaken) {
		w.t.Errorf("kernel work of a plugin whose address is another's (%t): %v", same, err)
	}
}

// tear is what the plugin does where its done is not answered, and a runtime's DEL.
func (w *world) tear(p *pod) {
	w.t.Helper()
	w.check(w.node.Do(func() error { return podnet.Teardown(p.ns.Path(), "eth0") }))
}
