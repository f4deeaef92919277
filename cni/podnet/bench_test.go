package podnet

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// How much is measured.
const (
	kernelBlocks = 25
	podsInBlock  = 8
)

// BenchmarkKernel builds and removes the same pod by this package and by the same kernel calls on open sockets with nothing
// around them, in turns.
func BenchmarkKernel(b *testing.B) {
	record := figures.Record(b, "kernel")
	ns := namespace(b, "pod")
	bare := newBare(b, ns)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	take := func(block int, series figures.Series, do func()) {
		began := time.Now()
		do()
		record.Times(series, block, time.Since(began))
	}
	for block := range kernelBlocks {
		for range podsInBlock {
			take(block, figures.BareSetup, func() { must(bare.setup()) })
			take(block, figures.BareTeardown, func() { must(bare.teardown()) })
			take(block, figures.Setup, func() {
				_, err := Setup(ns.Path(), "eth0", recipe("eniaaaa", "10.0.1.20"), always)
				must(err)
			})
			take(block, figures.Teardown, func() { must(Teardown(ns.Path(), "eth0")) })
		}
	}
}

// bare is a program that does a pod's kernel work and nothing else.
type bare struct {
	host, pod *netlink.Handle
	fd        int // of the pod's namespace
}

func newBare(b *testing.B, ns *netlab.Namespace) *bare {
	b.Helper()
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(host.Close)
	pod, err := netlink.NewHandleAt(netns.NsHandle(ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pod.Close)
	return &bare{host: host, pod: pod, fd: ns.FD()}
}

func (b *bare) setup() error {
	r := recipe("eniaaaa", "10.0.1.20")
	addr := r.Addr.Addr()
	err := b.host.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: r.HostVeth, MTU: r.MTU, Flags: net.FlagUp, HardwareAddr: hostMAC(addr), TxQLen: -1},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(b.fd), PeerHardwareAddr: podMAC(addr), PeerTxQLen: -1,
	})
	if err != nil {
		return err
	}
	outer, err := b.host.LinkByName(r.HostVeth)
	if err != nil {
		return err
	}
	inner, err := b.pod.LinkByName("eth0")
	if err != nil {
		return err
	}
	var steps []func() error
	do := func(step func() error) { steps = append(steps, step) }
	do(func() error { return b.pod.LinkSetUp(inner) })
	do(func() error { return b.pod.AddrAdd(inner, &netlink.Addr{IPNet: ipNet(r.Addr)}) })
	do(func() error { return b.pod.NeighAdd(permanent(inner.Attrs().Index, r.Gateway, hostMAC(addr))) })
	for _, route := range podRoutes(r, inner.Attrs().Index) {
		do(func() error { return b.pod.RouteAdd(&route) })
	}
	do(func() error { return b.host.NeighAdd(permanent(outer.Attrs().Index, addr, podMAC(addr))) })
	route := hostRoute(r, outer.Attrs().Index)
	do(func() error { return b.host.RouteAdd(&route) })
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// teardown deletes the link from inside the pod; all else goes with it.
func (b *bare) teardown() error {
	inner, err := b.pod.LinkByName("eth0")
	if err != nil {
		return err
	}
	return b.pod.LinkDel(inner)
}

// BenchmarkRepeat is Setup of a pod that stands: what a repeated ADD costs.
func BenchmarkRepeat(b *testing.B) {
	ns := namespace(b, "pod")
	r := recipe("eniaaaa", "10.0.1.20")
	for b.Loop() {
		if _, err := Setup(ns.Path(), "eth0", r, always); err != nil {
			b.Fatal(err)
		}
	}
}
