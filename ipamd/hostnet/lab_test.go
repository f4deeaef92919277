package hostnet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// The little VPC of these tests: a fabric that forwards and checks sources, a node with two ENIs in two subnets, a peer node
// in a third, and two hosts outside: one behind an internet gateway that passes only the node's public address, one as a
// network behind a transit gateway, which reaches pods directly.
const (
	macPrimary   = "02:00:00:00:01:0a"
	macSecondary = "02:00:00:00:02:0b"

	nodePrimary   = "10.0.1.10"
	nodeSecondary = "10.0.2.11"
	podA          = "10.0.1.11" // on the primary ENI
	podB          = "10.0.2.12" // on the secondary ENI
	podC          = "10.0.2.13" // on the secondary ENI
	peerAddr      = "10.0.3.20"
	outsideAddr   = "203.0.113.10"
	onpremAddr    = "192.168.50.10"

	echoPort = 8080
)

// lab is the world. drops are counted in the fabric for each link.
type lab struct {
	tb                                  testing.TB
	dir                                 string
	fabric, node, peer, outside, onprem *netlab.Namespace
	pods                                map[string]*netlab.Namespace
	ports                               []port
}

// labOptions are the node image's properties.
type labOptions struct {
	rpFilter int      // of all, default and the links, as an image sets it
	podsB    []string // more addresses of the secondary ENI
}

func newLab(tb testing.TB, o labOptions) *lab {
	tb.Helper()
	l := &lab{tb: tb, dir: tb.TempDir(), pods: map[string]*netlab.Namespace{}}
	l.fabric, l.node, l.peer = l.namespace("fabric"), l.namespace("node"), l.namespace("peer")
	l.outside, l.onprem = l.namespace("outside"), l.namespace("onprem")
	// Shifts the fabric's link indices: a veth whose ends have equal ones is started up to a second late (see awaitLinks).
	l.must(netlab.Veth(netlab.End{NS: l.fabric, Name: "shift0"}, netlab.End{NS: l.fabric, Name: "shift1"}))
	l.must(l.fabric.SetSysctl("net.ipv4.ip_forward", "1"))
	// An ENI's packets come from addresses that are routed elsewhere, so the fabric itself must not check paths; its guards do.
	l.must(l.fabric.SetSysctl("net.ipv4.conf.all.rp_filter", "0"))
	for _, of := range []string{"all", "default"} {
		l.must(l.node.SetSysctl("net.ipv4.conf."+of+".rp_filter", fmt.Sprint(o.rpFilter)))
	}
	l.port(port{ns: l.node, link: "eth0", mac: macPrimary, gateway: "10.0.1.1", addrs: []string{nodePrimary, podA}})
	l.port(port{ns: l.node, link: "eth1", mac: macSecondary, gateway: "10.0.2.1", addrs: append([]string{nodeSecondary, podB, podC}, o.podsB...), bare: true})
	l.port(port{ns: l.peer, link: "eth0", mac: "02:00:00:00:03:14", gateway: "10.0.3.1", addrs: []string{peerAddr}})
	l.port(port{ns: l.outside, link: "eth0", mac: "02:00:00:00:04:0a", gateway: "203.0.113.1", addrs: []string{outsideAddr}})
	l.port(port{ns: l.onprem, link: "eth0", mac: "02:00:00:00:05:0a", gateway: "192.168.50.1", addrs: []string{onpremAddr}})
	return l
}

// must ends the test on a failure to build the world.
func (l *lab) must(err error) {
	l.tb.Helper()
	if err != nil {
		l.tb.Fatal(err)
	}
}

func (l *lab) namespace(name string) *netlab.Namespace {
	l.tb.Helper()
	ns, err := netlab.New(filepath.Join(l.dir, name))
	l.must(err)
	l.tb.Cleanup(func() { _ = ns.Close() })
	return ns
}

// port is one host's connection to the fabric. A bare one is left to hostnet, as EC2 leaves a new ENI's link.
type port struct {
	ns      *netlab.Namespace
	link    string
	mac     string
	gateway string
	addrs   []string
	bare    bool
}

// fabricLink is the fabric's end of a port.
func (p port) fabricLink() string { return "f" + strings.ReplaceAll(p.mac[9:], ":", "") }

