package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
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
	w.flows = vpc.NewFlows(l.model)
	return w
}

// silent keeps a guest's kernel from answering what it gets.
func silent(t *testing.T, n *netlab.Namespace) {
	t.Helper()
	conn := must(nftables.New(nftables.WithNetNSFd(n.FD())))(t)
	table := conn.AddTable(&nftables.Table{Name: "silent", Family: nftables.TableFamilyIPv4})
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
	all := e.Addresses()
	for _, p := range e.Prefixes {
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
	s.to, s.mac, s.packet.From = outer.Attrs().HardwareAddr, inner.Attrs().HardwareAddr, name
	w.senders[vpcID+"/"+name] = s
	w.ends[vpcID+"/"+port] = name
}

// pick draws from a map's values in a fixed order.
func pick[T any](r *rand.Rand, m map[string]T) T {
	return m[sortedKeys(m)[r.IntN(len(m))]]
}

// draw makes a random packet of a random sender: half of them answers to packets that were delivered.
func (w *wire) draw() (sender, vpc.Packet) {
	if n := len(w.history); n > 0 && w.r.IntN(3) == 0 {
		old := w.history[w.r.IntN(n)]
		for _, key := range sortedKeys(w.senders) {
			if s := w.senders[key]; contains(s.holds, old.Dst) || s.packet.From == old.From {
				p := s.packet
				p.Protocol, p.ID, p.Src, p.Dst, p.SrcPort, p.DstPort = old.Protocol, old.ID, old.Dst, old.Src, old.DstPort, old.SrcPort
				if p.Protocol == vpc.ProtoICMP {
					p.SrcPort, p.DstPort = 8-old.SrcPort, 0
				}
				return s, p
			}
		}
	}
	s := pick(w.r, w.senders)
	p := s.packet
	p.Src, p.Dst = s.holds[w.r.IntN(len(s.holds))], w.target()
	for !w.near(p) && w.r.IntN(5) > 0 { // most destinations beyond one's own VPC have one and the same end
		p.Dst = w.target()
	}
	if w.r.IntN(8) == 0 {
		p.Src = pick(w.r, w.senders).holds[0]
	}
	ports := []int{80, 81, 443, 5000}
	switch w.r.IntN(5) {
	case 0, 1:
		p.Protocol, p.SrcPort, p.DstPort = vpc.ProtoTCP, ports[w.r.IntN(4)], ports[w.r.IntN(4)]
	case 2:
		p.Protocol, p.SrcPort, p.DstPort = vpc.ProtoUDP, ports[w.r.IntN(4)], ports[w.r.IntN(4)]
	case 3:
		p.Protocol = 50 // ESP: one of those without ports
	default:
		p.Protocol, p.SrcPort, p.ID = vpc.ProtoICMP, 8*w.r.IntN(2), 1+w.r.IntN(3)
	}
	if w.own(p.Dst) { // only an echo is answered, which is how its arrival is seen
		p.Protocol, p.SrcPort, p.DstPort, p.ID = vpc.ProtoICMP, 8, 0, 1
	}
	switch w.r.IntN(25) {
	case 0:
		p.Broadcast = true
	case 1:
		p.MAC = "02:00:00:00:00:99"
	}
	return s, p
}

// near tells whether a packet stays where it can be delivered: in the sender's range, or from outside at a public address.
func (w *wire) near(p vpc.Packet) bool {
	if p.VPC != "" {
		return netip.MustParsePrefix("198.51.100.0/24").Contains(p.Dst)
	}
	return netip.PrefixFrom(p.Src, 15).Contains(p.Dst) // both of the peered VPCs
}

// target draws a destination: addresses that are held, some that are not, and the special ones.
func (w *wire) target() netip.Addr {
	if w.r.IntN(4) > 0 {
		s := pick(w.r, w.senders)
		return s.holds[w.r.IntN(len(s.holds))]
	}
	special := []string{
		"10.0.1.1", "10.0.2.1", "10.0.0.2", "169.254.169.254", "169.254.169.253", "169.254.169.123", "169.254.1.1", "10.0.1.77", "10.0.200.1",
		"10.0.1.255", "10.1.0.77", "10.1.0.1", "10.1.0.2", "10.2.0.10", "203.0.113.10", "203.0.113.99", "198.51.100.10", "198.51.100.99", "224.0.0.251",
		"255.255.255.255", "192.0.2.1",
	}
	return netip.MustParseAddr(special[w.r.IntN(len(special))])
}

// own tells whether an address may be one of the network's own.
func (w *wire) own(a netip.Addr) bool {
	if strings.HasPrefix(a.String(), "169.254.") {
		return true
	}
	for _, s := range w.model.Subnets() {
		if a == s.Gateway() {
			return true
		}
	}
	for _, n := range w.model.VPCs() {
		if a == n.Resolver() {
			return true
		}
	}
	return false
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
		if f.reply && f.src == p.Dst && f.dst == p.Src && p.SrcPort == 8 {
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

func say(v vpc.Verdict) string {
	switch {
	case v.Drop != "":
		return "dropped: " + v.Drop
	case v.To == vpc.ToGateway || v.To == vpc.ToMetadata || v.To == vpc.ToResolver || v.To == vpc.ToTime:
		return "own service answers"
	}
	return fmt.Sprintf("%s: %s -> %s", v.To, v.Src, v.Dst)
}

// shuffle changes groups and their rules, source checks, ENIs and addresses.
func (w *wire) shuffle() {
	w.t.Helper()
	for range 4 {
		w.step(w.r)
	}
	enis := w.model.ENIs()
	e := enis[w.r.IntN(len(enis))]
	var groups []string
	for _, g := range w.model.SecurityGroups() {
		if g.VPCID == e.VPCID && len(groups) < 5 && w.r.IntN(2) == 0 {
			groups = append(groups, g.ID)
		}
	}
	if len(groups) > 0 {
		w.check(w.model.ModifyNetworkInterfaceAttribute(w.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: e.ID, Groups: groups}))
	}
	w.sync()
	w.look()
}

// addGroups makes groups with rules of every kind in each VPC.
func (w *wire) addGroups() {
	w.t.Helper()
	var all []string
	for _, n := range w.model.VPCs() {
		all = append(all, n.DefaultGroup)
	}
	for _, n := range w.model.VPCs() {
		for k := range 4 {
			g := vpc.SecurityGroup{VPCID: n.ID, Name: fmt.Sprintf("g%d", k), Ingress: []vpc.Rule{}, Egress: []vpc.Rule{}}
			for range 1 + w.r.IntN(3) {
				g.Ingress = append(g.Ingress, w.rule(all))
				g.Egress = append(g.Egress, w.rule(all))
			}
			if w.r.IntN(2) == 0 {
				g.Egress = outAll
			}
			all = append(all, must(w.model.AddSecurityGroup(g))(w.t).ID)
		}
	}
}

func (w *wire) rule(groups []string) vpc.Rule {
	r := []vpc.Rule{
		{Protocol: vpc.Any}, {Protocol: "tcp", From: 80, To: 81}, {Protocol: "tcp", From: 0, To: 65535}, {Protocol: "udp", From: 443, To: 443},
		{Protocol: "icmp", From: -1, To: -1}, {Protocol: "icmp", From: 8, To: 0}, {Protocol: "50"},
	}[w.r.IntN(7)]
	if w.r.IntN(2) == 0 {
		r.Group = groups[w.r.IntN(len(groups))]
	} else {
		r.CIDR = netip.MustParsePrefix([]string{"0.0.0.0/0", "10.0.1.0/24", "10.0.0.0/15", "203.0.113.0/24"}[w.r.IntN(4)])
	}
	return r
}

// The kernel's data plane and the pure verdict are two writings of one law.
func TestKernelAndDeliverAgree(t *testing.T) {
	const seeds, rounds, packets = 3, 12, 120
	outcomes := map[string]int{}
	for seed := range uint64(seeds) {
		w := newWire(t, seed)
		w.addGroups()
		for round := range rounds {
			w.shuffle()
			for range packets {
				s, p := w.draw()
				if p.Src == p.Dst {
					continue // is its own answer
				}
				want := say(w.flows.Deliver(p))
				got := w.send(s, p)
				if got != want {
					t.Fatalf("seed %d, round %d: %+v\nkernel:  %s\nDeliver: %s", seed, round, p, got, want)
				}
				if reason, dropped := strings.CutPrefix(want, "dropped: "); dropped {
					outcomes[reason]++
				} else {
					outcomes["delivered"]++
					if !w.own(p.Dst) { // nobody answers in the network's name
						w.history = append(w.history, p)
					}
				}
			}
		}
	}
	t.Log(outcomes)
	for _, reason := range []string{
		"delivered", vpc.DropMulticast, vpc.DropNoAddress, vpc.DropSource, vpc.DropSourceMAC, vpc.DropEgress, vpc.DropIngress, vpc.DropNoPublic,
		vpc.DropNoOutside,
	} {
		if outcomes[reason] == 0 {
			t.Errorf("no packet was %s: the test tries too little", reason)
		}
	}
}
