package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

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
				switch p.Protocol {
				case vpc.ProtoICMP:
					p.SrcPort, p.DstPort = 8-old.SrcPort, 0
				case vpc.ProtoICMPv6:
					p.SrcPort, p.DstPort = 128+129-old.SrcPort, 0
				}
				return s, p
			}
		}
	}
	s := pick(w.r, w.senders)
	p := s.packet
	p.Src, p.Dst = s.holds[w.r.IntN(len(s.holds))], w.target()
	for p.Dst.Is4() != p.Src.Is4() || !w.near(p) && w.r.IntN(5) > 0 { // most destinations beyond one's own VPC have one and the same end
		p.Dst = w.target()
	}
	if w.r.IntN(8) == 0 {
		others := pick(w.r, w.senders).holds
		if other := others[w.r.IntN(len(others))]; other.Is4() == p.Src.Is4() {
			p.Src = other
		}
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
	if p.Src.Is6() && p.Protocol == vpc.ProtoICMP {
		p.Protocol, p.SrcPort = vpc.ProtoICMPv6, 129-p.SrcPort/8
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
	if p.Src.Is6() {
		return netip.MustParsePrefix("2600::/16").Contains(p.Dst)
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
		"255.255.255.255", "192.0.2.1", "fe80:ec2::1", "fd00:ec2::254", "fd00:ec2::99", "2600:1f14:1:2301::77", "2600:1f14:1:2377::1", "ff05::1",
		"2001:db8::1", "fe80::99",
	}
	return netip.MustParseAddr(special[w.r.IntN(len(special))])
}

// own tells whether an address may be one of the network's own.
func (w *wire) own(a netip.Addr) bool {
	if strings.HasPrefix(a.String(), "169.254.") || strings.HasPrefix(a.String(), "f") {
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
		{Protocol: "icmp", From: -1, To: -1}, {Protocol: "icmp", From: 8, To: 0}, {Protocol: "50"}, {Protocol: "icmpv6", From: -1, To: -1}, {Protocol: "icmpv6", From: 128, To: 0},
	}[w.r.IntN(9)]
	if w.r.IntN(2) == 0 {
		r.Group = groups[w.r.IntN(len(groups))]
	} else {
		r.CIDR = netip.MustParsePrefix([]string{"0.0.0.0/0", "10.0.1.0/24", "10.0.0.0/15", "203.0.113.0/24", "::/0", "2600:1f14:1:2301::/64"}[w.r.IntN(6)])
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
					if p.Src.Is6() {
						outcomes["delivered by IPv6"]++
					}
					if !w.own(p.Dst) { // nobody answers in the network's name
						w.history = append(w.history, p)
					}
				}
			}
		}
	}
	t.Log(outcomes)
	for _, reason := range []string{
		"delivered", "delivered by IPv6", vpc.DropMulticast, vpc.DropNoAddress, vpc.DropSource, vpc.DropSourceMAC, vpc.DropEgress, vpc.DropIngress, vpc.DropNoPublic,
		vpc.DropNoOutside,
	} {
		if outcomes[reason] == 0 {
			t.Errorf("no packet was %s: the test tries too little", reason)
		}
	}
}
