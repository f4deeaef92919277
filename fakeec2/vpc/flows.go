package vpc

import (
	"net/netip"
	"slices"
	"strconv"
)

// Flows is the connection tracking of all VPCs of a model: a pure twin of what the data plane's kernel keeps.
type Flows struct {
	model *VPC
	seen  map[tuple]*flow
}

// NewFlows begins to track: nothing has been seen yet.
func NewFlows(model *VPC) *Flows { return &Flows{model: model, seen: map[tuple]*flow{}} }

// tuple is one direction of a flow in one VPC, behind the internet gateway's translation.
type tuple struct {
	vpc                  string
	protocol             int
	src, dst             netip.Addr
	srcPort, dstPort, id int
}

// flow is a flow by its first direction.
type flow struct {
	from, to string // endpoints
	replied  bool
}

// hop is a packet's way through one VPC.
type hop struct {
	vpc      string
	from, to endpoint
}

// ICMP types of an echo. Source: RFC 792, RFC 4443.
const (
	icmpEchoReply  = 0
	icmpEcho       = 8
	icmp6Echo      = 128 // RFC 4443
	icmp6EchoReply = 129
)

// track names a packet's direction and the opposite one; ok is false for packets that cannot begin a flow.
func (h hop) track(p Packet) (there, back tuple, ok bool) {
	there = tuple{vpc: h.vpc, protocol: p.Protocol, src: p.Src, dst: p.Dst}
	ok = true
	switch p.Protocol {
	case ProtoTCP, ProtoUDP:
		there.srcPort, there.dstPort = p.SrcPort, p.DstPort
	case ProtoICMP:
		// Both directions of an echo are one kind of tuple; what is neither can begin nothing.
		there.srcPort, there.id = p.SrcPort, p.ID
		ok = p.SrcPort == icmpEcho
	case ProtoICMPv6:
		there.srcPort, there.id = p.SrcPort, p.ID
		ok = p.SrcPort == icmp6Echo
	}
	back = there
	back.src, back.dst = there.dst, there.src
	back.srcPort, back.dstPort = there.dstPort, there.srcPort
	switch p.Protocol {
	case ProtoICMP:
		back.srcPort, back.dstPort = icmpEcho+icmpEchoReply-there.srcPort, 0
	case ProtoICMPv6:
		back.srcPort, back.dstPort = icmp6Echo+icmp6EchoReply-there.srcPort, 0
	}
	return there, back, ok
}

// pass applies the security groups at both ends of a hop. Each ENI tracks for itself: a packet of a known flow that shows up
// at another ENI than before is new there.
func (f *Flows) pass(h hop, p Packet) Verdict {
	there, back, canBegin := h.track(p)
	known, established := f.seen[there], false
	var from, to string
	if known != nil {
		from, to, established = known.from, known.to, known.replied
	} else if known = f.seen[back]; known != nil {
		known.replied = true
		from, to, established = known.to, known.from, true
	}
	if !established || from != h.from.name || to != h.to.name {
		if h.from.eni && !f.model.allowed(h.vpc, h.from.groups, true, p) {
			return Verdict{Drop: DropEgress}
		}
		if h.to.eni && !f.model.allowed(h.vpc, h.to.groups, false, p) {
			return Verdict{Drop: DropIngress}
		}
	}
	if known == nil && canBegin {
		f.seen[there] = &flow{from: h.from.name, to: h.to.name}
	}
	return Verdict{To: h.to.name, VLAN: h.to.vlan, Src: p.Src, Dst: p.Dst}
}

// allowed tells whether a rule of one of the groups of an ENI in a VPC lets a packet pass.
func (v *VPC) allowed(network string, groups []string, egress bool, p Packet) bool {
	for _, id := range groups {
		rules, other := v.groups[id].Ingress, p.Src
		if egress {
			rules, other = v.groups[id].Egress, p.Dst
		}
		if slices.ContainsFunc(rules, func(r Rule) bool {
			if r.Group == "" {
				return r.matches(p) && r.CIDR.Contains(other)
			}
			return r.matches(p) && v.mayName(network, r.Group) && v.isMember(r.Group, other)
		}) {
			return true
		}
	}
	return false
}

// Protocol numbers that rules know ports or types of. Source: IANA.
const (
	ProtoICMP = 1
	ProtoTCP  = 6
	ProtoUDP  = 17

	ProtoICMPv6 = 58
)

// Number is the rule's protocol as IANA numbers it, -1 for all.
func (r Rule) Number() int {
	switch r.Protocol {
	case "icmp":
		return ProtoICMP
	case "tcp":
		return ProtoTCP
	case "udp":
		return ProtoUDP
	case "icmpv6":
		return ProtoICMPv6
	}
	n, err := strconv.Atoi(r.Protocol)
	if err != nil {
		return noProtocol // the model takes no such rule
	}
	return n
}

const (
	allProtocols = -1
	noProtocol   = -2
)

// matches tells whether a rule is about a packet's protocol and ports.
func (r Rule) matches(p Packet) bool {
	number := r.Number()
	if number != allProtocols && number != p.Protocol {
		return false
	}
	switch number {
	case ProtoTCP, ProtoUDP:
		if p.DstPort < r.From || p.DstPort > r.To {
			return false
		}
	case ProtoICMP, ProtoICMPv6: // type and code lie where ports do; -1 is all
		if r.From >= 0 && p.SrcPort != r.From || r.To >= 0 && p.DstPort != r.To {
			return false
		}
	}
	return true
}

// mayName tells whether a group of another VPC means anything in a VPC: only across a peering in one region.
func (v *VPC) mayName(network, group string) bool {
	g := v.groups[group]
	if g == nil || g.VPCID == network {
		return g != nil
	}
	for _, p := range v.peerings {
		if p.other(network) == g.VPCID && !p.CrossRegion {
			return true
		}
	}
	return false
}

// isMember tells whether an address is a private address of a member of a group: an ENI, attached or not, or a service.
func (v *VPC) isMember(group string, addr netip.Addr) bool {
	g := v.groups[group]
	if g == nil {
		return false
	}
	for _, s := range v.subnets {
		if s.VPCID != g.VPCID || !s.CIDR.Contains(addr) && !s.IPv6CIDR.Contains(addr) {
			continue
		}
		owner := s.owner(addr)
		if e := v.enis[owner]; e != nil {
			return slices.Contains(e.Groups, group)
		}
		for _, x := range v.services {
			if owner == serviceOwner(x.Name) {
				return len(x.Groups) == 0 || slices.Contains(x.Groups, group)
			}
		}
	}
	return false
}
