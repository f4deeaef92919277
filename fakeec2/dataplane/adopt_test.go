package dataplane_test

import (
	"net"
	"net/netip"
	"os"
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

const bridgeName = "br-kind"

// docker is a namespace with a bridge, as a container runtime has one. Its network has the subnet's gateway, and hands out
// addresses above those that EC2 reserves.
type docker struct {
	*lab
	host   *netlab.Namespace
	number int
}

func newDocker(l *lab) *docker {
	l.t.Helper()
	d := &docker{lab: l, host: must(netlab.New(l.dir + "/host"))(l.t)}
	l.t.Cleanup(func() { l.check(d.host.Close()) })
	h := must(d.host.Netlink())(l.t)
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	l.check(h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	l.check(h.LinkSetUp(must(h.LinkByName(bridgeName))(l.t)))
	l.check(netlab.AddAddr(d.host, bridgeName, netip.MustParsePrefix("10.0.1.1/24")))
	return d
}

// container makes what docker makes: a namespace with eth0, a connected route and a default one, and the other end in the bridge.
func (d *docker) container(path, addr string) *netlab.Namespace {
	d.t.Helper()
	d.number++
	n := must(netlab.New(path))(d.t)
	mac := net.HardwareAddr{0x02, 0x42, 10, 0, 1, byte(d.number)}
	outer := "veth" + string(rune('a'+d.number))
	d.check(netlab.Veth(netlab.End{NS: d.host, Name: outer}, netlab.End{NS: n, Name: "eth0", MAC: mac}))
	d.check(netlab.AddAddr(n, "eth0", netip.MustParsePrefix(addr+"/24")))
	d.check(netlab.AddRoute(n, netlab.Route{Via: gatewayA, Link: "eth0"}))
	h := must(d.host.Netlink())(d.t)
	defer h.Close()
	d.check(h.LinkSetMaster(must(h.LinkByName(outer))(d.t), must(h.LinkByName(bridgeName))(d.t)))
	return n
}

func (d *docker) adopt(name, path string) (vpc.Instance, error) {
	d.t.Helper()
	mac, addr, err := dataplane.Inspect(path, "eth0")
	d.check(err)
	return d.model.Adopt(d.now, vpc.AdoptInput{Link: "eth0", LaunchInput: vpc.LaunchInput{
		Name: name, Type: "m5.xlarge", Namespace: path, MAC: mac, PrivateIP: addr,
	}})
}

// picture prints links, bridge ports, addresses and routes of a namespace. Indexes may change, and neighbours come and go.
func picture(t *testing.T, n *netlab.Namespace) []string {
	t.Helper()
	lines := slices.DeleteFunc(dump(t, n), func(line string) bool { return strings.HasPrefix(line, "neigh") })
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "|running") // the kernel takes note of a carrier in its own time
	}
	h := must(n.Netlink())(t)
	defer h.Close()
	names := map[int]string{}
	links := must(h.LinkList())(t)
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	for _, link := range links {
		if a := link.Attrs(); a.MasterIndex != 0 {
			lines = append(lines, "port "+a.Name+" of "+names[a.MasterIndex])
		}
	}
	for _, r := range must(h.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE))(t) {
		lines = append(lines, "main "+r.Scope.String()+" "+r.Protocol.String()+" "+r.Src.String())
	}
	return lines
}

func TestContainersAreAdoptedAndGivenBack(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	d := newDocker(l)
	l.replacePlane(dataplane.Options{Host: d.host.Path()})
	one, two := l.dir+"/one", l.dir+"/two"
	first, second := d.container(one, "10.0.1.20"), d.container(two, "10.0.1.21")
	left := d.container(l.dir+"/left", "10.0.1.22") // stays docker's alone
	t.Cleanup(func() { l.check(first.Close()); l.check(second.Close()); l.check(left.Close()) })
	before := [][]string{picture(t, d.host), picture(t, first), picture(t, second)}
	addr1, addr2 := netip.MustParseAddr("10.0.1.20"), netip.MustParseAddr("10.0.1.21")
	l.answers(echo{from: first, dst: addr2}) // by the bridge: this neighbour must not stay known

	i1 := must(d.adopt("one", one))(t)
	i2 := must(d.adopt("two", two))(t)
	l.sync()
	primary := l.model.InstanceENIs(i1.ID)[0]
	if primary.MAC != "02:42:0a:00:01:01" || primary.Primary != addr1 || primary.SubnetID != l.a.SubnetID {
		t.Errorf("the primary ENI is %+v", primary)
	}
	l.check(first.SetSysctl("net.ipv4.ip_default_ttl", "7"))
	if ttl := l.answers(echo{from: second, dst: addr1, size: 8900}); ttl != 7 {
		t.Errorf("an answer sent with TTL 7 arrives with %d: not by the fabric", ttl)
	}
	l.answers(echo{from: first, dst: addr2})
	l.answers(echo{from: first, dst: addrB})
	l.answers(echo{from: l.ns("node-b"), dst: addr1})
	l.answers(echo{from: first, dst: serviceAddr})
	l.answers(echo{from: first, dst: netip.MustParseAddr("169.254.169.254")})
	// The fabric's laws hold, and there is no way around it.
	l.dropped(echo{from: first, dst: outsideAddr}, dataplane.DropNoPublic)
	l.dropped(echo{from: first, dst: netip.MustParseAddr("10.0.1.22")}, dataplane.DropNoAddress)
	foreign := netip.MustParseAddr("10.0.1.99")
	l.check(netlab.AddAddr(second, "lo", netip.PrefixFrom(foreign, 32)))
	l.dropped(echo{from: second, src: foreign, dst: addr1}, dataplane.DropSource)
	h := must(second.Netlink())(t)
	defer h.Close()
	l.check(h.AddrDel(must(h.LinkByName("lo"))(t), &netlink.Addr{IPNet: ipNetOf(foreign)}))
	l.join(i2, l.group("shut", nil))
	l.dropped(echo{from: l.ns("node-b"), dst: addr2}, dataplane.DropIngress)
	if diff := cmp.Diff([]string{"10.0.1.1"}, l.learned(first)); diff != "" {
		t.Errorf("the first container has learned (-want +got), its gateway alone:\n%s", diff)
	}

	// An ENI more is hot-plugged beside the adopted link.
	e := l.attach(i1, 1)
	if links := l.links(first); len(links) != 2 || !strings.HasPrefix(links[1], "eth1 "+e.MAC+" down") {
		t.Errorf("links of the container are %q", links)
	}
	l.check(first.SetSysctl("net.ipv4.ip_default_ttl", "64"))
	l.check(l.model.TerminateInstance(l.now, i1.ID))
	l.check(l.model.TerminateInstance(l.now, i2.ID))
	l.advance(10 * time.Second)
	for n, ns := range []*netlab.Namespace{d.host, first, second} {
		if diff := cmp.Diff(before[n], picture(t, ns)); diff != "" {
			t.Errorf("namespace %d after it all (-as found +as left):\n%s", n, diff)
		}
	}
	l.answers(echo{from: first, dst: addr2}) // by the bridge again
	if left, _ := os.ReadDir(l.dir + "/adopted"); len(left) != 0 {
		t.Errorf("notes are left: %v", left)
	}
}

