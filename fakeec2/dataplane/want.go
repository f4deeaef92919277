package dataplane

import (
	"cmp"
	"errors"
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
	// internetMTU is the MTU beyond the internet gateway, in bytes. Source: VPC user guide.
	internetMTU = 1500
)

// Prefixes of port names in the fabric. A link's name has at most 15 characters.
const (
	eniPort     = "p"
	servicePort = "svc-"
	outsidePort = "out-" // the rules know outside ports by this prefix
	nameLength  = 15
)

// transit is the fabric as outside hosts see it: the next hop of their routes. It is on no link.
var transit = netip.AddrFrom4([4]byte{169, 254, 255, 1})

// world is what should be, computed from the model alone.
type world struct {
	guests  map[string]guest  // by path of the namespace
	fabrics map[string]fabric // by VPC id
}

// guest is a namespace at the far end of ports.
type guest struct {
	Path string
	// Node tells instances from services and outside hosts: a node forwards for its pods, and its image has opinions.
	Node  bool
	Image Image
}

// fabric is the network of one VPC.
type fabric struct {
	Path  string // of the fabric's own namespace
	CIDRs []netip.Prefix
	Ports map[string]port // by name
}

// port is one link between the fabric and a guest.
type port struct {
	portIdentity
	Secondary []netip.Addr // beside Primary, ascending
	Public    netip.Addr   // associated with Primary at the internet gateway; zero if none
	Unchecked bool         // the source/destination check is off
	Publics   []netip.Addr // of an outside port: every public address of the VPC, ascending
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
}

// addrs are all addresses delivered to the port, primary first.
func (p port) addrs() []netip.Addr { return append([]netip.Addr{p.Primary}, p.Secondary...) }

func (p port) outside() bool { return p.Gateway == transit }

// fabricMAC is the MAC of the fabric's end of a port: one for each gateway, on all ports of its subnet.
func (p port) fabricMAC() net.HardwareAddr { return addrMAC(0x02, p.Gateway) }

// addrMAC makes a locally administered MAC that can be read as an address. The first byte keeps its uses apart.
func addrMAC(first byte, addr netip.Addr) net.HardwareAddr {
	b := addr.As4()
	return net.HardwareAddr{first, 0x56, b[0], b[1], b[2], b[3]}
}

// want reads the model and says what should be.
func (p *Plane) want() (world, error) {
	w := world{guests: map[string]guest{}, fabrics: map[string]fabric{}}
	for _, n := range p.model.VPCs() {
		w.fabrics[n.ID] = fabric{Path: p.path("fabric-" + n.ID), CIDRs: n.CIDRs, Ports: map[string]port{}}
	}
	subnets := map[string]vpc.Subnet{}
	for _, s := range p.model.Subnets() {
		subnets[s.ID] = s
	}
	instances := map[string]vpc.Instance{}
	for _, i := range p.model.Instances() {
		if !hasGuest(i) {
			continue
		}
		instances[i.ID] = i
		path := p.instancePath(i)
		w.guests[path] = guest{Path: path, Node: true, Image: p.image(i)}
	}
	enis := p.model.ENIs()
	for _, e := range enis {
		if e.Attachment == nil || !e.Attachment.Link {
			continue
		}
		instance, ok := instances[e.Attachment.InstanceID]
		if !ok {
			continue
		}
		if err := w.add(e.VPCID, p.eniPort(e, instance, subnets[e.SubnetID])); err != nil {
			return world{}, err
		}
	}
	return w, errors.Join(p.wantServices(w, subnets), p.wantOutsides(w, enis))
}

func (p *Plane) eniPort(e vpc.ENI, instance vpc.Instance, subnet vpc.Subnet) port {
	first := e.Attachment.Device == 0 && e.Attachment.Card == 0
	return port{
		portIdentity: portIdentity{
			Name:     eniPort + tail(e.ID, nameLength-len(eniPort)-1),
			Guest:    p.instancePath(instance),
			Link:     guestLink(e.Attachment.Card, e.Attachment.Device),
			MAC:      e.MAC,
			MTU:      vpcMTU,
			Primary:  e.Primary,
			Gateway:  subnet.Gateway(),
			Instance: instance.ID,
			Up:       first,
		},
		Secondary: e.Secondary,
		Public:    e.Public,
		Unchecked: !e.SourceDestCheck,
	}
}

// guestLink names an ENI's link in the guest. It must never begin with "eni", which is the prefix of pod links.
func guestLink(card, device int) string {
	const perCard = 100 // more than any card's ENI limit, so that names of different cards stay apart
	return fmt.Sprintf("eth%d", card*perCard+device)
}

func (p *Plane) wantServices(w world, subnets map[string]vpc.Subnet) error {
	for _, s := range p.model.Services() {
		subnet := subnets[s.SubnetID]
		path := p.ServicePath(s)
		w.guests[path] = guest{Path: path}
		err := w.add(subnet.VPCID, port{portIdentity: portIdentity{
			Name: servicePort + tail(s.Name, nameLength-len(servicePort)), Guest: path, Link: "eth0",
			MAC: addrMAC(0x06, s.Addr).String(), MTU: vpcMTU, Primary: s.Addr, Gateway: subnet.Gateway(), Up: true,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// wantOutsides links every outside host with every VPC. It knows a VPC by its public addresses only.
func (p *Plane) wantOutsides(w world, enis []vpc.ENI) error {
	for _, o := range p.model.Outsides() {
		path := p.outsidePath(o)
		w.guests[path] = guest{Path: path}
		for i, n := range p.model.VPCs() {
			var publics []netip.Addr
			for _, e := range enis {
				if e.VPCID == n.ID && e.Public.IsValid() {
					publics = append(publics, e.Public)
				}
			}
			slices.SortFunc(publics, netip.Addr.Compare)
			err := w.add(n.ID, port{
				portIdentity: portIdentity{
					Name: outsidePort + tail(o.Name, nameLength-len(outsidePort)), Guest: path, Link: guestLink(0, i),
					MAC: addrMAC(0x0a, o.Addr).String(), MTU: internetMTU, Primary: o.Addr, Gateway: transit, Up: true,
				},
				Publics: publics,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
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
