package dataplane_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// Addresses of the lab.
var (
	addrA       = netip.MustParseAddr("10.0.1.10")
	addrB       = netip.MustParseAddr("10.0.2.10")
	gatewayA    = netip.MustParseAddr("10.0.1.1")
	gatewayB    = netip.MustParseAddr("10.0.2.1")
	serviceAddr = netip.MustParseAddr("10.0.255.10")
	outsideAddr = netip.MustParseAddr("203.0.113.10")
	publicA     = netip.MustParseAddr("198.51.100.10")
)

// patience is how long a packet or a process may take on a busy machine; silence is how long a packet that must not come is
// waited for, where no counter can tell.
const (
	patience = 5 * time.Second
	silence  = 100 * time.Millisecond
)

// lab is a world of two nodes in two subnets, one service and one outside host; node a has a public address.
type lab struct {
	t     *testing.T
	dir   string
	now   time.Time
	model *vpc.VPC
	plane *dataplane.Plane
	a, b  vpc.Instance
}

func newLab(t *testing.T, options dataplane.Options) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir(), now: time.Unix(1_700_000_000, 0)}
	l.model = vpc.New(vpc.Options{Seed: 1, IMDSLag: -1, ReuseDelay: -1})
	network := must(l.model.AddVPC(vpc.Network{
		CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, IPv6CIDRs: []netip.Prefix{netip.MustParsePrefix("2600:1f14:1:2300::/56")},
	}))(t)
	subnet := func(cidr, six string) string {
		return must(l.model.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix(cidr), IPv6CIDR: netip.MustParsePrefix(six)}))(t).ID
	}
	subnetA, subnetB := subnet("10.0.1.0/24", "2600:1f14:1:2301::/64"), subnet("10.0.2.0/24", "2600:1f14:1:2302::/64")
	services := subnet("10.0.255.0/24", "2600:1f14:1:23ff::/64")
	l.check(l.model.AddService(vpc.Service{Name: "apiserver", Addr: serviceAddr, SubnetID: services}))
	l.check(l.model.AddOutside(vpc.Outside{Name: "internet", Addr: outsideAddr, CIDR: netip.MustParsePrefix("203.0.113.0/24")}))
	launch := func(name, subnet string, addr, public netip.Addr) vpc.Instance {
		return must(l.model.Launch(l.now, vpc.LaunchInput{Name: name, Type: "m5.xlarge", SubnetID: subnet, PrivateIP: addr, Public: public}))(t)
	}
	l.a = launch("node-a", subnetA, addrA, publicA)
	l.b = launch("node-b", subnetB, addrB, netip.Addr{})
	options.Dir = l.dir
	l.plane = dataplane.New(l.model, options)
	t.Cleanup(func() { l.check(l.plane.Close()) })
	l.sync()
	return l
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (l *lab) sync() {
	l.t.Helper()
	l.check(l.plane.Sync())
}

// advance lets time pass in the model and the plane follow.
func (l *lab) advance(d time.Duration) {
	l.t.Helper()
	l.now = l.now.Add(d)
	l.model.Advance(l.now)
	l.sync()
}

// attach gives an instance a second ENI with n secondary addresses and waits until its link is there.
func (l *lab) attach(instance vpc.Instance, n int) vpc.ENI {
	l.t.Helper()
	e := must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: instance.SubnetID, SecondaryCount: n}))(l.t)
	must(l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: instance.ID, NetworkInterfaceID: e.ID, Device: 1}))(l.t)
	l.advance(3 * time.Second)
	e, _ = l.model.ENI(e.ID)
	return e
}

// assign gives an instance's primary ENI one more address, which the guest takes for its own when local is set.
func (l *lab) assign(instance vpc.Instance, local bool) netip.Addr {
	l.t.Helper()
	e := l.model.InstanceENIs(instance.ID)[0]
	addrs := must(l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1}))(l.t)
	l.sync()
	if local {
		l.check(netlab.AddAddr(l.ns(instance.Name), "lo", netip.PrefixFrom(addrs[0], 32)))
	}
	return addrs[0]
}

