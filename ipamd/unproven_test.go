package ipamd_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// interruptedRest is what the pool lets an address rest whose ADD was cut off: its plugin may still be at work.
const interruptedRest = 30 * time.Second

// unproven is a daemon that was killed between its recipe and done. What the plugin had made by then is build's; the daemon
// is started again, and the address is given.
func unproven(t *testing.T, build func(w *world, p *pod, recipe api.PodNetwork)) (*world, *pod, netip.Addr) {
	t.Helper()
	w := newWorldOf(t, vpc.InstanceType{Name: "three", ENIs: 1, IPv4: 3})
	w.start()
	p := w.sandbox("a")
	_, _, recipe := w.ask(p)
	build(w, p, recipe)
	w.kill()
	w.start()
	return w, p, recipe.Addr.Addr()
}

func setUp(w *world, p *pod, recipe api.PodNetwork) {
	w.check(w.node.Do(func() error {
		_, err := podnet.Setup(p.ns.Path(), "eth0", recipe, func() error { return nil })
		return err
	}))
}

// keeps fails the test unless the sandbox has its address for good, and nobody else gets it.
func (w *world) keeps(p *pod, addr netip.Addr) {
	w.t.Helper()
	w.await("the allocation counts as done", func() bool {
		state, err := w.saved()
		return err == nil && len(state.Assignments) == 1 && state.Assignments[0].Done && state.Assignments[0].Address == addr
	})
	if other := w.add("b"); other.addr == addr {
		w.t.Errorf("%s is given twice", addr)
	}
	if refused := w.assign("c"); refused == nil || refused.Code != api.CodeTryAgain {
		w.t.Errorf("a third ADD on two addresses: %v", refused)
	}
	w.del(p)
	w.await("the allocation ends with its DEL", func() bool {
		state, err := w.saved()
		return err == nil && len(state.Assignments) == 1
	})
}

func TestAllocationWithoutDoneIsKeptWhereItsRouteExists(t *testing.T) {
	w, p, addr := unproven(t, setUp)
	w.check(w.cniCheck(p))
	w.keeps(p, addr)
}

func TestAllocationWithoutDoneIsCooledWhereNothingExists(t *testing.T) {
	asked := time.Now()
	w, _, addr := unproven(t, func(*world, *pod, api.PodNetwork) {})
	w.await("the allocation ends", func() bool {
		state, err := w.saved()
		return err == nil && len(state.Assignments) == 0
	})
	state, err := w.saved()
	w.check(err)
	if c := state.Cooling; len(c) != 1 || c[0].Address != addr || c[0].Until.Before(asked.Add(interruptedRest)) {
		t.Errorf("cooling: %+v; %s was given at %s", c, addr, asked)
	}
	if other := w.add("b"); other.addr == addr {
		t.Errorf("%s is given out while it rests", addr)
	}
	if refused := w.assign("c"); refused == nil || refused.Code != api.CodeTryAgain {
		t.Errorf("a third ADD on two addresses: %v", refused)
	}
}

// A plugin that was killed after it had made the veth, before the route.
func TestAllocationWithoutDoneIsKeptWhereItsVethExists(t *testing.T) {
	w, p, addr := unproven(t, func(w *world, p *pod, recipe api.PodNetwork) {
		setUp(w, p, recipe)
		handle, err := w.node.Netlink()
		w.check(err)
		defer handle.Close()
		w.check(handle.RouteDel(&netlink.Route{Scope: netlink.SCOPE_LINK, Table: api.PodsTable, Dst: &net.IPNet{IP: recipe.Addr.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}}))
	})
	w.keeps(p, addr)
}
