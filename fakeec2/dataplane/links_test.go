package dataplane_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// links gives the links of a namespace but lo, as text.
func (l *lab) links(n *netlab.Namespace) []string {
	l.t.Helper()
	h := must(n.Netlink())(l.t)
	defer h.Close()
	var out []string
	for _, link := range must(h.LinkList())(l.t) {
		a := link.Attrs()
		if a.Name == "lo" {
			continue
		}
		state := "down"
		if a.Flags&net.FlagUp != 0 {
			state = "up"
		}
		addrs := must(h.AddrList(link, unix.AF_INET))(l.t)
		text := fmt.Sprintf("%s %s %s mtu %d", a.Name, a.HardwareAddr, state, a.MTU)
		for _, addr := range addrs {
			text += " " + addr.IPNet.String()
		}
		out = append(out, text)
	}
	return out
}

func TestLinkComesAfterItsDelayAndGoesAtDetach(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a := l.ns("node-a")
	primary := l.model.InstanceENIs(l.a.ID)[0]
	first := fmt.Sprintf("eth0 %s up mtu 9001 10.0.1.10/32", primary.MAC)
	if diff := cmp.Diff([]string{first}, l.links(a)); diff != "" {
		t.Errorf("links of a new node (-want +got):\n%s", diff)
	}

	e := must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: l.a.SubnetID}))(t)
	attachment := must(l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: l.a.ID, NetworkInterfaceID: e.ID, Device: 2}))(t)
	l.advance(1500 * time.Millisecond)
	if diff := cmp.Diff([]string{first}, l.links(a)); diff != "" {
		t.Errorf("links before the link delay is over (-want +got):\n%s", diff)
	}
	l.advance(time.Second)
	second := fmt.Sprintf("eth2 %s down mtu 9001", e.MAC)
	if diff := cmp.Diff([]string{first, second}, l.links(a)); diff != "" {
		t.Errorf("links after it (-want +got):\n%s", diff)
	}
	l.check(l.model.DetachNetworkInterface(l.now, vpc.DetachNetworkInterfaceInput{AttachmentID: attachment.ID}))
	l.advance(5 * time.Second)
	if diff := cmp.Diff([]string{first}, l.links(a)); diff != "" {
		t.Errorf("links after detach (-want +got):\n%s", diff)
	}
	l.dropped(echo{from: a, dst: e.Primary}, dataplane.DropNoAddress)
}

func TestImageRenamesItsLinks(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	c := must(l.model.Launch(l.now, vpc.LaunchInput{Name: "node-c", Type: "m5.xlarge", SubnetID: l.a.SubnetID, PredictableNames: true}))(t)
	l.sync()
	n := l.ns("node-c")
	names := func() (out []string) {
		for _, text := range l.links(n) {
			name, _, _ := strings.Cut(text, " ")
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	want := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names()); diff != "" {
			t.Errorf("links %s (-want +got):\n%s", when, diff)
		}
	}
	want("of a node that has booted", "ens5")
	attach := func(device int) vpc.ENI {
		e := must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: c.SubnetID}))(t)
		must(l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: c.ID, NetworkInterfaceID: e.ID, Device: device}))(t)
		return e
	}
	first, second := attach(1), attach(2)
	l.advance(2050 * time.Millisecond)
	want("that have just come", "ens5", "eth1", "eth2")
	// A guest that is quicker than its image keeps what it has made of a link.
	h := must(n.Netlink())(t)
	defer h.Close()
	l.check(h.LinkSetName(must(h.LinkByName("eth2"))(t), "mine"))
	l.advance(100 * time.Millisecond)
	want("after the image has renamed them", "ens5", "ens6", "mine")
	l.answers(echo{from: l.ns("node-a"), dst: c.PrivateIP})
	for _, e := range []vpc.ENI{first, second} {
		now, _ := l.model.ENI(e.ID)
		l.check(l.model.DetachNetworkInterface(l.now, vpc.DetachNetworkInterfaceInput{AttachmentID: now.Attachment.ID}))
	}
	l.advance(5 * time.Second)
	want("after the detach", "ens5")
}

