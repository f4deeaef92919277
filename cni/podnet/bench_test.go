package podnet

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/perf/benchmath"
	"golang.org/x/sys/unix"
)

// BenchmarkSetupBesideBare builds the same pod by this package and by the same kernel calls on open sockets with nothing
// around them, in turns, and gives both medians. Their ratio is to stay below 1.5.
func BenchmarkSetupBesideBare(b *testing.B) {
	const pairs = 100
	ns := namespace(b, "pod")
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close()
	pod, err := netlink.NewHandleAt(netns.NsHandle(ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		b.Fatal(err)
	}
	defer pod.Close()
	timed := func(build func()) float64 {
		began := time.Now()
		build()
		took := time.Since(began)
		if err := Teardown(ns.Path(), "eth0"); err != nil {
			b.Fatal(err)
		}
		return float64(took) / float64(time.Millisecond)
	}
	var ours, bares []float64
	for b.Loop() {
		for range pairs {
			bares = append(bares, timed(func() { bare(b, host, pod, ns.FD()) }))
			ours = append(ours, timed(func() {
				if _, err := Setup(ns.Path(), "eth0", recipe("eniaaaa", "10.0.1.20"), always); err != nil {
					b.Fatal(err)
				}
			}))
		}
	}
	median := func(values []float64) float64 {
		return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95).Center
	}
	b.ReportMetric(median(ours), "setup-p50-ms")
	b.ReportMetric(median(bares), "bare-p50-ms")
	b.ReportMetric(median(ours)/median(bares), "setup/bare")
}

func bare(b *testing.B, host, pod *netlink.Handle, fd int) {
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	r := recipe("eniaaaa", "10.0.1.20")
	addr := r.Addr.Addr()
	must(host.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: r.HostVeth, MTU: r.MTU, Flags: net.FlagUp, HardwareAddr: hostMAC(addr), TxQLen: -1},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(fd), PeerHardwareAddr: podMAC(addr), PeerTxQLen: -1,
	}))
	outer, err := host.LinkByName(r.HostVeth)
	must(err)
	inner, err := pod.LinkByName("eth0")
	must(err)
	must(pod.LinkSetUp(inner))
	must(pod.AddrAdd(inner, &netlink.Addr{IPNet: ipNet(r.Addr)}))
	must(pod.NeighAdd(permanent(inner.Attrs().Index, r.Gateway, hostMAC(addr))))
	for _, route := range podRoutes(r, inner.Attrs().Index) {
		must(pod.RouteAdd(&route))
	}
	must(host.NeighAdd(permanent(outer.Attrs().Index, addr, podMAC(addr))))
	route := hostRoute(r, outer.Attrs().Index)
	must(host.RouteAdd(&route))
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

func BenchmarkTeardown(b *testing.B) {
	ns := namespace(b, "pod")
	r := recipe("eniaaaa", "10.0.1.20")
	for b.Loop() {
		b.StopTimer()
		if _, err := Setup(ns.Path(), "eth0", r, always); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := Teardown(ns.Path(), "eth0"); err != nil {
			b.Fatal(err)
		}
	}
}