// replacePlane gives the lab a plane with other options.
func (l *lab) replacePlane(options dataplane.Options) {
	l.t.Helper()
	l.check(l.plane.Close())
	options.Dir = l.dir
	l.plane = dataplane.New(l.model, options)
	l.t.Cleanup(func() { l.check(l.plane.Close()) }) // before the docker's namespace ends
	l.sync()
}

func TestRestartedContainerIsAdoptedAgain(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	d := newDocker(l)
	l.replacePlane(dataplane.Options{Host: d.host.Path()})
	addr := netip.MustParseAddr("10.0.1.20")
	// A stable path, as a bind mount has, and another one, as /proc/<pid> is.
	for restart, path := range []string{l.dir + "/c1", l.dir + "/c1", l.dir + "/c2"} {
		n := d.container(path, "10.0.1.20")
		i := must(d.adopt("worker", path))(t)
		l.sync()
		if restart == 0 {
			l.attach(i, 1)
		}
		if links := l.links(n); len(links) != 2 || !strings.HasPrefix(links[1], "eth1 ") {
			t.Errorf("start %d: links are %q, want the adopted one and the second ENI's", restart, links)
		}
		l.answers(echo{from: n, dst: addrB})
		l.answers(echo{from: l.ns("node-b"), dst: addr})
		if enis := l.model.InstanceENIs(i.ID); len(enis) != 2 || enis[0].MAC[15:] != string(rune('0'))+string(rune('1'+restart)) {
			t.Errorf("start %d: ENIs are %+v", restart, enis)
		}
		l.check(n.Close()) // the container ends, without a word
	}
	if _, err := d.model.Adopt(l.now, vpc.AdoptInput{Link: "eth0", LaunchInput: vpc.LaunchInput{
		Name: "worker", Namespace: "/x", MAC: "02:00:00:00:00:01", PrivateIP: netip.MustParseAddr("10.0.1.30"),
	}}); err == nil {
		t.Error("adopted again with another address")
	}
	if _, err := d.model.Adopt(l.now, vpc.AdoptInput{Link: "eth0", LaunchInput: vpc.LaunchInput{
		Name: "node-b", Namespace: "/x", MAC: "02:00:00:00:00:01", PrivateIP: addrB,
	}}); err == nil {
		t.Error("adopted a node that was not")
	}
}

// A program that was killed leaves its fabric with the containers' links in it: the next one gives them back.
func TestLinksOfAKilledPlaneAreGivenBack(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	d := newDocker(l)
	l.replacePlane(dataplane.Options{Host: d.host.Path()})
	one, two := l.dir+"/one", l.dir+"/two"
	first, second := d.container(one, "10.0.1.20"), d.container(two, "10.0.1.21")
	t.Cleanup(func() { l.check(first.Close()) })
	before := picture(t, first)
	must(d.adopt("one", one))(t)
	must(d.adopt("two", two))(t)
	l.sync()
	l.check(second.Close()) // this one does not live to see it
	l.check(dataplane.GiveBack(l.dir))
	if diff := cmp.Diff(before, picture(t, first)); diff != "" {
		t.Errorf("the container (-as found +as left):\n%s", diff)
	}
	host := picture(t, d.host)
	if !slices.Contains(host, "port vethb of br-kind") {
		t.Errorf("the bridge's ports are %q, want vethb among them", host)
	}
	if left, _ := os.ReadDir(l.dir + "/adopted"); len(left) != 0 {
		t.Errorf("notes are left: %v", left)
	}
	l.check(dataplane.GiveBack(l.dir)) // nothing to do is no error
}