func (l *lab) port(p port) {
	l.tb.Helper()
	mac, err := net.ParseMAC(p.mac)
	l.must(err)
	far := p.fabricLink()
	l.ports = append(l.ports, p)
	l.must(netlab.Veth(netlab.End{NS: p.ns, Name: p.link, MAC: mac, MTU: 9001, Down: p.bare}, netlab.End{NS: l.fabric, Name: far, MTU: 9001}))
	gw := netip.MustParseAddr(p.gateway)
	l.must(netlab.AddAddr(l.fabric, far, netip.PrefixFrom(gw, 32)))
	for _, a := range p.addrs {
		addr := netip.MustParseAddr(a)
		l.must(netlab.AddRoute(l.fabric, netlab.Route{Dst: netip.PrefixFrom(addr, 32), Link: far}))
		l.must(netlab.Neigh(l.fabric, far, addr, mac))
	}
	l.guard(far, p.addrs)
	if p.bare {
		return
	}
	l.must(netlab.AddAddr(p.ns, p.link, netip.PrefixFrom(netip.MustParseAddr(p.addrs[0]), 32)))
	l.must(netlab.AddRoute(p.ns, netlab.Route{Via: gw, Link: p.link, Onlink: true}))
}

// guard is the VPC's source check for one link, and the internet gateway's for the host outside: a counted drop.
func (l *lab) guard(link string, addrs []string) {
	l.tb.Helper()
	l.must(l.fabric.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		t := c.AddTable(&nftables.Table{Name: "guard", Family: nftables.TableFamilyIPv4})
		in := c.AddChain(&nftables.Chain{Name: "source", Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		set := &nftables.Set{Table: t, Name: "of_" + link, KeyType: nftables.TypeIPAddr}
		var elements []nftables.SetElement
		for _, a := range addrs {
			elements = append(elements, nftables.SetElement{Key: netip.MustParseAddr(a).AsSlice()})
		}
		if err := c.AddSet(set, elements); err != nil {
			return err
		}
		c.AddRule(&nftables.Rule{Table: t, Chain: in, Exprs: drop(
			[]expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}, compare(expr.CmpOpEq, linkKey(link))}, fromNoneOf(set.Name))})
		if addrs[0] == outsideAddr {
			out := c.AddChain(&nftables.Chain{Name: "igw", Table: t, Type: nftables.ChainTypeFilter,
				Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
			c.AddRule(&nftables.Rule{Table: t, Chain: out, Exprs: drop(leavesBy(link).exprs, notFrom(netip.MustParseAddr(nodePrimary)).exprs)})
		}
		return c.Flush()
	}))
}

// fromNoneOf: the source is not in the set.
func fromNoneOf(set string) []expr.Any {
	return []expr.Any{address(offsetSource), &expr.Lookup{SourceRegister: reg, SetName: set, Invert: true}}
}

func drop(match ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, m := range match {
		all = append(all, m...)
	}
	return append(all, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
}

// drops is how many packets the guards have dropped.
func (l *lab) drops() uint64 {
	l.tb.Helper()
	var n uint64
	l.must(l.fabric.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		t := &nftables.Table{Name: "guard", Family: nftables.TableFamilyIPv4}
		for _, chain := range []string{"source", "igw"} {
			rules, err := c.GetRules(t, &nftables.Chain{Name: chain, Table: t})
			if err != nil {
				return err
			}
			for _, r := range rules {
				for _, e := range r.Exprs {
					if counter, ok := e.(*expr.Counter); ok {
						n += counter.Packets
					}
				}
			}
		}
		return nil
	}))
	return n
}

// pod wires a pod as the plugin does: a veth born in place, a /32 address, a permanent neighbour, a route in the pods table.
func (l *lab) pod(addr string) *netlab.Namespace {
	l.tb.Helper()
	ns := l.namespace("pod-" + addr)
	ip := netip.MustParseAddr(addr)
	bytes := ip.As4()
	veth := fmt.Sprintf("eni%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3])
	inside := net.HardwareAddr{6, 0, bytes[0], bytes[1], bytes[2], bytes[3]}
	host := net.HardwareAddr{10, 0, bytes[0], bytes[1], bytes[2], bytes[3]}
	gw := netip.MustParseAddr("169.254.1.1")
	l.must(netlab.Veth(netlab.End{NS: l.node, Name: veth, MAC: host, MTU: 9001}, netlab.End{NS: ns, Name: "eth0", MAC: inside, MTU: 9001}))
	l.must(netlab.AddAddr(ns, "eth0", netip.PrefixFrom(ip, 32)))
	l.must(netlab.AddRoute(ns, netlab.Route{Via: gw, Link: "eth0", Onlink: true}))
	l.must(netlab.Neigh(ns, "eth0", gw, host))
	l.must(netlab.Neigh(l.node, veth, ip, inside))
	h, err := l.node.Netlink()
	l.must(err)
	defer h.Close()
	link, err := h.LinkByName(veth)
	l.must(err)
	l.must(h.RouteAdd(&netlink.Route{Family: unix.AF_INET, LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(ip, 32)),
		Scope: netlink.SCOPE_LINK, Table: tablePods, Protocol: protocol}))
	l.pods[addr] = ns
	return ns
}

