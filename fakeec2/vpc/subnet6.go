package vpc

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// A delegated IPv6 prefix is a /80. Source: EC2 user guide, "Prefix delegation".
const (
	prefixBits6 = 80
	subnetBits6 = 64
	blocks6     = 1 << (prefixBits6 - subnetBits6)
	draws       = 256 // tries of a random draw before what is left is looked through
)

// six is a subnet's IPv6 allocator: the range is so wide that who holds what is noted, and nothing else.
type six struct {
	cidr   netip.Prefix
	holder map[netip.Addr]string
	blocks map[netip.Prefix]string
	used   map[netip.Prefix]int // /80 -> single addresses in it
}

func newSix(cidr netip.Prefix) six {
	return six{cidr: cidr, holder: map[netip.Addr]string{}, blocks: map[netip.Prefix]string{}, used: map[netip.Prefix]int{}}
}

func block6(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, prefixBits6).Masked() }

func (s *six) owner(a netip.Addr) string {
	if by := s.holder[a]; by != "" {
		return by
	}
	return s.blocks[block6(a)]
}

// reserved: the first four and the last address, as with IPv4.
func (s *six) reserved(a netip.Addr) bool {
	low := s.low(a)
	return low < reservedLow || low > ^uint64(0)-reservedHigh
}

func (s *six) low(a netip.Addr) uint64 {
	b := a.As16()
	return binary.BigEndian.Uint64(b[8:])
}

func (s *six) at(low uint64) netip.Addr {
	b := s.cidr.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], low)
	return netip.AddrFrom16(b)
}

// open tells whether a single address may be drawn.
func (s *subnet) open6(a netip.Addr) bool {
	return !s.six.reserved(a) && s.six.owner(a) == "" && s.reservation(a) == nil
}

// openBlock6 tells whether a prefix may be drawn; the blocks at both ends never may.
func (s *subnet) openBlock6(p netip.Prefix) bool {
	in := s.reservationOf(p)
	return !s.six.edge(p) && s.six.used[p] == 0 && s.six.blocks[p] == "" && (in == nil || in.Type == ReservePrefix && in.CIDR.Bits() <= prefixBits6)
}

func (s *six) edge(p netip.Prefix) bool {
	return s.low(p.Addr()) == 0 || s.low(p.Addr())>>48 == blocks6-1
}

func (s *six) block(n uint64) netip.Prefix { return netip.PrefixFrom(s.at(n<<48), prefixBits6) }

// draw6 finds an address to draw: at random, and where that fails again and again, the first of the first block that has one.
func (s *subnet) draw6(r *rand.Rand) (netip.Addr, bool) {
	for range draws {
		if a := s.six.at(r.Uint64()); s.open6(a) {
			return a, true
		}
	}
	for n := range uint64(blocks6) {
		for low := range uint64(reservedLow + 1) {
			if a := s.six.at(n<<48 + low); s.open6(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// drawBlock6 finds a prefix to draw, in a reservation for prefixes before anywhere else.
func (s *subnet) drawBlock6(r *rand.Rand) (netip.Prefix, bool) {
	for _, in := range s.reserves {
		if in.Type != ReservePrefix || !in.CIDR.Addr().Is6() || in.CIDR.Bits() > prefixBits6 {
			continue
		}
		first := s.six.low(in.CIDR.Addr()) >> 48
		size := uint64(1) << (prefixBits6 - in.CIDR.Bits())
		start := r.Uint64N(size)
		for n := range size {
			if p := s.six.block(first + (start+n)%size); s.openBlock6(p) {
				return p, true
			}
		}
	}
	start := r.Uint64N(blocks6)
	for n := range uint64(blocks6) {
		if p := s.six.block((start + n) % blocks6); s.openBlock6(p) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func (s *six) take(a netip.Addr, owner string) {
	s.holder[a] = owner
	s.used[block6(a)]++
}

func (s *six) release(a netip.Addr) {
	delete(s.holder, a)
	if s.used[block6(a)]--; s.used[block6(a)] == 0 {
		delete(s.used, block6(a))
	}
}

// check6 refuses an explicit address that the subnet cannot give.
func (s *subnet) check6(a netip.Addr) *Error {
	switch {
	case !a.Is6() || !s.six.cidr.IsValid() || !s.six.cidr.Contains(a):
		return refuse(CodeParameterValue, "invalid value for parameter ipv6Address: %s (not inside the subnet's IPv6 range)", a)
	case s.six.reserved(a):
		return refuse(CodeParameterValue, "invalid value for parameter ipv6Address: %s (in the subnet's reserved range)", a)
	case s.six.owner(a) != "":
		return addressInUse(a)
	}
	return nil
}

// checkPrefix6 refuses an explicit prefix that the subnet cannot give.
func (s *subnet) checkPrefix6(p netip.Prefix) *Error {
	switch {
	case !p.Addr().Is6() || p.Bits() != prefixBits6 || p.Masked() != p || !s.six.cidr.IsValid() || !s.six.cidr.Contains(p.Addr()):
		return refuse(CodeParameterValue, "invalid value for parameter ipv6Prefix: %s (an aligned /%d of the subnet is wanted)", p, prefixBits6)
	case s.six.edge(p):
		return refuse(CodeParameterValue, "invalid value for parameter ipv6Prefix: %s (in the subnet's reserved range)", p)
	case s.six.blocks[p] != "" || s.six.used[p] > 0:
		return refuse(CodeIPInUse, "The specified prefix is already in use: %s", p)
	}
	return nil
}
