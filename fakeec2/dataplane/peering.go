package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// peering is a link between two fabrics. It has the same name in both.
type peering struct {
	Name  string
	Sides [2]string // VPC ids
	MTU   int       // bytes
}

// peerMAC is the MAC of a side's end; nobody but the other fabric ever sees it.
func peerMAC(side int) net.HardwareAddr { return net.HardwareAddr{0x0e, 0x56, 0, 0, 0, byte(side)} }

// transit6 is the other fabric as the next hop of IPv6 routes.
var transit6 = netip.MustParseAddr("fe80::1")

// wantPeerings gives the peerings of the model and tells each fabric the ranges that lie beyond.
func (w world) wantPeerings(r reading) []peering {
	var all []peering
	for _, x := range r.Peerings {
		link := peering{Name: peerPort + tail(x.ID, nameLength-len(peerPort)), Sides: [2]string{x.A, x.B}, MTU: vpcMTU}
		if x.CrossRegion {
			link.MTU = crossRegionMTU
		}
		for side, id := range link.Sides {
			w.fabrics[id].Peers[link.Name] = w.fabrics[link.Sides[1-side]].CIDRs
		}
		all = append(all, link)
	}
	return all
}

// peer joins two fabrics. A peering of the model never ends, so it is made once and goes with its fabrics.
func (p *Plane) peer(want peering) error {
	a, b := p.fabrics[want.Sides[0]], p.fabrics[want.Sides[1]]
	if a == nil || b == nil || a.peers[want.Name] {
		return nil // their failure is reported already
	}
	err := netlab.Veth(
		netlab.End{NS: a.ns, Name: want.Name, MAC: peerMAC(0), MTU: want.MTU, Index: a.nextIndex()},
		netlab.End{NS: b.ns, Name: want.Name, MAC: peerMAC(1), MTU: want.MTU},
	)
	if err != nil {
		return fmt.Errorf("join peered VPCs: %w", err)
	}
	for side, f := range []*fabricNet{a, b} {
		err := errors.Join(
			f.ns.SetSysctl("net/ipv6/conf/"+want.Name+"/disable_ipv6", "0"),
			netlab.Neigh(f.ns, want.Name, transit, peerMAC(1-side)), netlab.Neigh(f.ns, want.Name, transit6, peerMAC(1-side)),
		)
		for _, cidr := range f.beyond[want.Name] {
			via := transit
			if cidr.Addr().Is6() {
				via = transit6
			}
			err = errors.Join(err, netlab.AddRoute(f.ns, netlab.Route{Dst: cidr, Via: via, Link: want.Name, Onlink: true}))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("join peered VPCs: %w", err), netlab.DelLink(a.ns, want.Name))
		}
	}
	a.peers[want.Name], b.peers[want.Name] = true, true
	return nil
}
