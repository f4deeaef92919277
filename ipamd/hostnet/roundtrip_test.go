package hostnet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Numbers of the round trip benchmark.
const (
	// tripsInBlock is one measured block: some milliseconds, long against the clock and short against the machine's moods.
	tripsInBlock = 200
	// blocks is how many of each node are measured.
	blocks = 50
)

// peerPod is the pod that answers, on the peer, which is a node of this project with no other pod.
const peerPod = "10.0.3.21"

// pairUp makes the peer a node and gives it its pod.
func (l *lab) pairUp() {
	l.tb.Helper()
	peer := *l
	peer.node = l.peer
	i := slices.IndexFunc(l.ports, func(p port) bool { return p.ns == l.peer })
	link := l.ports[i].fabricLink()
	addr := netip.MustParseAddr(peerPod)
	mac, err := net.ParseMAC(l.ports[i].mac)
	l.must(err)
	l.must(netlab.AddRoute(l.fabric, netlab.Route{Dst: netip.PrefixFrom(addr, 32), Link: link}))
	l.must(netlab.Neigh(l.fabric, link, addr, mac))
	l.must(l.fabric.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		set, err := c.GetSetByName(&nftables.Table{Name: "guard", Family: nftables.TableFamilyIPv4}, "of_"+link)
		if err != nil {
			return err
		}
		if err := c.SetAddElements(set, []nftables.SetElement{{Key: addr.AsSlice()}}); err != nil {
			return err
		}
		return c.Flush()
	}))
	peer.applyOnce(peer.host(settings()), pool.HostState{
		VPCCIDRs: wanted().VPCCIDRs,
		ENIs: []pool.HostENI{{ID: "eni-peer", MAC: l.ports[i].mac, SubnetCIDR: netip.MustParsePrefix("10.0.3.0/24"),
			Primary: netip.MustParseAddr(peerAddr), Addresses: addrs(peerPod)}},
	})
	peer.pod(peerPod)
}

// crowd gives the node n-1 pods besides podB: real veths (whose far ends share a namespace, as nothing is sent to them) and
// their addresses.
func (l *lab) crowd(n int) []netip.Addr {
	l.tb.Helper()
	far := l.namespace("crowd")
	addr := netip.MustParseAddr("10.0.128.1")
	var all []netip.Addr
	for i := range n - 1 {
		l.must(netlab.Veth(netlab.End{NS: l.node, Name: fmt.Sprintf("enic%d", i)}, netlab.End{NS: far, Name: fmt.Sprintf("c%d", i)}))
		all = append(all, addr)
		addr = addr.Next()
	}
	return all
}

// scheme makes a node forward for podB and its crowd.
type scheme struct {
	name  string
	setUp func(l *lab, crowd []netip.Addr)
}

func schemes() []scheme {
	return []scheme{
		{figures.Hostnet, func(l *lab, crowd []netip.Addr) {
			want := wanted()
			want.ENIs[1].Addresses = append(addrs(podB), crowd...)
			if report := l.apply(l.host(settings()), want); len(report.Addresses) != len(crowd)+2 {
				l.tb.Fatalf("%d addresses stand", len(report.Addresses))
			}
			l.route(crowd, tablePods)
		}},
		// The incumbent's way: two rules for each pod, the pods' routes in the main table, one table for the ENI. The
		// measured pod's rules stand in the middle. Its NAT and mark rules are left out: this is about the rules.
		{figures.TwoRulesEach, func(l *lab, crowd []netip.Addr) {
			all := append(append(append([]netip.Addr{}, crowd[:len(crowd)/2]...), addrs(podB)...), crowd[len(crowd)/2:]...)
			l.must(l.node.SetSysctl("net.ipv4.ip_forward", "1"))
			l.must(l.node.SetSysctl("net.ipv4.conf.eth1.rp_filter", "2"))
			l.withTools(func(x tool) error { return incumbent(x, all) })
			l.route(crowd, tableMain)
		}},
	}
}

