package hostnet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/perf/benchmath"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Numbers of the round trip benchmark.
const (
	fewPods  = 10
	manyPods = 700 // what the largest instance types hold
	// tripsInBlock is one measured block: some milliseconds, long against the clock and short against the machine's moods.
	tripsInBlock = 200
	// blocks is how many of each node are measured in one iteration: enough for an interval with -benchtime 1x, in half a
	// second.
	blocks = 30
)

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
		{"hostnet", func(l *lab, crowd []netip.Addr) {
			want := wanted()
			want.ENIs[1].Addresses = append(addrs(podB), crowd...)
			if report := l.apply(l.host(settings()), want); len(report.Addresses) != len(crowd)+2 {
				l.tb.Fatalf("%d addresses stand", len(report.Addresses))
			}
			l.route(crowd, tablePods)
		}},
		// The incumbent's way: two rules for each pod, the pods' routes in the main table, one table for the ENI. The
		// measured pod's rules stand in the middle. Its NAT and mark rules are left out: this is about the rules.
		{"two rules per pod", func(l *lab, crowd []netip.Addr) {
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

// pinger is a raw socket in podB that has the peer's kernel answer echo requests: the way to the peer and back is worked off
// within the two system calls, so that what is measured is forwarding and not the scheduler.
type pinger struct {
	fd     int
	to     unix.SockaddrInet4
	packet []byte
	buffer []byte
}

func (l *lab) pinger() *pinger {
	l.tb.Helper()
	p := &pinger{buffer: make([]byte, 256), to: unix.SockaddrInet4{Addr: netip.MustParseAddr(peerAddr).As4()}}
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
	if _, _, err := unix.Recvfrom(p.fd, p.buffer, 0); err != nil {
		return fmt.Errorf("await echo reply: %w", err)
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

// BenchmarkRoundTrip measures a forwarded round trip (pod on the secondary ENI, node, router, peer and back) with few and
// with many pods on the node, and beside it the same with two routing rules for each pod. All nodes stand at once and are
// measured in turn, block by block, so that the machine's moods meet all alike; the ratios are of neighbouring blocks.
func BenchmarkRoundTrip(b *testing.B) {
	type node struct {
		name    string
		pinger  *pinger
		samples []float64
	}
	var nodes []*node
	for _, s := range schemes() {
		for _, pods := range []int{fewPods, manyPods} {
			l := newLab(b, labOptions{rpFilter: 1})
			l.pod(podB)
			s.setUp(l, l.crowd(pods))
			nodes = append(nodes, &node{name: fmt.Sprintf("%s, %d pods", s.name, pods), pinger: l.pinger()})
		}
	}
	for _, n := range nodes {
		n.pinger.block(b) // fills neighbours and caches
	}
	for b.Loop() {
		for range blocks {
			for _, n := range nodes {
				n.samples = append(n.samples, n.pinger.block(b))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // thirty rounds of blocks are no unit for anybody
	for _, n := range nodes {
		b.Logf("%-28s %s us", n.name, summary(n.samples))
	}
	for i := 0; i < len(nodes); i += 2 {
		few, many := nodes[i], nodes[i+1]
		ratios := make([]float64, len(few.samples))
		for j := range ratios {
			ratios[j] = many.samples[j] / few.samples[j]
		}
		b.Logf("%-28s %s times", schemes()[i/2].name+", 700/10", summary(ratios))
		unit := map[bool]string{true: "hostnet", false: "rules"}[i == 0]
		b.ReportMetric(median(few.samples), unit+"-us-10pods")
		b.ReportMetric(median(many.samples), unit+"-us-700pods")
		b.ReportMetric(median(ratios), unit+"-ratio")
	}
}

func median(values []float64) float64 {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95).Center
}

// summary is the median with its 95 % confidence interval.
func summary(values []float64) string {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
	return fmt.Sprintf("%.2f [%.2f to %.2f]", s.Center, s.Lo, s.Hi)
}

// BenchmarkApply measures the daemon's work with 700 addresses: an audit that finds all well, and one address more or less.
func BenchmarkApply(b *testing.B) {
	l := newLab(b, labOptions{})
	h := l.host(settings())
	want := wanted()
	addr := netip.MustParseAddr("10.0.128.1")
	for range manyPods {
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
