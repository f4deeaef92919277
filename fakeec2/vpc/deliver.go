package vpc

import (
	"net/netip"
	"slices"
)

// Reasons for a drop: the laws of a VPC's network that can stop a packet. Source: VPC user guide.
const (
	DropMulticast  = "multicast"               // broadcast or multicast: a VPC carries unicast only
	DropNoAddress  = "no-such-address"         // in the VPC's range, but no ENI holds it; also another subnet's gateway
	DropSource     = "source-check"            // the source is not an address of the ENI, or a VPC's source from outside
	DropSourceMAC  = "source-mac"              // the frame's source is not the ENI's MAC
	DropEgress     = "sg-egress"               // no rule of the sender's security groups lets it out
	DropIngress    = "sg-ingress"              // no rule of the receiver's security groups lets it in
	DropTransit    = "peering-not-transitive"  // it came through a peering and would go on to somewhere else
	DropNoPublic   = "igw-no-public-address"   // toward or from the internet without a public association, or in a VPC without a way there
	DropNoOutside  = "igw-unknown-destination" // nobody is there: outside hosts are those of the model
	DropAllowance  = "linklocal-allowance"     // more than 1,024 packets a second from one ENI to the services beside it
	DropVLAN       = "vlan"                    // a tag that no branch of the trunk has, or a tag on an ENI that is no trunk
	DropNoSuchLink = "no-such-link"            // the sender has no link: only a model can be asked for this
)

// Own services of the network, as Verdict.To names them.
const (
	ToGateway  = "gateway"  // the subnet's router
	ToMetadata = "metadata" // 169.254.169.254
	ToResolver = "resolver" // 169.254.169.253, and the VPC's base + 2
	ToTime     = "time"     // 169.254.169.123
)

// Link-local services. Source: EC2 user guide.
var (
	MetadataAddr = netip.AddrFrom4([4]byte{169, 254, 169, 254})
	ResolverAddr = netip.AddrFrom4([4]byte{169, 254, 169, 253})
	TimeAddr     = netip.AddrFrom4([4]byte{169, 254, 169, 123})
	// Of IPv6 there are the metadata, and the router of every subnet.
	MetadataAddr6 = netip.MustParseAddr("fd00:ec2::254")
	RouterAddr6   = netip.MustParseAddr("fe80:ec2::1")

	// linkScope are ranges that never leave their link but for the services above, multicast those that are no unicast.
	linkScope = []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 0, 0}), 16), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::/32"),
	}
	multicast = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{224, 0, 0, 0}), 3), netip.MustParsePrefix("ff00::/8")}
)

// Packet is a packet as somebody sends it.
type Packet struct {
	From      string // id of the sending ENI, or name of the service or outside host
	VPC       string // of an outside host's packet: the VPC that it is sent to
	VLAN      int    // the frame's tag; 0 is none. On a trunk it says which branch sends
	MAC       string // the frame's source; "" is the sender's own
	Broadcast bool   // the frame is not for its gateway alone
	Src, Dst  netip.Addr
	Protocol  int
	// SrcPort and DstPort are ports; of ICMP they are type and code, and ID is an echo's identifier.
	SrcPort, DstPort, ID int
}

// Verdict says what becomes of a packet.
type Verdict struct {
	Drop     string // one of the reasons, or ""
	To       string // who gets it: id of an ENI, name of a service or outside host, or one of the network's own services
	VLAN     int    // the tag that it arrives with, on the link of the trunk whose branch gets it
	Src, Dst netip.Addr
}

// Resolver is the address of the VPC's own resolver: the primary range's base plus two.
func (n Network) Resolver() netip.Addr { return n.CIDRs[0].Masked().Addr().Next().Next() }

