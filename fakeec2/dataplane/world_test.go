package dataplane_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// addVPC adds a VPC with one subnet in another zone and one node in it.
func (l *lab) addVPC(cidr, name string, addr netip.Addr) vpc.Instance {
	l.t.Helper()
	range16 := netip.MustParsePrefix(cidr)
	six := l.model.AmazonIPv6()
	n := must(l.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{range16}, IPv6CIDRs: []netip.Prefix{six}}))(l.t)
	s := must(l.model.AddSubnet(vpc.Subnet{VPCID: n.ID, AZ: "us-west-2b", CIDR: netip.PrefixFrom(range16.Addr(), 24), IPv6CIDR: netip.PrefixFrom(six.Addr(), 64)}))(l.t)
	return must(l.model.Launch(l.now, vpc.LaunchInput{Name: name, Type: "m5.xlarge", SubnetID: s.ID, PrivateIP: addr}))(l.t)
}

func TestPeeringIsPrivateAndNotTransitive(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	addrC, addrD := netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.2.0.10")
	c, d := l.addVPC("10.1.0.0/16", "node-c", addrC), l.addVPC("10.2.0.0/16", "node-d", addrD)
	l.sync()
	a, nodeC, nodeD := l.ns("node-a"), l.ns("node-c"), l.ns("node-d")
	l.dropped(echo{from: l.ns("node-b"), dst: addrC}, dataplane.DropNoPublic) // strangers yet: the default route

	must(l.model.AddPeering(vpc.Peering{A: l.a.VPCID, B: c.VPCID}))(t)
	must(l.model.AddPeering(vpc.Peering{A: c.VPCID, B: d.VPCID}))(t)
	l.sync()
	l.dropped(echo{from: a, dst: addrC}, dataplane.DropIngress)
	groupA, groupC := l.model.InstanceENIs(l.a.ID)[0].Groups[0], l.model.InstanceENIs(c.ID)[0].Groups[0]
	for group, other := range map[string]string{groupA: groupC, groupC: groupA} { // groups of a peered VPC may be named
		l.allow(group, vpc.Rule{Protocol: vpc.Any, Group: other})
	}
	l.check(nodeC.SetSysctl("net.ipv4.ip_default_ttl", "1"))
	if ttl := l.answers(echo{from: a, dst: addrC, ttl: 1, size: 8900}); ttl != 1 {
		t.Errorf("an answer sent with TTL 1 arrives with %d: both fabrics are inside", ttl)
	}
	l.answers(echo{from: nodeC, dst: addrA})
	l.dropped(echo{from: a, dst: netip.MustParseAddr("10.1.0.77")}, dataplane.DropNoAddress)
	l.dropped(echo{from: l.ns("node-b"), dst: addrD}, dataplane.DropNoPublic) // two peerings are no way
	l.dropped(echo{from: nodeC, dst: outsideAddr}, dataplane.DropNoPublic)

	// With its own check off, a node in the middle VPC cannot make the peering carry what is not its VPC's.
	for _, e := range l.model.InstanceENIs(d.ID) {
		off := false
		l.check(l.model.ModifyNetworkInterfaceAttribute(l.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: e.ID, SourceDestCheck: &off}))
	}
	l.sync()
	l.check(netlab.AddAddr(nodeD, "lo", netip.PrefixFrom(addrA, 32)))
	l.dropped(echo{from: nodeD, src: addrA, dst: addrC}, dataplane.DropSource)
}

func TestVPCsOfOneRangeStayApart(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	twin := l.addVPC("10.0.0.0/16", "twin", netip.MustParseAddr("10.0.0.99"))
	l.sync()
	l.dropped(echo{from: l.ns("node-a"), dst: twin.PrivateIP}, dataplane.DropNoAddress)
	l.dropped(echo{from: l.ns("twin"), dst: addrA}, dataplane.DropNoAddress)
}

func TestMTUIs9001InsideAnd1500ToTheInternet(t *testing.T) {
	const headers = 28 // IPv4 and ICMP
	l := newLab(t, dataplane.Options{})
	a := l.ns("node-a")
	l.answers(echo{from: a, dst: addrB, size: 9001 - headers})
	// With the DF bit the gateway answers that 1500 is the limit, and the sender's kernel knows it from then on.
	conn := must(a.DialContext(t.Context(), "udp4", outsideAddr.String()+":9"))(t)
	defer conn.Close()
	raw := must(conn.(syscall.Conn).SyscallConn())(t)
	l.check(raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO) // judged by what follows
	}))
	for deadline := time.Now().Add(patience); ; {
		_, err := conn.Write(make([]byte, 2000))
		if errors.Is(err, syscall.EMSGSIZE) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no word of the internet gateway's MTU")
		}
	}
	mtu := 0
	l.check(raw.Control(func(fd uintptr) { mtu, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_IP, 14 /* IP_MTU */) }))
	if mtu != 1500 {
		t.Errorf("path MTU to the internet is %d, want 1500", mtu)
	}
	l.answers(echo{from: a, dst: outsideAddr, size: 3000}) // in fragments
}

