package dataplane

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

var metadataAddr6 = vpc.MetadataAddr6

// enableIPv6 turns IPv6 on on a port whose ENI got its first IPv6 address, and tells the guest as DHCPv6 and the router's
// advertisement would. All IPv6 addresses of the ENI are delivered by the link-local address that its MAC gives, which has the
// port's one neighbour entry.
func (f *fabricNet) enableIPv6(g *guestNS, have *standingPort, next port) error {
	if have.ipv6 {
		return nil
	}
	mac, err := net.ParseMAC(next.MAC)
	if err != nil {
		return err
	}
	errs := []error{
		f.ns.SetSysctl("net/ipv6/conf/"+next.Name+"/accept_ra", "0"),
		f.ns.SetSysctl("net/ipv6/conf/"+next.Name+"/disable_ipv6", "0"),
		netlab.Neigh(f.ns, next.Name, next.linkLocal6(), mac),
	}
	for _, a := range ipv6Rules().own(next, netip.Addr{}) {
		errs = append(errs, there(netlab.AddAddr(f.ns, next.Name, single(a))))
	}
	if next.Up && !next.Adopted {
		for _, held := range next.Secondary {
			if held.Addr().Is6() && held.IsSingleIP() { // the first one: a CNI adds the others
				errs = append(errs, there(netlab.AddAddr(g.ns, next.Link, held)))
				break
			}
		}
		route := netlab.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Via: vpc.RouterAddr6, Link: next.Link, Onlink: true}
		errs = append(errs, there(netlab.AddRoute(g.ns, route)))
	}
	err = errors.Join(errs...)
	have.ipv6 = err == nil
	return err
}

// followMetadata6 begins or ends to answer at the IPv6 endpoint of a port.
func (p *Plane) followMetadata6(f *fabricNet, have *standingPort, next port) error {
	switch {
	case have.Metadata6 == next.Metadata6 || p.options.Metadata == nil:
		return nil
	case !next.Metadata6:
		have.stop6()
		have.stop6 = nil
	default:
		var err error
		if have.stop6, err = p.serveMetadata(f, have, netip.AddrPortFrom(metadataAddr6, metadataPort)); err != nil {
			return err
		}
	}
	have.Metadata6 = next.Metadata6
	return nil
}

// there takes what stands already for made.
func there(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
