package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// reading is the model at one moment, with its parts by id.
type reading struct {
	vpc.Snapshot
	subnets map[string]vpc.Subnet
	running map[string]vpc.Instance // those with a guest
	enis    map[string]vpc.ENI
	groups  map[string]vpc.SecurityGroup
}

func readModel(model *vpc.VPC) reading {
	r := reading{
		Snapshot: model.Snapshot(), subnets: map[string]vpc.Subnet{}, running: map[string]vpc.Instance{}, enis: map[string]vpc.ENI{},
		groups: map[string]vpc.SecurityGroup{},
	}
	for _, s := range r.Subnets {
		r.subnets[s.ID] = s
	}
	for _, i := range r.Instances {
		if hasGuest(i) {
			r.running[i.ID] = i
		}
	}
	online := map[string]bool{}
	for _, n := range r.VPCs {
		online[n.ID] = n.Online
	}
	for i := range r.ENIs {
		if !online[r.ENIs[i].VPCID] {
			r.ENIs[i].Public = netip.Addr{} // it leads nowhere
		}
		r.enis[r.ENIs[i].ID] = r.ENIs[i]
	}
	for _, g := range r.Groups {
		r.groups[g.ID] = g
	}
	return r
}

// want says what should be.
func (p *Plane) want(r reading) (world, error) {
	w := world{guests: map[string]guest{}, fabrics: map[string]fabric{}}
	for _, n := range r.VPCs {
		w.fabrics[n.ID] = fabric{
			Path: p.path(fabricPrefix + n.ID), CIDRs: slices.Concat(n.CIDRs, n.IPv6CIDRs), Resolver: n.Resolver(), Ports: map[string]port{},
			Chains: map[string][]groupRule{}, Members: map[member]bool{}, Peers: map[string][]netip.Prefix{},
		}
	}
	for _, i := range r.running {
		path := p.instancePath(i)
		w.guests[path] = guest{Path: path, Node: true, Image: p.image(i), Boot: i.Guest.Boot}
	}
	w.peerings = w.wantPeerings(r)
	w.wantGroups(r)
	return w, errors.Join(p.wantENIs(w, r), p.wantServices(w, r), p.wantOutsides(w, r))
}

func (p *Plane) wantENIs(w world, r reading) error {
	for _, e := range r.ENIs {
		carrier := e
		if e.TrunkID != "" {
			carrier = r.enis[e.TrunkID]
		}
		if carrier.Attachment == nil || !carrier.Attachment.Link || !e.Primary.IsValid() {
			continue // efa-only, or in an IPv6-only subnet: a port is known by its IPv4 address
		}
		instance, running := r.running[carrier.Attachment.InstanceID]
		if !running {
			continue
		}
		made := p.eniPort(carrier, instance, r.subnets[carrier.SubnetID])
		if e.TrunkID != "" {
			made = branchPort(e, made, r.subnets[e.SubnetID])
		}
		if err := w.add(e.VPCID, made); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) eniPort(e vpc.ENI, instance vpc.Instance, subnet vpc.Subnet) port {
	first := e.Attachment.Device == 0 && e.Attachment.Card == 0
	link, renamed, adopted := guestLink(e.Attachment.Card, e.Attachment.Device), "", false
	if named := predictableName(e.Attachment.Card, e.Attachment.Device); instance.PredictableNames && first {
		link = named
	} else if instance.PredictableNames && e.Attachment.Named {
		renamed = named
	}
	if first && instance.Guest.Link != "" {
		link, adopted = instance.Guest.Link, true
	}
	return port{
		Renamed:   renamed,
		Metadata6: instance.MetadataIPv6 && len(e.IPv6)+len(e.IPv6Prefixes) > 0,
		portIdentity: portIdentity{
			Name:     portName(e.ID),
			Guest:    p.instancePath(instance),
			Link:     link,
			MAC:      e.MAC,
			MTU:      vpcMTU,
			Primary:  e.Primary,
			Gateway:  subnet.Gateway(),
			Instance: instance.ID,
			Up:       first,
			Boot:     instance.Guest.Boot,
			Adopted:  adopted,
		},
		Secondary: secondaries(e),
		Public:    e.Public,
		Unchecked: !e.SourceDestCheck,
		Egress:    chainName(egressChain, e.Groups),
		Ingress:   chainName(ingressChain, e.Groups),
	}
}

// branchPort is the port of a branch on its trunk's. The guest makes its end of it.
func branchPort(e vpc.ENI, trunk port, subnet vpc.Subnet) port {
	return port{
		portIdentity: portIdentity{
			Name: portName(e.ID), Guest: trunk.Guest, MAC: e.MAC, MTU: trunk.MTU, Primary: e.Primary, Gateway: subnet.Gateway(),
			Instance: trunk.Instance, Boot: trunk.Boot, Trunk: trunk.Name, VLAN: e.VLAN,
		},
		Secondary: secondaries(e),
		Public:    e.Public,
		Unchecked: !e.SourceDestCheck,
		Egress:    chainName(egressChain, e.Groups),
		Ingress:   chainName(ingressChain, e.Groups),
	}
}

func portName(eni string) string { return eniPort + tail(eni, nameLength-len(eniPort)-1) }

// guestLink names an ENI's link in the guest. It must never begin with "eni", which is the prefix of pod links.
func guestLink(card, device int) string { return fmt.Sprintf("eth%d", card*perCard+device) }

// predictableName is what an image's udev makes of it: the number is that of the PCI slot, and device 0 is in slot 5. Source:
// names in reports from Nitro instances.
func predictableName(card, device int) string { return fmt.Sprintf("ens%d", 5+card*perCard+device) }

// perCard is more than any card's ENI limit, so that names of different cards stay apart.
const perCard = 100

func (p *Plane) wantServices(w world, r reading) error {
	for _, s := range r.Services {
		subnet := r.subnets[s.SubnetID]
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
func (p *Plane) wantOutsides(w world, r reading) error {
	for _, o := range r.Outsides {
		path := p.outsidePath(o)
		w.guests[path] = guest{Path: path}
		for i, n := range r.VPCs {
			var publics []netip.Addr
			for _, e := range r.ENIs {
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
