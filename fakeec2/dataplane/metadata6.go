package dataplane

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// The plane carries IPv4. Of IPv6 there is what a guest needs to reach its metadata: an address, a router, and the endpoint.
// Source: EC2 user guide.
var (
	metadataAddr6 = netip.MustParseAddr("fd00:ec2::254")
	routerAddr6   = netip.MustParseAddr("fe80:ec2::1")
)

// followMetadata6 begins or ends to answer at the IPv6 endpoint of a port.
func (p *Plane) followMetadata6(f *fabricNet, g *guestNS, have *standingPort, next port) error {
	if have.Metadata6 == next.Metadata6 || p.options.Metadata == nil {
		return nil
	}
	if !next.Metadata6.IsValid() {
		have.stop6()
		have.stop6, have.Metadata6 = nil, netip.Addr{}
		return nil
	}
	if err := f.enableIPv6(have.port, next.Metadata6); err != nil {
		return err
	}
	if have.Up && !have.Adopted {
		if err := g.enableIPv6(have.port, next.Metadata6); err != nil {
			return err
		}
	}
	if have.stop6 == nil {
		var err error
		if have.stop6, err = p.serveMetadata(f, have, netip.AddrPortFrom(metadataAddr6, metadataPort)); err != nil {
			return err
		}
	}
	have.Metadata6 = next.Metadata6
	return nil
}

// enableIPv6 gives a port the router and the endpoint. The guest's entries are permanent, as in IPv4.
func (f *fabricNet) enableIPv6(p port, guest netip.Addr) error {
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	errs := []error{
		f.ns.SetSysctl("net/ipv6/conf/"+p.Name+"/accept_ra", "0"),
		f.ns.SetSysctl("net/ipv6/conf/"+p.Name+"/disable_ipv6", "0"),
	}
	for _, a := range []netip.Addr{routerAddr6, metadataAddr6} {
		errs = append(errs, there(netlab.AddAddr(f.ns, p.Name, single(a))))
	}
	for _, a := range []netip.Addr{guest, linkLocal6(mac)} {
		errs = append(errs, netlab.Neigh(f.ns, p.Name, a, mac))
	}
	return errors.Join(append(errs, there(netlab.AddRoute(f.ns, netlab.Route{Dst: single(guest), Link: p.Name})))...)
}

// enableIPv6 does what an image does with DHCPv6 and the router's advertisement.
func (g *guestNS) enableIPv6(p port, addr netip.Addr) error {
	return errors.Join(
		there(netlab.AddAddr(g.ns, p.Link, single(addr))),
		there(netlab.AddRoute(g.ns, netlab.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Via: routerAddr6, Link: p.Link, Onlink: true})),
	)
}

// there takes what stands already for made: the endpoint may be turned off and on.
func there(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// linkLocal6 is the address that a kernel makes of a MAC. Source: RFC 4291, appendix A.
func linkLocal6(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