// allow adds an ingress rule to a group; "" is the VPC's default one, which all ENIs of the lab begin with.
func (l *lab) allow(group string, rule vpc.Rule) {
	l.t.Helper()
	if group == "" {
		group = l.model.VPCs()[0].DefaultGroup
	}
	l.check(l.model.AuthorizeSecurityGroup(l.now, group, false, []vpc.Rule{rule}))
	l.sync()
}

func (l *lab) ns(name string) *netlab.Namespace {
	l.t.Helper()
	n := must(netlab.Open(filepath.Join(l.dir, "netns", name)))(l.t)
	l.t.Cleanup(func() { n.Close() })
	return n
}

func (l *lab) counter(reason string) uint64 {
	l.t.Helper()
	return must(l.plane.Counters())(l.t)[reason]
}

// echo is one ICMP echo request. Zero fields are the kernel's choice.
type echo struct {
	from     *netlab.Namespace
	src, dst netip.Addr
	ttl      int
	link     string // leaves by this link
	size     int    // bytes of payload
}

// ping sends an echo request and gives the TTL that the answer arrives with; ok is false when none came within wait.
func (l *lab) ping(e echo, wait time.Duration) (ttl int, ok bool) {
	l.t.Helper()
	var conn *ipv4.PacketConn
	control := &ipv4.ControlMessage{}
	l.check(e.from.Do(func() error {
		src := "0.0.0.0"
		if e.src.IsValid() {
			src = e.src.String()
		}
		c, err := icmp.ListenPacket("ip4:icmp", src)
		if err != nil {
			return err
		}
		conn = c.IPv4PacketConn()
		if e.link == "" {
			return nil
		}
		link, err := net.InterfaceByName(e.link)
		if err != nil {
			return err
		}
		control.IfIndex = link.Index
		return nil
	}))
	defer conn.Close()
	l.check(conn.SetControlMessage(ipv4.FlagTTL, true))
	if e.ttl != 0 {
		l.check(conn.SetTTL(e.ttl))
	}
	request := &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: make([]byte, e.size)}
	data, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: request}).Marshal(nil)
	l.check(err)
	if _, err := conn.WriteTo(data, control, &net.IPAddr{IP: e.dst.AsSlice()}); err != nil {
		l.t.Fatalf("send echo request to %s: %v", e.dst, err)
	}
	l.check(conn.SetReadDeadline(time.Now().Add(wait)))
	buffer := make([]byte, 65536)
	for {
		n, received, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, false
		}
		l.check(err)
		message, err := icmp.ParseMessage(1, buffer[:n])
		if err == nil && message.Type == ipv4.ICMPTypeEchoReply && from.String() == e.dst.String() {
			return received.TTL, true
		}
	}
}

// answers fails the test unless dst answers.
func (l *lab) answers(e echo) int {
	l.t.Helper()
	ttl, ok := l.ping(e, patience)
	if !ok {
		counters, err := l.plane.Counters()
		l.t.Fatalf("no answer from %s; drops: %v, %v", e.dst, counters, err)
	}
	return ttl
}

// dropped fails the test unless the request is counted as dropped for the reason.
func (l *lab) dropped(e echo, reason string) {
	l.t.Helper()
	before := l.counter(reason)
	if _, ok := l.ping(e, silence); ok {
		l.t.Errorf("%s answered %s, want a drop", e.dst, e.src)
	}
	// The packet may still wait for its gateway's MAC on a busy machine.
	for deadline := time.Now().Add(patience); l.counter(reason) == before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if got := l.counter(reason) - before; got != 1 {
		counters, err := l.plane.Counters()
		l.t.Errorf("%d packets counted as %s, want 1; all: %v, %v", got, reason, counters, err)
	}
}
