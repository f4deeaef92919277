package dataplane_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// dump prints what the kernel holds in a namespace, one fact a line, sorted. Link indexes differ between equal worlds, so
// links are named.
func dump(t *testing.T, n *netlab.Namespace) []string {
	t.Helper()
	h := must(n.Netlink())(t)
	defer h.Close()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	names := map[int]string{}
	for _, link := range must(h.LinkList())(t) {
		a := link.Attrs()
		names[a.Index] = a.Name
		add("link %s %s mtu %d %v", a.Name, a.HardwareAddr, a.MTU, a.Flags)
		for _, addr := range must(h.AddrList(link, unix.AF_INET))(t) {
			add("addr %s %s", a.Name, addr.IPNet)
		}
	}
	for _, r := range must(h.RouteListFiltered(unix.AF_INET, &netlink.Route{}, netlink.RT_FILTER_TABLE))(t) {
		add("route %s via %s dev %s", r.Dst, r.Gw, names[r.LinkIndex])
	}
	for _, e := range must(h.NeighList(0, unix.AF_INET))(t) {
		if e.State&netlink.NUD_PERMANENT != 0 {
			add("neigh %s %s %s", names[e.LinkIndex], e.IP, e.HardwareAddr)
		}
	}
	conn := must(nftables.New(nftables.WithNetNSFd(n.FD())))(t)
	for _, table := range must(conn.ListTables())(t) {
		for _, set := range must(conn.GetSets(table))(t) {
			for _, e := range must(conn.GetSetElements(set))(t) {
				add("element %s %q %q %v", set.Name, e.Key, e.Val, e.IntervalEnd)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// step makes one random request, legal or not, and lets some time pass.
func (l *lab) step(r *rand.Rand) {
	enis, instances := l.model.ENIs(), []vpc.Instance{l.a, l.b}
	e, i := enis[r.IntN(len(enis))], instances[r.IntN(2)]
	var err error
	switch r.IntN(12) {
	case 0:
		_, err = l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: i.SubnetID, SecondaryCount: r.IntN(4)})
	case 1:
		_, err = l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: e.ID, Device: 1 + r.IntN(3)})
	case 2:
		if e.Attachment != nil {
			err = l.model.DetachNetworkInterface(l.now, vpc.DetachNetworkInterfaceInput{AttachmentID: e.Attachment.ID, Force: true})
		}
	case 3:
		err = l.model.DeleteNetworkInterface(l.now, e.ID)
	case 4:
		on := r.IntN(2) == 0
		err = l.model.ModifyNetworkInterfaceAttribute(l.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: e.ID, SourceDestCheck: &on})
	case 5:
		if len(e.Secondary) > 0 {
			err = l.model.UnassignPrivateIpAddresses(l.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: e.Secondary[:1+r.IntN(len(e.Secondary))]})
		}
	case 6:
		from := enis[r.IntN(len(enis))]
		if len(from.Secondary) > 0 && from.SubnetID == e.SubnetID {
			_, err = l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: from.Secondary[:1], AllowReassignment: true})
		}
	case 7:
		_, err = l.model.AssignPrivate(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 1 + r.IntN(2)})
	case 8:
		if len(e.Prefixes) > 0 {
			err = l.model.UnassignPrivateIpAddresses(l.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Prefixes: e.Prefixes[:1]})
		}
	case 9:
		_, err = l.model.AssignIpv6Addresses(l.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, PrefixCount: r.IntN(2), Count: r.IntN(2)})
	case 10:
		if len(e.IPv6)+len(e.IPv6Prefixes) > 0 {
			_, err = l.model.UnassignIpv6Addresses(l.now, vpc.UnassignIpv6AddressesInput{NetworkInterfaceID: e.ID, Addresses: e.IPv6, Prefixes: e.IPv6Prefixes})
		}
	default:
		_, err = l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1 + r.IntN(5)})
	}
	if _, refused := errors.AsType[*vpc.Error](err); err != nil && !refused {
		l.t.Fatal(err)
	}
	l.now = l.now.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
	l.model.Advance(l.now)
}

// However a world came about, the kernel holds the same as if it had been built at once.
func TestAnyPathEndsInTheSameKernelState(t *testing.T) {
	for seed := range uint64(4) {
		l := newLab(t, dataplane.Options{})
		r := rand.New(rand.NewPCG(seed, 0))
		for range 60 {
			l.step(r)
			if r.IntN(3) > 0 { // sometimes several changes come at once
				l.sync()
			}
		}
		l.sync()
		fresh := &lab{t: t, dir: t.TempDir(), model: l.model}
		plane := dataplane.New(l.model, dataplane.Options{Dir: fresh.dir})
		l.check(plane.Sync())
		for _, name := range []string{"fabric-" + l.a.VPCID, "node-a", "node-b", "internet"} {
			if diff := cmp.Diff(dump(t, fresh.ns(name)), dump(t, l.ns(name))); diff != "" {
				t.Errorf("seed %d, %s (-built at once +by steps):\n%s", seed, name, diff)
			}
		}
		l.check(plane.Close())
	}
}

func TestRefusalOfTheKernelIsTriedAgain(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a := l.ns("node-a")
	own := must(netlab.Current())(t)
	defer own.Close()
	// Somebody else's link has the name that the new one needs.
	l.check(netlab.Veth(netlab.End{NS: own, Name: "squat"}, netlab.End{NS: a, Name: "eth1"}))
	e := must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: l.a.SubnetID}))(t)
	must(l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: l.a.ID, NetworkInterfaceID: e.ID, Device: 1}))(t)
	l.model.Advance(l.now.Add(time.Minute))
	for range 2 {
		if err := l.plane.Sync(); !errors.Is(err, syscall.EEXIST) {
			t.Fatalf("Sync beside a foreign eth1: %v, want file exists", err)
		}
	}
	l.answers(echo{from: a, dst: addrB}) // the rest stands
	l.check(netlab.DelLink(own, "squat"))
	l.sync()
	want := fmt.Sprintf("eth1 %s down mtu 9001", e.MAC)
	if links := l.links(a); len(links) != 2 || links[1] != want {
		t.Errorf("links are %q, want %q as the second", links, want)
	}
}
