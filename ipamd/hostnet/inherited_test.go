package hostnet

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// The incumbent's pods have a veth of any MAC and a route in the main table. They live, and nothing of theirs is changed.
func TestPodsOfTheIncumbentAreSeenAndLeftAlone(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.counting()
	l.apply(h.Host, wanted())
	ns := l.namespace("sandbox-old")
	l.must(netlab.Veth(netlab.End{NS: l.node, Name: "eniaaaa"}, netlab.End{NS: ns, Name: "eth0"}))
	t.Cleanup(func() { _ = netlab.DelLink(l.node, "eniaaaa") })
	addr := netip.MustParseAddr(podB)
	route := func(x tool) *netlink.Route {
		return &netlink.Route{LinkIndex: x.link("eniaaaa").Attrs().Index, Dst: ipNet(netip.PrefixFrom(addr, 32)), Scope: netlink.SCOPE_LINK, Table: unix.RT_TABLE_MAIN}
	}
	want := wanted()
	want.Pods = []pool.HostPod{wantedPod("eniaaaa", podB)}

	seen := func() bool {
		t.Helper()
		report := l.applyOnce(h.Host, want)
		return slices.Contains(report.Pods, pool.PodRoute{Addr: addr, Link: "eniaaaa"})
	}
	if seen() {
		t.Error("a veth without a route tells no address")
	}
	l.withTools(func(x tool) error { return x.nl.RouteAdd(route(x)) })
	if !seen() {
		t.Error("the pod is taken for gone")
	}
	l.withTools(func(x tool) error {
		found, err := x.nl.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: tablePods}, netlink.RT_FILTER_TABLE)
		if len(found) > 0 {
			t.Errorf("it was given a route of ours: %v", found)
		}
		return err
	})
	l.withTools(func(x tool) error { return x.nl.RouteDel(route(x)) })
	if seen() {
		t.Error("the pod is still seen")
	}
}