func TestGuestIsConfiguredAsItsImageDoes(t *testing.T) {
	l := newLab(t, dataplane.Options{Image: func(i vpc.Instance) dataplane.Image {
		return dataplane.Image{RPFilter: map[string]int{"node-a": 1, "node-b": 2}[i.Name]}
	}})
	l.attach(l.a, 0)
	for _, c := range []struct{ node, name, want string }{
		{"node-a", "net.ipv4.conf.all.rp_filter", "1"},
		{"node-a", "net.ipv4.conf.default.rp_filter", "1"},
		{"node-a", "net.ipv4.conf.eth0.rp_filter", "1"},
		{"node-a", "net.ipv4.conf.eth1.rp_filter", "1"},
		{"node-a", "net.ipv4.ip_forward", "1"},
		{"node-b", "net.ipv4.conf.all.rp_filter", "2"},
		{"node-b", "net.ipv4.conf.eth0.rp_filter", "2"},
	} {
		if got := must(l.ns(c.node).Sysctl(c.name))(t); got != c.want {
			t.Errorf("%s in %s is %s, want %s", c.name, c.node, got, c.want)
		}
	}
	h := must(l.ns("node-a").Netlink())(t)
	defer h.Close()
	routes := must(h.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE))(t)
	if len(routes) != 1 || routes[0].Gw.String() != "10.0.1.1" || routes[0].Flags&int(netlink.FLAG_ONLINK) == 0 {
		t.Errorf("main table is %v, want the default route via the subnet's gateway, onlink, alone", routes)
	}
}

// neighbours gives the IPv4 neighbour entries of a namespace that the kernel learned.
func (l *lab) learned(n *netlab.Namespace) []string {
	l.t.Helper()
	h := must(n.Netlink())(l.t)
	defer h.Close()
	var out []string
	for _, entry := range must(h.NeighList(0, unix.AF_INET))(l.t) {
		if entry.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 {
			out = append(out, entry.IP.String())
		}
	}
	return out
}

func TestNothingIsLearnedButTheGuestsGateways(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	var secondaries []netip.Addr
	for range 5 {
		secondaries = append(secondaries, l.assign(l.b, true))
	}
	for _, s := range secondaries {
		l.answers(echo{from: a, dst: s})
		l.answers(echo{from: b, src: s, dst: addrA})
	}
	// A second ENI used with the first one's address: a wrong source, and a request for the gateway that bears it.
	e := l.attach(l.a, 1)
	h := must(a.Netlink())(t)
	defer h.Close()
	l.check(h.LinkSetUp(must(h.LinkByName("eth1"))(t)))
	l.check(netlab.AddRoute(a, netlab.Route{Dst: netip.PrefixFrom(addrB, 32), Via: gatewayA, Link: "eth1", Onlink: true}))
	l.dropped(echo{from: a, dst: addrB}, dataplane.DropSource)
	l.check(netlab.AddAddr(a, "eth1", netip.PrefixFrom(e.Primary, 32)))
	l.check(a.SetSysctl("net.ipv4.conf.eth1.rp_filter", "2"))
	l.answers(echo{from: a, src: e.Primary, dst: addrB})
	l.answers(echo{from: a, src: e.Primary, dst: gatewayA, link: "eth1"})

	if got := l.learned(l.ns("fabric-" + l.a.VPCID)); len(got) != 0 {
		t.Errorf("the fabric has learned %v, want nothing", got)
	}
	if diff := cmp.Diff([]string{"10.0.1.1", "10.0.1.1"}, l.learned(a)); diff != "" {
		t.Errorf("node a has learned (-want +got), one gateway for each ENI:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.0.2.1"}, l.learned(b)); diff != "" {
		t.Errorf("node b has learned (-want +got):\n%s", diff)
	}
}

func TestTCPPassesTheGatewayAndShowsThePublicAddress(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	for _, c := range []struct {
		server, at, want string
	}{
		{"internet", "203.0.113.10:80", "198.51.100.10"},
		{"apiserver", "10.0.255.10:80", "10.0.1.10"},
		{"node-b", "10.0.2.10:80", "10.0.1.10"},
	} {
		listener := must(l.ns(c.server).Listen(t.Context(), "tcp4", c.at))(t)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				fmt.Fprintf(conn, "%s %s", conn.RemoteAddr(), strings.Repeat("x", 1<<20))
				conn.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		conn := must(l.ns("node-a").DialContext(ctx, "tcp4", c.at))(t)
		text, err := io.ReadAll(conn)
		conn.Close()
		cancel()
		listener.Close()
		from, _, _ := strings.Cut(string(text), ":")
		if err != nil || from != c.want || len(text) < 1<<20 {
			t.Errorf("%s saw a connection from %s and sent %d bytes, %v; want %s", c.server, from, len(text), err, c.want)
		}
	}
}

func TestInstanceEndsWithItsNamespace(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a := l.ns("node-a")
	l.answers(echo{from: a, dst: addrB})
	l.check(l.model.TerminateInstance(l.now, l.b.ID))
	l.advance(10 * time.Second)
	l.dropped(echo{from: a, dst: addrB}, dataplane.DropNoAddress)
	if _, err := netlab.Open(l.dir + "/netns/node-b"); err == nil {
		t.Error("the namespace of a terminated instance stands")
	}
}
