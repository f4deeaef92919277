package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// wire is the lab with sockets at both ends of all links: packets are put on the guests' links and seen in the fabrics.
type wire struct {
	*lab
	r        *rand.Rand
	flows    *vpc.Flows
	guests   map[string]*netlab.Namespace // by name
	sockets  map[string]int               // of guests, for sending
	fabrics  map[string]int               // sockets of fabrics, by VPC
	tag      int
	history  []vpc.Packet      // packets that were delivered, for answers
	senders  map[string]sender // of this round
	ends     map[string]string // "<VPC>/<fabric's link>" -> who is there
	counters map[string]uint64
}

// sender is a link of a guest.
type sender struct {
	guest, link string
	mac, to     net.HardwareAddr // its own, and the fabric's
	packet      vpc.Packet       // with what all its packets have
	holds       []netip.Addr
}

const tagLength = 16

func newWire(t *testing.T, seed uint64) *wire {
	t.Helper()
	l := newLab(t, dataplane.Options{})
	w := &wire{lab: l, r: rand.New(rand.NewPCG(seed, 0)), guests: map[string]*netlab.Namespace{}, sockets: map[string]int{}, fabrics: map[string]int{}}
	c := l.addVPC("10.1.0.0/16", "node-c", netip.MustParseAddr("10.1.0.10"))
	l.addVPC("10.2.0.0/16", "node-d", netip.MustParseAddr("10.2.0.10")) // a stranger
	must(l.model.AddPeering(vpc.Peering{A: l.a.VPCID, B: c.VPCID}))(t)
	l.sync()
	for name, path := range l.plane.Namespaces() {
		n := must(netlab.Open(path))(t)
		t.Cleanup(func() { n.Close() })
		w.guests[name] = n
		silent(t, n)
		w.sockets[name] = l.packetSocket(n, unix.ETH_P_IP)
	}
	for _, n := range l.model.VPCs() {
		w.fabrics[n.ID] = l.packetSocket(l.ns("fabric-"+n.ID), unix.ETH_P_ALL)
	}
	for _, e := range l.model.ENIs() {
		must(l.model.AssignIpv6Addresses(l.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, Count: 2}))(t)
		must(l.model.AssignIpv6Addresses(l.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 1}))(t)
	}
	w.flows = vpc.NewFlows(l.model)
	return w
}

// silent keeps a guest's kernel from answering what it gets.
func silent(t *testing.T, n *netlab.Namespace) {
	t.Helper()
	conn := must(nftables.New(nftables.WithNetNSFd(n.FD())))(t)
	table := conn.AddTable(&nftables.Table{Name: "silent", Family: nftables.TableFamilyINet})
	drop := nftables.ChainPolicyDrop
	for name, hook := range map[string]*nftables.ChainHook{"in": nftables.ChainHookPrerouting, "out": nftables.ChainHookOutput} {
		conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRaw, Policy: &drop})
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// look reads anew who sends and who is where.
func (w *wire) look() {
	w.t.Helper()
	w.senders, w.ends = map[string]sender{}, map[string]string{}
	names := map[string]string{}
	for _, i := range w.model.Instances() {
		names[i.ID] = i.Name
	}
	subnets := map[string]vpc.Subnet{}
	for _, s := range w.model.Subnets() {
		subnets[s.ID] = s
	}
	for _, e := range w.model.ENIs() {
		if e.Attachment == nil || !e.Attachment.Link {
			continue
		}
		link := fmt.Sprintf("eth%d", e.Attachment.Device)
		w.add(e.VPCID, "p"+e.ID[len(e.ID)-13:], e.ID, sender{guest: names[e.Attachment.InstanceID], link: link, holds: heldBy(e)})
	}
	for _, s := range w.model.Services() {
		w.add(subnets[s.SubnetID].VPCID, "svc-"+s.Name, s.Name, sender{guest: s.Name, link: "eth0", holds: []netip.Addr{s.Addr}})
	}
	for _, o := range w.model.Outsides() {
		for i, n := range w.model.VPCs() {
			s := sender{guest: o.Name, link: fmt.Sprintf("eth%d", i), holds: []netip.Addr{o.Addr}}
			s.packet.VPC = n.ID
			w.add(n.ID, "out-"+o.Name, o.Name, s)
		}
	}
	w.counters = must(w.plane.Counters())(w.t)
}

