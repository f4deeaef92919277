package vpc

import (
	"net/netip"
	"testing"
	"time"
)

// TestWayToTheInternet: a VPC that EC2 makes has none until a gateway is attached and a route leads there.
func TestWayToTheInternet(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	v := New(Options{Seed: 1})
	n, err := v.CreateVPC(now, Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	fatal(t, err)
	s, err := v.AddSubnet(Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	fatal(t, err)
	public, host := netip.MustParseAddr("198.51.100.1"), Outside{Name: "host", Addr: netip.MustParseAddr("203.0.113.10"), CIDR: netip.MustParsePrefix("203.0.113.0/24")}
	fatal(t, v.AddOutside(host))
	i, err := v.Launch(now, LaunchInput{Type: "m5.large", SubnetID: s.ID, Public: public})
	fatal(t, err)
	tables, err := v.DescribeRouteTables(nil)
	fatal(t, err)
	table, all := tables[0].ID, netip.MustParsePrefix("0.0.0.0/0")
	g, err := v.CreateInternetGateway(now, nil)
	fatal(t, err)

	eni := v.InstanceENIs(i.ID)[0]
	out := Packet{From: eni.ID, Src: eni.Primary, Dst: host.Addr, Protocol: ProtoTCP, SrcPort: 1000, DstPort: 80}
	expect := func(when, drop string, routes int) {
		t.Helper()
		if got := NewFlows(v).Deliver(out); got.Drop != drop {
			t.Errorf("%s: %+v, want drop %q", when, got, drop)
		}
		in := Packet{From: host.Name, VPC: n.ID, Src: host.Addr, Dst: public, Protocol: ProtoTCP, SrcPort: 1000, DstPort: 80}
		wantIn := drop
		if drop == "" {
			wantIn = DropIngress // the way is there, the default group lets nobody in
		}
		if got := NewFlows(v).Deliver(in); got.Drop != wantIn {
			t.Errorf("%s, from outside: %+v, want drop %q", when, got, wantIn)
		}
		if got := v.Routes(n.ID); len(got) != routes || got[len(got)-1].Blackhole != (routes == 2 && drop != "") {
			t.Errorf("%s: routes %+v", when, got)
		}
	}
	expect("new", DropNoPublic, 1)
	fatal(t, v.AttachInternetGateway(now, g.ID, n.ID))
	expect("attached, without a route", DropNoPublic, 1)
	fatal(t, v.CreateRoute(now, table, Route{Destination: all, Target: g.ID}))
	expect("with a route", "", 2)
	if err := v.DetachInternetGateway(now, g.ID, n.ID); err == nil {
		t.Error("a gateway with public addresses behind it was detached")
	}
	fatal(t, v.DeleteRoute(now, table, all))
	expect("without the route", DropNoPublic, 1)
	fatal(t, v.CreateRoute(now, table, Route{Destination: all, Target: g.ID}))
	fatal(t, v.TerminateInstance(now, i.ID))
	v.Advance(now.Add(time.Minute))
	fatal(t, v.DetachInternetGateway(now.Add(time.Minute), g.ID, n.ID))
	if routes := v.Routes(n.ID); !routes[1].Blackhole {
		t.Errorf("the gateway is gone, the routes are %+v", routes)
	}
	fatal(t, v.DeleteInternetGateway(now.Add(time.Minute), g.ID))
}

// TestDefaultGroupOfAVPCWithoutIPv6 lets IPv4 out and nothing else.
func TestDefaultGroupOfAVPCWithoutIPv6(t *testing.T) {
	v := New(Options{Seed: 1})
	for six, rules := range map[string]int{"": 1, "2600:1f14:0:100::/56": 2} {
		n := Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}
		if six != "" {
			n.IPv6CIDRs = []netip.Prefix{netip.MustParsePrefix(six)}
		}
		made, err := v.AddVPC(n)
		fatal(t, err)
		groups, err := v.DescribeSecurityGroups([]string{made.DefaultGroup})
		fatal(t, err)
		if len(groups[0].Egress) != rules {
			t.Errorf("with IPv6 %q: %+v", six, groups[0].Egress)
		}
	}
}
