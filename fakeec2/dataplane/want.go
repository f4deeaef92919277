package dataplane

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	// vpcMTU is the MTU of every link inside a VPC, in bytes. Source: VPC user guide, jumbo frames.
	vpcMTU = 9001
	// crossRegionMTU is that of a peering between regions, in bytes. Source: VPC peering guide.
	crossRegionMTU = 8500
	// internetMTU is the MTU beyond the internet gateway, in bytes. Source: VPC user guide.
	internetMTU = 1500
)

// Prefixes of port names in the fabric. A link's name has at most 15 characters.
const (
	eniPort     = "p"
	servicePort = "svc-"
	outsidePort = "out-" // the rules know outside ports by this prefix
	peerPort    = "pcx-" // the rules know peerings by this prefix
	nameLength  = 15

	// fabricPrefix begins the name of a namespace that is a fabric.
	fabricPrefix = "fabric-"
)

// transit is the fabric as outside hosts see it: the next hop of their routes. It is on no link.
var transit = netip.AddrFrom4([4]byte{169, 254, 255, 1})

// world is what should be, computed from the model alone.
type world struct {
	guests   map[string]guest  // by path of the namespace
	fabrics  map[string]fabric // by VPC id
	peerings []peering
}

// guest is a namespace at the far end of ports.
type guest struct {
	Path string
	// Node tells instances from services and outside hosts: a node forwards for its pods, and its image has opinions.
	Node  bool
	Image Image
	// Boot tells namespaces of one path apart; above 0, the namespace was adopted and is set up by others.
	Boot int
}

// fabric is the network of one VPC.
type fabric struct {
	Path     string // of the fabric's own namespace
	CIDRs    []netip.Prefix
	Resolver netip.Addr
	Ports    map[string]port        // by name
	Chains   map[string][]groupRule // what security groups let pass, by chain
	Members  map[member]bool        // of security groups
	Peers    map[string][]netip.Prefix
}

// port is one link between the fabric and a guest.
type port struct {
	portIdentity
	Secondary []netip.Prefix // beside Primary, ascending: single addresses and prefixes, IPv4 and IPv6
	Renamed   string         // the guest's end, once its image has renamed it; "" while its name is Link
	Metadata6 bool           // metadata answer at the IPv6 endpoint, too
	Public    netip.Addr     // associated with Primary at the internet gateway; zero if none
	Unchecked bool           // the source/destination check is off
	Publics   []netip.Addr   // of an outside port: every public address of the VPC, ascending
	// Egress and Ingress are the chains of the ENI's security groups; "" where nothing is checked.
	Egress, Ingress string
}

// portIdentity is what cannot change while the link stands: a port with another identity is another port.
type portIdentity struct {
	Name     string
	Guest    string // path of the guest's namespace
	Link     string // the guest's end
	MAC      string // of the guest's end
	MTU      int    // bytes
	Primary  netip.Addr
	Gateway  netip.Addr // the fabric's address on the port
	Instance string     // id that instance metadata answers for on this port; "" for none
	Up       bool       // the guest's end is configured as an image's DHCP client would do it
	Boot     int        // of the guest
	Trunk    string     // of a branch: the port of its trunk, whose frames with the tag VLAN are its own
	VLAN     int
	Adopted  bool // the link exists: Link in the guest, its other end wherever links to adopt come from
}

// holds is all that is delivered to the port, primary first.
func (p port) holds() []netip.Prefix {
	return append([]netip.Prefix{single(p.Primary)}, p.Secondary...)
}

// hasIPv6 tells whether any of it is IPv6.
func (p port) hasIPv6() bool {
	return len(p.Secondary) > 0 && p.Secondary[len(p.Secondary)-1].Addr().Is6() // IPv4 comes first
}

// linkLocal6 is the guest's address that its kernel makes of its MAC. Source: RFC 4291, appendix A.
func (p port) linkLocal6() netip.Addr {
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return netip.Addr{} // plug has reported it
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// secondaries are what an ENI holds beside its primary address, ascending.
func secondaries(e vpc.ENI) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range e.Secondary {
		all = append(all, single(a))
	}
	for _, a := range e.IPv6 {
		all = append(all, single(a))
	}
	all = slices.Concat(all, e.Prefixes, e.IPv6Prefixes)
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

func (p port) outside() bool { return p.Gateway == transit }

// fabricMAC is the MAC of the fabric's end of a port: one for each gateway, on all ports of its subnet.
func (p port) fabricMAC() net.HardwareAddr { return addrMAC(0x02, p.Gateway) }

// addrMAC makes a locally administered MAC that can be read as an address. The first byte keeps its uses apart.
func addrMAC(first byte, addr netip.Addr) net.HardwareAddr {
	b := addr.As4()
	return net.HardwareAddr{first, 0x56, b[0], b[1], b[2], b[3]}
}

func (w world) add(vpcID string, p port) error {
	f, ok := w.fabrics[vpcID]
	if !ok {
		return fmt.Errorf("place port %s: no VPC %q", p.Name, vpcID)
	}
	if other, taken := f.Ports[p.Name]; taken {
		return fmt.Errorf("place port %s of %s: name taken by that of %s", p.Name, p.Primary, other.Primary)
	}
	f.Ports[p.Name] = p
	return nil
}

// path is where a namespace that the plane makes is bound.
func (p *Plane) path(name string) string { return filepath.Join(p.options.Dir, "netns", name) }

// The namespace of a guest is the one that the model names, else one of our own.
func (p *Plane) instancePath(i vpc.Instance) string {
	return cmp.Or(i.Namespace, p.path(cmp.Or(i.Name, i.ID)))
}

// ServicePath is where the namespace of a service is bound.
func (p *Plane) ServicePath(s vpc.Service) string { return cmp.Or(s.Namespace, p.path(s.Name)) }

func (p *Plane) outsidePath(o vpc.Outside) string { return cmp.Or(o.Namespace, p.path(o.Name)) }

// hasGuest tells whether an instance has a namespace. A stopped guest is gone too: it boots anew.
func hasGuest(i vpc.Instance) bool { return i.State == vpc.Running || i.State == vpc.ShuttingDown }

// tail is the end of a name, which is what tells ids apart.
func tail(name string, length int) string { return name[max(0, len(name)-length):] }