// incumbent writes the rules and the ENI table as the incumbent does.
func incumbent(x tool, pods []netip.Addr) error {
	if err := x.nl.LinkSetUp(x.link("eth1")); err != nil {
		return err
	}
	route := &netlink.Route{Table: 2, Dst: ipNet(everywhere()), Gw: net.IPv4(10, 0, 2, 1), LinkIndex: x.link("eth1").Attrs().Index, Flags: int(netlink.FLAG_ONLINK)}
	if err := x.nl.RouteAdd(route); err != nil {
		return err
	}
	veth := x.link("eni0a00020c").Attrs().Index
	if err := x.nl.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(podB + "/32")), LinkIndex: veth, Scope: netlink.SCOPE_LINK}); err != nil {
		return err
	}
	for _, addr := range pods {
		to, from := netlink.NewRule(), netlink.NewRule()
		to.Family, to.Priority, to.Table, to.Dst = unix.AF_INET, 512, tableMain, ipNet(netip.PrefixFrom(addr, 32))
		from.Family, from.Priority, from.Table, from.Src = unix.AF_INET, 1536, 2, ipNet(netip.PrefixFrom(addr, 32))
		for _, r := range []*netlink.Rule{to, from} {
			if err := x.nl.RuleAdd(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// route gives the crowd's pods their host routes.
func (l *lab) route(crowd []netip.Addr, table int) {
	l.tb.Helper()
	l.withTools(func(x tool) error {
		for i, addr := range crowd {
			index := x.link(fmt.Sprintf("enic%d", i)).Attrs().Index
			if err := x.nl.RouteAdd(&netlink.Route{Table: table, Dst: ipNet(netip.PrefixFrom(addr, 32)), LinkIndex: index,
				Scope: netlink.SCOPE_LINK, Protocol: protocol}); err != nil {
				return err
			}
		}
		return nil
	})
}

// pinger is a raw socket in podB that has another's kernel answer echo requests: the way there and back is worked off within the
// two system calls, so that what is measured is forwarding and not the scheduler.
type pinger struct {
	fd     int
	to     unix.SockaddrInet4
	packet []byte
	buffer []byte
}

// pinger pings the peer node.
func (l *lab) pinger() *pinger { return l.pingerTo(peerAddr) }

func (l *lab) pingerTo(addr string) *pinger {
	l.tb.Helper()
	p := &pinger{buffer: make([]byte, 256), to: unix.SockaddrInet4{Addr: netip.MustParseAddr(addr).As4()}}
	p.packet = make([]byte, 8+56) // echo request (RFC 792) with ping's usual payload
	p.packet[0] = 8
	binary.BigEndian.PutUint16(p.packet[2:], ^uint16(8<<8)) // all else is zero
	l.must(l.pods[podB].Do(func() error {
		var err error
		p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		return unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	}))
	l.tb.Cleanup(func() { _ = unix.Close(p.fd) })
	return p
}

func (p *pinger) ping() error {
	if err := unix.Sendto(p.fd, p.packet, 0, &p.to); err != nil {
		return fmt.Errorf("send echo request: %w", err)
	}
	n, _, err := unix.Recvfrom(p.fd, p.buffer, 0)
	if err != nil {
		return fmt.Errorf("await echo reply: %w", err)
	}
	// A raw socket gets the IP header too, and every ICMP message: a router's complaint is no reply.
	if header := int(p.buffer[0]&0xf) * 4; n <= header || p.buffer[header] != 0 {
		return fmt.Errorf("await echo reply: got another message: % x", p.buffer[:n])
	}
	return nil
}

// block is the time of one round trip, in microseconds, as the mean of a block of them.
func (p *pinger) block(tb testing.TB) float64 {
	start := time.Now()
	for range tripsInBlock {
		if err := p.ping(); err != nil {
			tb.Fatal(err)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1000 / tripsInBlock
}

// BenchmarkRoundTrip measures a forwarded round trip, from a pod on a secondary ENI to a pod on another node and back: veth,
// node, ENI, fabric with its source checks, peer's ENI, peer, veth. The nodes have from one pod to as many as the largest
// instance types hold, and beside each stands one with two routing rules for each pod; the peer is the same everywhere. All
// stand at once and are measured in turn, block by block, so that the machine's moods meet all alike.
func BenchmarkRoundTrip(b *testing.B) {
	type node struct {
		series figures.Series
		lab    *lab
		pinger *pinger
	}
	record := figures.Record(b, "roundtrip")
	var nodes []*node
	for _, s := range schemes() {
		for _, pods := range []int{1, figures.FewPods, figures.Parallel, figures.ManyPods} {
			l := newLab(b, labOptions{rpFilter: 1})
			l.pairUp()
			l.pod(podB)
			s.setUp(l, l.crowd(pods))
			nodes = append(nodes, &node{series: figures.RoundTrip(s.name, pods), lab: l, pinger: l.pingerTo(peerPod)})
		}
	}
	for _, n := range nodes {
		n.pinger.block(b) // fills neighbours and caches
	}
	for block := range blocks {
		for i := range nodes {
			n := nodes[(i+block)%len(nodes)] // none is always first
			record.Add(n.series, block, n.pinger.block(b))
		}
	}
	for _, n := range nodes {
		if drops := n.lab.drops(); drops > 0 {
			b.Errorf("%s: the fabric dropped %d packets with foreign sources", n.series.Name, drops)
		}
	}
}

// BenchmarkApply measures the daemon's work with 700 addresses: an audit that finds all well, and one address more or less.
func BenchmarkApply(b *testing.B) {
	l := newLab(b, labOptions{})
	h := l.host(settings())
	want := wanted()
	addr := netip.MustParseAddr("10.0.128.1")
	for range figures.ManyPods {
		want.ENIs[1].Addresses = append(want.ENIs[1].Addresses, addr)
		addr = addr.Next()
	}
	one := want
	one.ENIs = append([]pool.HostENI{}, want.ENIs...)
	one.ENIs[1].Addresses = append(append([]netip.Addr{}, want.ENIs[1].Addresses...), addr)
	l.apply(h, want)
	b.Run("audit", func(b *testing.B) {
		for b.Loop() {
			l.applyOnce(h, want)
		}
	})
	b.Run("one address", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			l.applyOnce(h, []pool.HostState{one, want}[i%2])
		}
	})
	b.Run("all 700 anew", func(b *testing.B) {
		for b.Loop() {
			l.clean(h)
			l.applyOnce(h, want)
		}
	})
}