// heldBy gives addresses of an ENI: all single ones, and two of each prefix.
func heldBy(e vpc.ENI) []netip.Addr {
	all := slices.Concat(e.Addresses(), e.IPv6)
	for _, p := range slices.Concat(e.Prefixes, e.IPv6Prefixes) {
		all = append(all, p.Addr(), p.Addr().Next())
	}
	return all
}

func (w *wire) add(vpcID, port, name string, s sender) {
	w.t.Helper()
	guest := must(w.guests[s.guest].Netlink())(w.t)
	defer guest.Close()
	inner := must(guest.LinkByName(s.link))(w.t)
	w.check(guest.LinkSetUp(inner))
	n := must(netlab.Open(w.dir + "/netns/fabric-" + vpcID))(w.t)
	defer n.Close()
	fabric := must(n.Netlink())(w.t)
	defer fabric.Close()
	outer := must(fabric.LinkByName(port))(w.t)
	for deadline := time.Now().Add(patience); outer.Attrs().OperState != netlink.OperUp && time.Now().Before(deadline); {
		outer = must(fabric.LinkByName(port))(w.t) // the kernel takes note of a carrier in its own time, and drops until then
	}
	if slices.ContainsFunc(s.holds, netip.Addr.Is6) { // and so it does with the router's address
		router := &netlink.Route{LinkIndex: outer.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Dst: ipNetOf(vpc.RouterAddr6)}
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if len(must(fabric.RouteListFiltered(unix.AF_INET6, router, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST))(w.t)) > 0 {
				break
			}
		}
	}
	s.to, s.mac, s.packet.From = outer.Attrs().HardwareAddr, inner.Attrs().HardwareAddr, name
	w.senders[vpcID+"/"+name] = s
	w.ends[vpcID+"/"+port] = name
}

// send puts a packet on its sender's link and says what the kernel did with it, in the same words as say.
func (w *wire) send(s sender, p vpc.Packet) string {
	w.t.Helper()
	w.tag++
	tag := fmt.Sprintf("%0*d", tagLength, w.tag)
	from, to := s.mac, s.to
	if p.MAC != "" {
		from = must(net.ParseMAC(p.MAC))(w.t)
	}
	if p.Broadcast {
		to = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	}
	var index int
	w.check(w.guests[s.guest].Do(func() error {
		link, err := net.InterfaceByName(s.link)
		if err == nil {
			index = link.Index
		}
		return err
	}))
	w.check(unix.Sendto(w.sockets[s.guest], frame(p, from, to, []byte(tag)), 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6}))
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, id := range sortedKeys(w.fabrics) {
			if seen := w.seen(id, tag, p); seen != "" {
				return seen
			}
		}
		now := must(w.plane.Counters())(w.t)
		for _, reason := range sortedKeys(now) {
			if now[reason] > w.counters[reason] {
				w.counters = now
				return "dropped: " + reason
			}
		}
	}
	return "lost without a reason"
}

// seen reads what a fabric has sent and tells where a packet went.
func (w *wire) seen(id, tag string, p vpc.Packet) string {
	buffer := make([]byte, 2048)
	for {
		n, where, err := unix.Recvfrom(w.fabrics[id], buffer, unix.MSG_DONTWAIT)
		if err != nil {
			return ""
		}
		link, ok := where.(*unix.SockaddrLinklayer)
		f, isIP := readFrame(buffer[:n], tagLength)
		if !ok || link.Pkttype != unix.PACKET_OUTGOING || !isIP || f.payload != tag {
			continue
		}
		name := w.linkName(id, link.Ifindex)
		if strings.HasPrefix(name, "pcx-") {
			continue // half way
		}
		if f.reply && f.src == p.Dst && f.dst == p.Src && (p.SrcPort == 8 || p.SrcPort == 128) {
			return "own service answers"
		}
		return fmt.Sprintf("%s: %s -> %s", w.ends[id+"/"+name], f.src, f.dst)
	}
}

func (w *wire) linkName(id string, index int) string {
	w.t.Helper()
	var name string
	fabric := must(netlab.Open(w.dir + "/netns/fabric-" + id))(w.t)
	defer fabric.Close()
	w.check(fabric.Do(func() error {
		link, err := net.InterfaceByIndex(index)
		if err == nil {
			name = link.Name
		}
		return err
	}))
	return name
}
