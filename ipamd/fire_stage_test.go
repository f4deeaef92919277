package ipamd_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/e2e/crash"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// stage is a piece of a node's life that makes daemon and plugin pass certain effects. When one of them is killed it ends
// early with a struckError; other errors are faults.
type stage struct {
	name  string
	run   func(*fire) error
	alone bool // other pods would fail for the same reason
}

// stages are a node's whole life: together they pass every effect that there is. Cheap ones come first.
func stages() []stage {
	return []stage{
		{name: "pod", run: (*fire).onePod},
		{name: "failing ADD", run: (*fire).failingADD},
		{name: "restart", run: (*fire).restart},
		{name: "start after deletions", run: (*fire).startAfterDeletions},
		{name: "garbage collection", run: (*fire).vanishAndCollect},
		{name: "two sandboxes of a pod", run: (*fire).rivals, alone: true},
		{name: "routes in the way", run: (*fire).staleRoutes, alone: true},
		{name: "orderly end", run: (*fire).orderlyEnd, alone: true},
		{name: "files removed", run: (*fire).lostFiles, alone: true},
		{name: "damage", run: (*fire).damage},
		{name: "trouble with the disk", run: (*fire).diskTrouble, alone: true},
		{name: "surplus", run: (*fire).surplus},
		{name: "growing and shrinking", run: (*fire).growAndShrink},
		{name: "other annotation key", run: (*fire).rename},
		{name: "no permission", run: (*fire).noPermission, alone: true},
	}
}

// onePod is a pod's life, with every question a runtime may ask.
func (f *fire) onePod() error {
	g, err := f.tryBegin("pod")
	if err != nil {
		return err
	}
	life := f.life.Load()
	if err = f.add(g); err == nil {
		err = f.struck(life, f.cniCheck(g.pod))
	}
	if err == nil {
		err = errors.Join(f.plugin("STATUS", ""), f.plugin("VERSION", ""))
	}
	return errors.Join(err, f.end(g), f.struck(life, f.nonsense()))
}

// nonsense speaks to the daemon in no language.
func (f *fire) nonsense() error {
	conn, err := net.Dial("unix", f.socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	text := []byte("?")
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// failingADD is an ADD into a sandbox whose interface name is taken.
func (f *fire) failingADD() error {
	g, err := f.tryBegin("failing")
	if err != nil {
		return err
	}
	if err := f.foreignLink(g.ns); err != nil {
		return err
	}
	if err := f.add(g); err == nil {
		return errors.New("ADD succeeds where the interface's name is taken")
	}
	return f.end(g)
}

// foreignLink makes an eth0 that is no pod's.
func (f *fire) foreignLink(ns *netlab.Namespace) error {
	handle, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}})
}

// restart is a daemon's start on a node that has no network configuration yet.
func (f *fire) restart() error {
	f.halt()
	if err := os.RemoveAll(filepath.Join(f.dir, "net.d")); err != nil {
		return err
	}
	f.launch()
	return f.ready()
}

// startAfterDeletions has a DEL that finds no daemon.
func (f *fire) startAfterDeletions() error {
	g, err := f.tryBegin("deleted")
	if err != nil {
		return err
	}
	added := f.add(g)
	f.halt()
	ended := f.end(g)
	f.launch()
	return errors.Join(f.ready(), ended, added)
}

// vanishAndCollect has a sandbox that goes without a DEL.
func (f *fire) vanishAndCollect() error {
	g, err := f.tryBegin("vanishing")
	if err != nil {
		return err
	}
	added := f.add(g)
	f.forget(g)
	err = f.collect() // the sandbox is not valid any more
	if added != nil { // nobody vanishes before ADD has ended: kubelet tries DEL at least
		err = errors.Join(err, f.tryDel(g.pod))
	}
	return errors.Join(err, g.ns.Close(), added)
}

// rivals has a plugin that is held up with a new veth while its pod gets a newer sandbox.
func (f *fire) rivals() error {
	older, err := f.tryBegin("rivals")
	if err != nil {
		return err
	}
	newer, err := f.sandboxOf(older.object, older.conf.ContainerID+"-newer")
	if err != nil {
		return err
	}
	hold := crash.Order{Point: "kernel furnish pod end", When: crash.Before, Hit: 1}
	if err := f.pluginRole.Hold(hold); err != nil {
		return err
	}
	late := make(chan error, 1)
	go func() { late <- f.tryAdd(older.pod) }()
	held := f.until("the plugin is held up", func() bool { return f.pluginRole.Held() || len(late) > 0 })
	added := f.add(newer)
	released := f.pluginRole.Release()
	if err := <-late; err == nil && added == nil {
		return errors.New("both sandboxes of a pod have a network")
	}
	return errors.Join(held, released, f.end(older), f.end(newer), added)
}

// staleRoutes has routes of a stranger where a new pod's is to stand.
func (f *fire) staleRoutes() error {
	handle, err := f.node.Netlink()
	if err != nil {
		return err
	}
	defer handle.Close()
	lo, err := handle.LinkByName("lo")
	if err != nil {
		return err
	}
	var routes []*netlink.Route
	for _, eni := range f.model.InstanceENIs(f.instance.ID) {
		for _, addr := range eni.Secondary {
			if !f.holds(addr) {
				routes = append(routes, &netlink.Route{LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Table: api.PodsTable,
					Protocol: 4, Dst: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)}})
			}
		}
	}
	for _, route := range routes {
		_ = handle.RouteAdd(route) // one that stands is a pod's that is just starting
	}
	err = f.pass("blocked")
	for _, route := range routes {
		_ = handle.RouteDel(route) // gone where the pod was
	}
	return err
}