// Deliver says what the network does with a packet, and remembers the flow that it belongs to: security groups are stateful.
// It knows no time, so no flow ends.
func (f *Flows) Deliver(p Packet) Verdict {
	f.model.mu.Lock()
	defer f.model.mu.Unlock()
	v := f.model
	sender, drop := v.sender(p)
	if drop != "" {
		return Verdict{Drop: drop}
	}
	if sender.outside && !p.Broadcast {
		return f.fromOutside(p)
	}
	if drop := v.checkFrame(sender, p); drop != "" {
		return Verdict{Drop: drop}
	}
	n := v.networks[sender.vpc]
	if own := sender.own(n, p.Dst); own != "" {
		if !sender.holds(p.Src) {
			return Verdict{Drop: DropSource} // these answer addresses of the ENI only, whatever its check says
		}
		return Verdict{To: own, Src: p.Src, Dst: p.Dst}
	}
	if n.within(p.Dst) || contained(linkScope, p.Dst) {
		to, found := v.place(n.ID, p.Dst)
		if !found {
			return Verdict{Drop: DropNoAddress}
		}
		return f.pass(hop{vpc: n.ID, from: sender.endpoint, to: to}, p)
	}
	if x, found := v.peeringTo(n.ID, p.Dst); found {
		return f.throughPeering(x, hop{vpc: n.ID, from: sender.endpoint}, p)
	}
	return f.toOutside(n, sender.endpoint, p)
}

// endpoint is one end of a hop in a VPC.
type endpoint struct {
	name   string
	groups []string // of an ENI; nil: nothing is checked here
	eni    bool
	vlan   int // of a branch
}

func endOf(e *ENI) endpoint { return endpoint{name: e.ID, groups: e.Groups, eni: true, vlan: e.VLAN} }

// origin is who sends.
type origin struct {
	endpoint
	vpc       string
	outside   bool
	mac       string
	subnet    Subnet
	unchecked bool
	six       bool // has IPv6 addresses
	holds     func(netip.Addr) bool
}

// sender finds who sends a packet. Whatever has no link cannot.
func (v *VPC) sender(p Packet) (origin, string) {
	if e := v.enis[p.From]; e != nil {
		if e.TrunkID != "" || !v.linked(e) {
			return origin{}, DropNoSuchLink // a branch has no link of its own
		}
		if p.VLAN != 0 {
			if e = v.branch(e.ID, p.VLAN); e == nil {
				return origin{}, DropVLAN
			}
		}
		return origin{
			endpoint: endOf(e), vpc: e.VPCID, mac: e.MAC, subnet: v.subnets[e.SubnetID].Subnet,
			unchecked: !e.SourceDestCheck, six: len(e.IPv6)+len(e.IPv6Prefixes) > 0, holds: e.Holds,
		}, ""
	}
	if s, known := v.services[p.From]; known {
		sub := v.subnets[s.SubnetID].Subnet
		return origin{
			endpoint: endpoint{name: s.Name}, vpc: sub.VPCID, subnet: sub, holds: func(a netip.Addr) bool { return a == s.Addr },
		}, ""
	}
	if _, known := v.outsides[p.From]; known && v.networks[p.VPC] != nil {
		return origin{outside: true}, ""
	}
	return origin{}, DropNoSuchLink
}

// branch finds the branch of a trunk that has a VLAN id, or nil.
func (v *VPC) branch(trunk string, vlan int) *ENI {
	for _, a := range v.trunks {
		if a.TrunkID == trunk && a.VLAN == vlan {
			return v.enis[a.BranchID]
		}
	}
	return nil
}

// linked tells whether an ENI has a link in a guest; a branch has that of its trunk.
func (v *VPC) linked(e *ENI) bool {
	if e.TrunkID != "" {
		trunk := v.enis[e.TrunkID]
		return trunk != nil && v.linked(trunk)
	}
	if e.Attachment == nil || !e.Attachment.Link {
		return false
	}
	state := v.instances[e.Attachment.InstanceID].State
	return state == Running || state == ShuttingDown
}

func (v *VPC) checkFrame(s origin, p Packet) string {
	switch {
	case p.Broadcast || contained(multicast, p.Dst):
		return DropMulticast
	case p.MAC != "" && p.MAC != s.mac:
		return DropSourceMAC
	case !s.unchecked && !s.holds(p.Src):
		return DropSource
	}
	return ""
}

