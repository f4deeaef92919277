package dataplane_test

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// assign6 gives an instance's primary ENI IPv6 addresses or a prefix; addresses beyond the first are put on the guest's lo.
func (l *lab) assign6(instance vpc.Instance, in vpc.AssignIpv6AddressesInput) []netip.Addr {
	l.t.Helper()
	in.NetworkInterfaceID = l.model.InstanceENIs(instance.ID)[0].ID
	got := must(l.model.AssignIpv6Addresses(l.now, in))(l.t)
	l.sync()
	for _, p := range got.Prefixes {
		got.Addresses = append(got.Addresses, p.Addr().Next())
	}
	for _, a := range got.Addresses {
		if !slices.Contains(l.own6(instance.Name), a) {
			l.check(netlab.AddAddr(l.ns(instance.Name), "lo", netip.PrefixFrom(a, 128)))
		}
	}
	return got.Addresses
}

func (l *lab) own6(name string) []netip.Addr {
	l.t.Helper()
	h := must(l.ns(name).Netlink())(l.t)
	defer h.Close()
	var out []netip.Addr
	for _, a := range must(h.AddrList(nil, unix.AF_INET6))(l.t) {
		addr, _ := netip.AddrFromSlice(a.IP)
		out = append(out, addr)
	}
	return out
}

// ping6 gives the hop limit of the answer to an echo request, or false.
func (l *lab) ping6(from *netlab.Namespace, src, dst netip.Addr, hops int, wait time.Duration) (int, bool) {
	l.t.Helper()
	var conn *ipv6.PacketConn
	l.check(from.Do(func() error {
		c, err := icmp.ListenPacket("ip6:ipv6-icmp", src.String())
		if err == nil {
			conn = c.IPv6PacketConn()
		}
		return err
	}))
	defer conn.Close()
	l.check(conn.SetControlMessage(ipv6.FlagHopLimit, true))
	request := &icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1}}
	data := must(request.Marshal(icmp.IPv6PseudoHeader(src.AsSlice(), dst.AsSlice())))(l.t)
	must(conn.WriteTo(data, &ipv6.ControlMessage{HopLimit: hops}, &net.IPAddr{IP: dst.AsSlice()}))(l.t)
	l.check(conn.SetReadDeadline(time.Now().Add(wait)))
	buffer := make([]byte, 1500)
	for {
		n, control, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return 0, false
		}
		if m, err := icmp.ParseMessage(58, buffer[:n]); err == nil && m.Type == ipv6.ICMPTypeEchoReply {
			return control.HopLimit, true
		}
	}
}

func TestIPv6ObeysTheSameLaws(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a := l.assign6(l.a, vpc.AssignIpv6AddressesInput{Count: 2})
	b := l.assign6(l.b, vpc.AssignIpv6AddressesInput{Count: 1})
	b = append(b, l.assign6(l.b, vpc.AssignIpv6AddressesInput{PrefixCount: 1})...)
	nodeA, nodeB := l.ns("node-a"), l.ns("node-b")
	answers := func(from *netlab.Namespace, src, dst netip.Addr, hops int) int {
		t.Helper()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if got, ok := l.ping6(from, src, dst, hops, 2*silence); ok {
				return got
			}
		}
		t.Fatalf("%s has no answer from %s; drops: %v", src, dst, must(l.plane.Counters())(t))
		return 0
	}
	dropped := func(from *netlab.Namespace, src, dst netip.Addr, reason string) {
		t.Helper()
		before := l.counter(reason)
		// A new guest's kernel takes a second until it uses its link-local address to ask for its router, and drops until then.
		for deadline := time.Now().Add(patience); l.counter(reason) == before && time.Now().Before(deadline); {
			if _, ok := l.ping6(from, src, dst, 64, silence); ok {
				t.Fatalf("%s answers %s, want a drop", dst, src)
			}
		}
		if l.counter(reason) == before {
			t.Errorf("%s to %s: drops are %v, want more of %s", src, dst, must(l.plane.Counters())(t), reason)
		}
	}
	for _, src := range a {
		for _, dst := range b {
			answers(nodeA, src, dst, 64)
		}
	}
	l.check(nodeB.SetSysctl("net.ipv6.conf.all.hop_limit", "1"))
	if hops := answers(nodeA, a[0], b[0], 1); hops != 64 && hops != 1 {
		t.Errorf("an answer arrives with hop limit %d: it changed inside the VPC", hops)
	}
	answers(nodeA, a[0], vpc.RouterAddr6, 64)
	dropped(nodeA, a[0], netip.MustParseAddr("2600:1f14:1:2302::77"), dataplane.DropNoAddress)
	dropped(nodeA, a[0], netip.MustParseAddr("2001:db8::1"), dataplane.DropNoOutside)
	l.check(netlab.AddAddr(nodeA, "lo", netip.PrefixFrom(b[0].Next(), 128)))
	dropped(nodeA, b[0].Next(), b[0], dataplane.DropSource)
	l.join(l.b, l.group("six", outAll, vpc.Rule{Protocol: "icmpv6", From: -1, To: -1, CIDR: netip.PrefixFrom(a[0], 128)}))
	nodeC := l.launch6("node-c")
	dropped(l.ns("node-c"), nodeC, b[0], dataplane.DropIngress)

	// As in IPv4, a guest learns its router, and the fabric nothing.
	h := must(l.ns("fabric-" + l.a.VPCID).Netlink())(t)
	defer h.Close()
	for _, n := range must(h.NeighList(0, unix.AF_INET6))(t) {
		if n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 {
			t.Errorf("the fabric has learned %s", n.IP)
		}
	}
	guest := must(nodeA.Netlink())(t)
	defer guest.Close()
	for _, n := range must(guest.NeighList(0, unix.AF_INET6))(t) {
		if n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 && n.IP.String() != vpc.RouterAddr6.String() {
			t.Errorf("node a has learned %s, which is not its router", n.IP)
		}
	}
}

// launch6 launches an instance with an IPv6 address and gives that.
func (l *lab) launch6(name string) netip.Addr {
	l.t.Helper()
	i := must(l.model.Launch(l.now, vpc.LaunchInput{Name: name, Type: "m5.xlarge", SubnetID: l.a.SubnetID, IPv6Count: 1}))(l.t)
	l.sync()
	return l.model.InstanceENIs(i.ID)[0].IPv6[0]
}
