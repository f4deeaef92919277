package dataplane_test

import (
	"errors"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

func TestNodesReachEachOther(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	secondary := l.assign(l.b, true)
	l.answers(echo{from: a, dst: addrB})
	l.answers(echo{from: b, dst: addrA})
	l.answers(echo{from: a, dst: secondary})
	l.answers(echo{from: b, src: secondary, dst: addrA})
	l.answers(echo{from: a, dst: addrB, size: 8900})
	l.answers(echo{from: a, dst: serviceAddr})
	l.answers(echo{from: b, src: secondary, dst: serviceAddr})
	l.answers(echo{from: a, dst: gatewayA})
	l.dropped(echo{from: a, dst: gatewayB}, dataplane.DropNoAddress)
}

func TestTTLIsUntouchedInsideTheVPC(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	for _, ttl := range []int{1, 2, 63, 64, 128, 254, 255} {
		l.check(b.SetSysctl("net.ipv4.ip_default_ttl", strconv.Itoa(ttl)))
		if got := l.answers(echo{from: a, dst: addrB, ttl: ttl}); got != ttl {
			t.Errorf("an answer sent with TTL %d arrives with %d", ttl, got)
		}
	}
}

func TestForeignPacketsAreDroppedAndCounted(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a := l.ns("node-a")
	foreign := netip.MustParseAddr("10.0.1.77")
	l.check(netlab.AddAddr(a, "lo", netip.PrefixFrom(foreign, 32)))
	for _, c := range []struct {
		echo
		reason string
	}{
		{echo{src: foreign, dst: addrB}, dataplane.DropSource},
		{echo{src: foreign, dst: outsideAddr}, dataplane.DropSource},
		{echo{dst: netip.MustParseAddr("10.0.2.77")}, dataplane.DropNoAddress},
		{echo{dst: netip.MustParseAddr("10.0.2.2")}, dataplane.DropNoAddress},
		{echo{dst: netip.MustParseAddr("10.0.200.1")}, dataplane.DropNoAddress},
		{echo{dst: netip.MustParseAddr("169.254.169.250")}, dataplane.DropNoAddress},
		{echo{dst: netip.MustParseAddr("224.0.0.251")}, dataplane.DropMulticast},
		{echo{dst: netip.MustParseAddr("203.0.113.99")}, dataplane.DropNoOutside},
	} {
		c.from = a
		l.dropped(c.echo, c.reason)
	}
	h := must(a.Netlink())(t)
	defer h.Close()
	link := must(h.LinkByName("eth0"))(t)
	l.check(h.LinkSetHardwareAddr(link, []byte{2, 0, 0, 0, 0, 7}))
	l.dropped(echo{from: a, dst: addrB}, dataplane.DropSourceMAC)
}

func TestSourceCheckCanBeTurnedOffAndOn(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	b := l.ns("node-b")
	// A's source is legal on A's ENI only; with the check of B's off, B may use it. The answer goes to A, so only the counter tells.
	l.check(netlab.AddAddr(b, "lo", netip.PrefixFrom(addrA, 32)))
	spoof := echo{from: b, src: addrA, dst: serviceAddr}
	l.dropped(spoof, dataplane.DropSource)
	before := l.counter(dataplane.DropSource)
	for _, on := range []bool{false, true} {
		eni := l.model.InstanceENIs(l.b.ID)[0].ID
		l.check(l.model.ModifyNetworkInterfaceAttribute(l.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: eni, SourceDestCheck: &on}))
		l.sync()
		l.ping(spoof, silence)
		want := before
		if on {
			want++
		}
		if got := l.counter(dataplane.DropSource); got != want {
			t.Errorf("check on %v: %d packets counted, want %d", on, got, want)
		}
	}
}

func TestAddressFollowsItsENI(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	addr := l.assign(l.b, true)
	l.answers(echo{from: a, dst: addr})
	eni := l.model.InstanceENIs(l.b.ID)[0].ID
	l.check(l.model.UnassignPrivateIpAddresses(l.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: eni, Addresses: []netip.Addr{addr}}))
	l.sync()
	l.dropped(echo{from: a, dst: addr}, dataplane.DropNoAddress)
	l.dropped(echo{from: b, src: addr, dst: addrA}, dataplane.DropSource)
	must(l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: eni, Addresses: []netip.Addr{addr}}))(t)
	l.sync()
	l.answers(echo{from: a, dst: addr})

	// The same address moves to another ENI of the same node without a moment on none.
	other := l.attach(l.b, 0)
	must(l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{
		NetworkInterfaceID: other.ID, Addresses: []netip.Addr{addr}, AllowReassignment: true,
	}))(t)
	l.sync()
	l.dropped(echo{from: b, src: addr, dst: addrA}, dataplane.DropSource) // still leaves by eth0
}

func TestInternetGatewayTranslatesOneToOne(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b, internet := l.ns("node-a"), l.ns("node-b"), l.ns("internet")
	l.answers(echo{from: a, dst: outsideAddr})
	l.dropped(echo{from: internet, dst: publicA}, dataplane.DropIngress)
	l.allow("", vpc.Rule{Protocol: "icmp", From: 8, To: -1, CIDR: netip.MustParsePrefix("203.0.113.0/24")})
	l.answers(echo{from: internet, dst: publicA})
	l.dropped(echo{from: b, dst: outsideAddr}, dataplane.DropNoPublic)
	l.dropped(echo{from: a, src: l.assign(l.a, true), dst: outsideAddr}, dataplane.DropNoPublic)

	// Even an outside host that knows the way finds private addresses closed, and cannot pretend to be inside.
	l.check(netlab.AddRoute(internet, netlab.Route{Via: netip.MustParseAddr("169.254.255.1"), Link: "eth0", Onlink: true}))
	l.dropped(echo{from: internet, dst: addrA}, dataplane.DropNoPublic)
	l.check(netlab.AddAddr(internet, "lo", netip.PrefixFrom(addrB, 32)))
	l.dropped(echo{from: internet, src: addrB, dst: publicA}, dataplane.DropSource)
}

// ICMP errors carry a part of the packet that they are about: the gateway translates that, too.
func TestErrorsPassTheGateway(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	l.allow("", vpc.Rule{Protocol: "udp", From: 9, To: 9, CIDR: netip.MustParsePrefix("203.0.113.0/24")})
	for _, c := range []struct{ from, to string }{{"node-a", "203.0.113.10:9"}, {"internet", "198.51.100.10:9"}, {"node-a", "10.0.2.10:9"}} {
		conn := must(l.ns(c.from).DialContext(t.Context(), "udp4", c.to))(t)
		must(conn.Write([]byte("x")))(t)
		l.check(conn.SetReadDeadline(time.Now().Add(patience)))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s asks the closed port %s: %v, want connection refused", c.from, c.to, err)
		}
		conn.Close()
	}
}