// own tells which service of the network itself has an address, as seen from a sender.
func (s origin) own(n *Network, addr netip.Addr) string {
	switch addr {
	case s.subnet.Gateway():
		return ToGateway
	case RouterAddr6:
		if s.six {
			return ToGateway
		}
	case MetadataAddr6:
		if s.six {
			return ToMetadata
		}
	case MetadataAddr:
		return ToMetadata
	case ResolverAddr, n.Resolver():
		return ToResolver
	case TimeAddr:
		return ToTime
	}
	return ""
}

// place finds who has an address of a VPC and a link to get it by.
func (v *VPC) place(vpcID string, addr netip.Addr) (endpoint, bool) {
	for _, s := range v.subnets {
		if s.VPCID != vpcID || !s.CIDR.Contains(addr) && !s.IPv6CIDR.Contains(addr) {
			continue
		}
		owner := s.owner(addr)
		if e := v.enis[owner]; e != nil {
			return endOf(e), v.linked(e)
		}
		for _, x := range v.services {
			if serviceOwner(x.Name) == owner && owner != "" {
				return endpoint{name: x.Name}, true
			}
		}
	}
	return endpoint{}, false
}

func (f *Flows) throughPeering(x Peering, near hop, p Packet) Verdict {
	near.to = endpoint{name: x.ID}
	if out := f.pass(near, p); out.Drop != "" {
		return out
	}
	if !f.model.networks[near.vpc].within(p.Src) {
		return Verdict{Drop: DropSource} // of another VPC's range: an ENI whose own check is off
	}
	other := x.other(near.vpc)
	to, found := f.model.place(other, p.Dst)
	if !found {
		return Verdict{Drop: DropNoAddress}
	}
	return f.pass(hop{vpc: other, from: endpoint{name: x.ID}, to: to}, p)
}

// toOutside is the internet gateway's way out: one to one, for associated addresses.
func (f *Flows) toOutside(n *Network, from endpoint, p Packet) Verdict {
	if p.Dst.Is6() {
		return Verdict{Drop: DropNoOutside} // every IPv6 address is a public one, and outside hosts have none
	}
	var public netip.Addr
	for _, e := range f.model.enis {
		if n.Online && e.VPCID == n.ID && e.Primary == p.Src && e.Public.IsValid() && f.model.linked(e) {
			public = e.Public
		}
	}
	if !public.IsValid() {
		return Verdict{Drop: DropNoPublic}
	}
	for _, o := range f.model.outsides {
		if o.Addr != p.Dst {
			continue
		}
		out := f.pass(hop{vpc: n.ID, from: from, to: endpoint{name: o.Name}}, p)
		if out.Drop == "" {
			out.Src = public
		}
		return out
	}
	return Verdict{Drop: DropNoOutside}
}

// fromOutside is the internet gateway's way in.
func (f *Flows) fromOutside(p Packet) Verdict {
	v, n := f.model, f.model.networks[p.VPC]
	if _, peered := v.peeringTo(n.ID, p.Src); peered || n.within(p.Src) || contained(linkScope, p.Src) {
		return Verdict{Drop: DropSource}
	}
	e := v.enis[v.publics[p.Dst]]
	if e == nil || e.VPCID != n.ID || !n.Online || !v.linked(e) {
		return Verdict{Drop: DropNoPublic}
	}
	p.Dst = e.Primary
	return f.pass(hop{vpc: n.ID, from: endpoint{name: p.From}, to: endOf(e)}, p)
}

// Other is the VPC at the other end of a peering as seen from one of the two; "" for a stranger.
func (p Peering) Other(network string) string { return p.other(network) }

// peeringTo finds the peering of a VPC that leads to an address.
func (v *VPC) peeringTo(network string, addr netip.Addr) (Peering, bool) {
	for _, p := range v.peerings {
		if other := v.networks[p.other(network)]; other != nil && other.within(addr) {
			return p, true
		}
	}
	return Peering{}, false
}

// within tells whether an address is in one of a VPC's ranges.
func (n *Network) within(addr netip.Addr) bool {
	return contained(n.CIDRs, addr) || contained(n.IPv6CIDRs, addr)
}

func contained(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(c netip.Prefix) bool { return c.Contains(addr) })
}