// echo serves TCP in ns: each connection gets the address that it was seen to come from.
func (l *lab) echo(ns *netlab.Namespace) {
	l.tb.Helper()
	listener, err := ns.Listen(context.Background(), "tcp", fmt.Sprintf("0.0.0.0:%d", echoPort))
	l.must(err)
	l.tb.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			_, _ = io.WriteString(conn, host)
			_ = conn.Close()
		}
	}()
}

// dial connects from ns and gives the source address that the other side saw. A connection whose first packet was lost
// counts as failed.
func dial(from *netlab.Namespace, to string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var info *unix.TCPInfo
	var infoErr error
	if err := raw.Control(func(fd uintptr) { info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil {
		return "", err
	}
	if infoErr != nil {
		return "", infoErr
	}
	if info.Total_retrans > 0 {
		return "", fmt.Errorf("the first %d packets were lost", info.Total_retrans)
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	seen, err := io.ReadAll(conn)
	return string(seen), err
}

// wanted is the node's state with both ENIs.
func wanted() pool.HostState {
	return pool.HostState{
		VPCCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		ENIs: []pool.HostENI{
			{ID: "eni-primary", MAC: macPrimary, Device: 0, SubnetCIDR: netip.MustParsePrefix("10.0.1.0/24"),
				Primary: netip.MustParseAddr(nodePrimary), Addresses: addrs(podA)},
			{ID: "eni-second", MAC: macSecondary, Device: 1, SubnetCIDR: netip.MustParsePrefix("10.0.2.0/24"),
				Primary: netip.MustParseAddr(nodeSecondary), Addresses: addrs(podB, podC)},
		},
	}
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// settings are the defaults of production.
func settings() Config {
	return Config{MTU: 9001, VethPrefix: "eni", NodePort: true, Logger: slog.New(slog.DiscardHandler)}
}

// host makes a Host that works in the lab's node.
func (l *lab) host(cfg Config) *Host {
	l.tb.Helper()
	h, err := New(cfg)
	l.must(err)
	return h
}

// apply applies, waits until the kernel has started the links that this has set up, and gives the report of a second Apply.
func (l *lab) apply(h *Host, want pool.HostState) pool.HostReport {
	l.tb.Helper()
	l.applyOnce(h, want)
	l.awaitLinks()
	return l.applyOnce(h, want)
}

func (l *lab) applyOnce(h *Host, want pool.HostState) pool.HostReport {
	l.tb.Helper()
	var report pool.HostReport
	l.must(l.node.Do(func() error {
		var err error
		report, err = h.Apply(context.Background(), want)
		return err
	}))
	return report
}

// awaitLinks waits until the kernel has started both ends of every ENI link that is up. That is done by a worker that may
// rest for a second, where the ends happen to have the same index (link_watch.c).
func (l *lab) awaitLinks() {
	l.tb.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(5 * time.Second); ; <-poll.C {
		near, far := l.links(l.node), l.links(l.fabric)
		starting := ""
		for _, p := range l.ports {
			n := near[p.link]
			if p.ns == l.node && n&net.FlagUp != 0 && (n&net.FlagRunning == 0 || far[p.fabricLink()]&net.FlagRunning == 0) {
				starting = p.link
			}
		}
		if starting == "" {
			return
		}
		if time.Now().After(deadline) {
			l.tb.Fatalf("link %s does not start", starting)
		}
	}
}

// links gives the flags of a namespace's links.
func (l *lab) links(ns *netlab.Namespace) map[string]net.Flags {
	l.tb.Helper()
	h, err := ns.Netlink()
	l.must(err)
	defer h.Close()
	list, err := dump("links", h.LinkList)
	l.must(err)
	flags := make(map[string]net.Flags)
	for _, link := range list {
		flags[link.Attrs().Name] = link.Attrs().Flags
	}
	return flags
}

func (l *lab) dump(h *Host) string {
	l.tb.Helper()
	var text string
	l.must(l.node.Do(func() error {
		var err error
		text, err = h.Dump(context.Background())
		return err
	}))
	return text
}

func (l *lab) clean(h *Host) {
	l.tb.Helper()
	l.must(l.node.Do(func() error { return h.Clean(context.Background()) }))
}
