package dataplane

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// protocol is what differs between the rules for IPv4 and for IPv6.
type protocol struct {
	family              nftables.TableFamily
	addr                nftables.SetDatatype
	source, destination field
	hops                field // TTL or hop limit
	hopsChecksum        bool  // the header has a checksum over it
	// multicast are the leading bits of destinations that are no unicast.
	multicast []byte
	// blockMask is the mask of an ENI's prefixes: /28 and /80.
	blockMask []byte
	// services are the range of the network's own services.
	services netip.Prefix
	// link are addresses of one link; nothing of them leaves it.
	link netip.Prefix
}

func ipv4Rules() protocol {
	return protocol{
		family: nftables.TableFamilyIPv4, addr: nftables.TypeIPAddr, source: ipSource, destination: ipDestination, hops: ipTTL, hopsChecksum: true,
		multicast: []byte{224}, blockMask: mask(28, 32), services: netip.PrefixFrom(metadataAddr, 16).Masked(), link: netip.PrefixFrom(metadataAddr, 16).Masked(),
	}
}

func ipv6Rules() protocol {
	return protocol{
		family: nftables.TableFamilyIPv6, addr: nftables.TypeIP6Addr, source: ip6Source, destination: ip6Destination, hops: ip6Hops,
		multicast: []byte{255}, blockMask: mask(80, 128), services: netip.PrefixFrom(metadataAddr6, 32).Masked(), link: netip.MustParsePrefix("fe80::/10"),
	}
}

// has tells whether an address is of the protocol.
func (p protocol) has(a netip.Addr) bool {
	return a.IsValid() && a.Is4() == (p.family == nftables.TableFamilyIPv4)
}

// only gives the prefixes of the protocol.
func (p protocol) only(list []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(list), func(x netip.Prefix) bool { return !p.has(x.Addr()) })
}

// own are the addresses of the network itself on a port. The gateway comes first: ICMP errors come from a port's first address.
func (p protocol) own(at port, resolver netip.Addr) []netip.Addr {
	if p.family == nftables.TableFamilyIPv4 {
		return []netip.Addr{at.Gateway, metadataAddr, vpc.ResolverAddr, vpc.TimeAddr, resolver}
	}
	if !at.hasIPv6() {
		return nil
	}
	return []netip.Addr{vpc.RouterAddr6, metadataAddr6}
}

// in matches an address of a field that lies in a range.
func (p protocol) in(f field, r netip.Prefix) []expr.Any {
	return slices.Concat(load(f), masked(mask(r.Bits(), r.Addr().BitLen())), equals(r.Masked().Addr().AsSlice()))
}

// mask gives the bytes of a network mask.
func mask(ones, bits int) []byte {
	out := make([]byte, bits/8)
	for i := range ones {
		out[i/8] |= 0x80 >> (i % 8)
	}
	return out
}