// bigWorld is 20 nodes in two zones, with 3 ENIs each and 34 addresses on each: 2,040 in all.
func bigWorld(t *testing.T) (*lab, []vpc.Instance) {
	t.Helper()
	const nodes, enis, addresses = 20, 3, 34
	l := &lab{t: t, dir: t.TempDir(), now: time.Unix(1_700_000_000, 0)}
	l.model = vpc.New(vpc.Options{Seed: 2, AttachDelay: -1, LinkDelay: -1, ReuseDelay: -1})
	network := must(l.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}))(t)
	var all []vpc.Instance
	for zone := range 2 {
		subnet := must(l.model.AddSubnet(vpc.Subnet{
			VPCID: network.ID, AZ: fmt.Sprintf("us-west-2%c", 'a'+zone), CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(16 * zone), 0}), 20),
		}))(t)
		for i := range nodes / 2 {
			node := must(l.model.Launch(l.now, vpc.LaunchInput{Name: fmt.Sprintf("n%d-%d", zone, i), Type: "m5.24xlarge", SubnetID: subnet.ID}))(t)
			all = append(all, node)
			must(l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: l.model.InstanceENIs(node.ID)[0].ID, Count: addresses - 1}))(t)
			for device := 1; device < enis; device++ {
				e := must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: subnet.ID, SecondaryCount: addresses - 1}))(t)
				must(l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: node.ID, NetworkInterfaceID: e.ID, Device: device}))(t)
			}
		}
	}
	l.plane = dataplane.New(l.model, dataplane.Options{Dir: l.dir})
	return l, all
}

// timed reports how long something takes.
func (l *lab) timed(what string, f func() error) time.Duration {
	l.t.Helper()
	start := time.Now()
	l.check(f())
	took := time.Since(start)
	l.t.Logf("%s: %v", what, took.Round(100*time.Microsecond))
	return took
}

// wire makes a guest use each of its addresses by the ENI that holds it, as a CNI would.
func (l *lab) wire(node vpc.Instance) *netlab.Namespace {
	l.t.Helper()
	n := l.ns(node.Name)
	h := must(n.Netlink())(l.t)
	defer h.Close()
	gateway := netip.Addr{}
	for _, s := range l.model.Subnets() {
		if s.ID == node.SubnetID {
			gateway = s.Gateway()
		}
	}
	for device, e := range l.model.InstanceENIs(node.ID) {
		link := fmt.Sprintf("eth%d", device)
		if device > 0 {
			l.check(h.LinkSetUp(must(h.LinkByName(link))(l.t)))
			l.check(n.SetSysctl("net.ipv4.conf."+link+".rp_filter", "2"))
		}
		l.check(netlab.AddRoute(n, netlab.Route{Via: gateway, Link: link, Onlink: true, Table: 10 + device}))
		for _, a := range e.Addresses() {
			if device > 0 || a != e.Primary {
				l.check(netlab.AddAddr(n, "lo", netip.PrefixFrom(a, 32)))
			}
			rule := netlink.NewRule()
			rule.Src = ipNetOf(a)
			rule.Table, rule.Priority = 10+device, 100
			l.check(h.RuleAdd(rule))
		}
	}
	return n
}

func TestBigWorldLearnsAtMostOneEntryForEachENI(t *testing.T) {
	l, nodes := bigWorld(t)
	l.timed("20 nodes, 60 ENIs, 2040 addresses built", l.plane.Sync)
	closed := false
	t.Cleanup(func() {
		if !closed {
			l.check(l.plane.Close())
		}
	})
	var guests []*netlab.Namespace
	for _, node := range nodes {
		guests = append(guests, l.wire(node))
	}
	fabric := l.ns("fabric-" + nodes[0].VPCID)
	arp := l.watchARP(fabric)
	l.timed("each of 2040 addresses answers another node", func() error {
		for i, node := range nodes {
			from := (i + 7) % len(nodes)
			for device, e := range l.model.InstanceENIs(node.ID) {
				source := l.model.InstanceENIs(nodes[from].ID)[device]
				if unanswered := l.pingAll(guests[from], source.Secondary[0], e.Addresses()); len(unanswered) > 0 {
					return fmt.Errorf("%s does not reach %v", nodes[from].Name, unanswered)
				}
			}
		}
		return nil
	})
	if got := l.learned(fabric); len(got) != 0 {
		t.Errorf("the fabric has learned %v, want nothing", got)
	}
	gateways := map[string]bool{"10.0.0.1": true, "10.0.16.1": true}
	for i, n := range guests {
		got := l.learned(n)
		if len(got) > 3 {
			t.Errorf("%s has learned %v, want at most one for each of 3 ENIs", nodes[i].Name, got)
		}
		for _, entry := range got {
			if !gateways[entry] {
				t.Errorf("%s has learned %s, which is no gateway", nodes[i].Name, entry)
			}
		}
	}
	for asked, n := range arp() {
		if !gateways[asked] {
			t.Errorf("%d ARP requests were for %s, which is no gateway", n, asked)
		}
	}
	eni := l.model.InstanceENIs(nodes[0].ID)[2].ID
	must(l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: eni, Count: 1}))(t)
	l.timed("one address more", l.plane.Sync)
	l.timed("nothing new", l.plane.Sync)
	closed = true
	l.timed("taken down", l.plane.Close)
	if left, _ := os.ReadDir(l.dir + "/netns"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What a reading of the model refers to is in it, however the world grows meanwhile.
func TestGrowingWorldIsFollowed(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	grown := make(chan error)
	go func() {
		defer close(grown)
		for i := range 6 {
			cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i), 0, 0}), 16)
			n, err := l.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{cidr}})
			if err != nil {
				grown <- err
				return
			}
			s, err := l.model.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.PrefixFrom(cidr.Addr(), 24)})
			if err != nil {
				grown <- err
				return
			}
			for range 20 {
				if _, err := l.model.Launch(l.now, vpc.LaunchInput{Type: "m5.large", SubnetID: s.ID}); err != nil {
					grown <- err
					return
				}
			}
		}
	}()
	for growing := true; growing; {
		select {
		case err := <-grown:
			l.check(err)
			growing = false
		default:
		}
		l.sync()
	}
	if got := len(l.plane.Namespaces()); got != 4+6*20 {
		t.Errorf("%d guests stand, want %d", got, 4+6*20)
	}
}