// damage changes the node's link and a pod's route behind the daemon's back.
func (f *fire) damage() error {
	handle, err := f.node.Netlink()
	if err != nil {
		return err
	}
	defer handle.Close()
	link, err := handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	good := link.Attrs().MTU
	if err := handle.LinkSetMTU(link, good-100); err != nil {
		return err
	}
	err = f.until("MTU is repaired", func() bool {
		link, err := handle.LinkByName("eth0")
		return err == nil && link.Attrs().MTU == good
	})
	if err != nil {
		return err
	}
	return f.lostRoute(handle)
}

// lostRoute takes a pod's route away, which the daemon puts back.
func (f *fire) lostRoute(handle *netlink.Handle) error {
	g, err := f.tryBegin("damaged")
	if err != nil {
		return err
	}
	if err = f.add(g); err == nil {
		route := &netlink.Route{Scope: netlink.SCOPE_LINK, Table: api.PodsTable, Dst: &net.IPNet{IP: g.addr.AsSlice(), Mask: net.CIDRMask(32, 32)}}
		err = handle.RouteDel(route)
	}
	if err == nil {
		err = f.until("the pod's route is back", func() bool { return f.routed(handle, g.addr) })
	}
	return errors.Join(err, f.end(g))
}

func (f *fire) routed(handle *netlink.Handle, addr netip.Addr) bool {
	routes, err := handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: api.PodsTable}, netlink.RT_FILTER_TABLE)
	return err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst.IP.Equal(addr.AsSlice()) && r.Type == unix.RTN_UNICAST })
}

// diskTrouble has a folder and a dead link where the new state is to be written.
func (f *fire) diskTrouble() error {
	path := filepath.Join(f.dir, "state", "state.json.new")
	aside := path + ".unreadable-no-file"
	_ = os.Remove(path) // left by a daemon that was killed while it wrote
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	passed := f.pass("disk")
	err := f.until("the folder is put aside", func() bool { _, err := os.Stat(aside); return err == nil })
	_ = os.Remove(aside)
	_ = os.Remove(path)
	if err = errors.Join(passed, err); err != nil {
		return err
	}
	return f.brokenSave(path)
}

// brokenSave is an ADD whose save fails: the link leads into a file.
func (f *fire) brokenSave(path string) error {
	file := filepath.Join(f.dir, "file")
	g, err := f.tryBegin("unsaved")
	if err == nil {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err == nil {
		err = linkInPlace(filepath.Join(file, "x"), path)
	}
	if err != nil {
		return err
	}
	_ = f.add(g) // refused, unless another save came first
	err = f.end(g)
	_ = os.Remove(path)
	return errors.Join(err, os.Remove(file), f.pass("saved"))
}

// surplus is two pods that leave more addresses than are wanted.
func (f *fire) surplus() error {
	one, err := f.tryBegin("surplus")
	if err != nil {
		return err
	}
	two, err := f.tryBegin("surplus")
	if err != nil {
		return err
	}
	added := errors.Join(f.add(one), f.add(two))
	most := f.addresses()
	if err := errors.Join(added, f.end(one), f.end(two)); err != nil {
		return err
	}
	return f.within(restOver, "addresses are given back", func() bool {
		now := f.addresses()
		most = max(most, now)
		return now < most
	})
}

// addresses counts those of the instance at EC2.
func (f *fire) addresses() int {
	n := 0
	for _, eni := range f.model.InstanceENIs(f.instance.ID) {
		n += len(eni.Secondary)
	}
	return n
}

// linkInPlace makes a link where a daemon may be writing, or may have been killed while it wrote.
func linkInPlace(to, path string) error {
	for {
		_ = os.Remove(path)
		if err := os.Symlink(to, path); !errors.Is(err, os.ErrExist) {
			return err
		}
	}
}

// growAndShrink fills the ENIs until another is attached, and waits until it is given back.
func (f *fire) growAndShrink() error {
	before := f.attached()
	var guests []*guest
	var err error
	for err == nil && f.attached() <= before {
		var g *guest
		if g, err = f.tryBegin("growing"); err == nil {
			guests = append(guests, g)
			err = f.add(g)
		}
	}
	if err == nil { // a pod on the new ENI
		err = f.pass("grown")
	}
	for _, g := range guests {
		err = errors.Join(err, f.end(g))
	}
	if err != nil {
		return err
	}
	return f.within(restOver, "the ENI is given back", func() bool { return len(f.model.ENIs()) <= before })
}

func (f *fire) attached() int { return len(f.model.InstanceENIs(f.instance.ID)) }

// fireKeys are the annotation's keys that the world changes between.
var fireKeys = []string{"vpc.amazonaws.com/pod-ips", "example.org/pod-ips"}

// rename starts the daemon with the other key: pods that run lose the old one.
func (f *fire) rename() error {
	f.halt()
	if f.key == fireKeys[0] {
		f.key = fireKeys[1]
	} else {
		f.key = fireKeys[0]
	}
	f.env = append(f.env, "ANNOTATE_POD_IP_KEYS="+f.key)
	f.launch()
	if err := f.ready(); err != nil {
		return err
	}
	return f.until("running pods have the new key only", func() bool { return f.apiAgrees(f.running()) == nil })
}

// noPermission starts the daemon while it may not patch pods, which it tells in an event.
func (f *fire) noPermission() error {
	role := f.nodeName + "-patch"
	if err := f.admin.Delete(context.Background(), f.binding(role)); err != nil {
		return err
	}
	f.await("no permission", func() bool { return !f.permitted() })
	f.halt()
	f.launch()
	err := f.ready()
	if err == nil {
		err = f.until("the event", func() bool { return f.events() > 0 })
	}
	f.check(f.bind(role))
	f.await("permission", func() bool { return f.permitted() })
	if err != nil {
		return err
	}
	return f.pass("permitted") // a patch that is taken brings back what was refused
}
