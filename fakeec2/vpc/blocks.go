package vpc

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// A delegated IPv4 prefix is an aligned /28. Source: EC2 user guide, "Prefix delegation".
const (
	prefixBits = 28
	blockSize  = 1 << (32 - prefixBits)
)

// openBlocks are the first offsets of the blocks that a prefix may be drawn from, by their place: in a CIDR reservation for
// prefixes, then outside of all reservations; those with a resting address come last. The blocks at both ends never count: the
// subnet's reserved addresses are in them. taken are addresses and prefixes that the same request takes for itself.
func (s *subnet) openBlocks(taken want) (reserved, open []int32) {
	closed := map[int32]bool{}
	for _, a := range taken.Addresses {
		closed[s.offset(a)/blockSize] = true
	}
	for _, p := range taken.Prefixes {
		closed[s.offset(p.Addr())/blockSize] = true
	}
	var reservedTired, openTired []int32
	for block, used := range s.used {
		if used > 0 || closed[int32(block)] {
			continue
		}
		first := int32(block) * blockSize
		in := s.reservationOf(netip.PrefixFrom(s.addr(first), prefixBits))
		tired := slices.Contains(s.where[first:first+blockSize], resting)
		switch {
		case in == nil && tired:
			openTired = append(openTired, first)
		case in == nil:
			open = append(open, first)
		case in.Type != ReservePrefix || in.CIDR.Bits() > prefixBits:
		case tired:
			reservedTired = append(reservedTired, first)
		default:
			reserved = append(reserved, first)
		}
	}
	return append(reserved, reservedTired...), append(open, openTired...)
}

// reservationOf is the CIDR reservation that a block overlaps, or nil.
func (s *subnet) reservationOf(block netip.Prefix) *CIDRReservation {
	for _, r := range s.reserves {
		if r.CIDR.Overlaps(block) {
			return r
		}
	}
	return nil
}

// checkBlocks refuses n prefixes where they cannot be had, in EC2's three ways of being full; singles is how many single
// addresses the same request will draw afterwards.
func (s *subnet) checkBlocks(n, singles int, taken want, shortIsBlocks bool) *Error {
	eaten := 0
	if n > 0 {
		reserved, open := s.openBlocks(taken)
		switch {
		case s.available() < n*blockSize && !shortIsBlocks:
			return refuse(CodeParameterValue, "There aren't sufficient free Ipv4 addresses or prefixes")
		case len(reserved)+len(open) < n:
			return noBlocks()
		}
		eaten = blockSize * max(0, n-len(reserved))
	}
	for _, p := range taken.Prefixes {
		if s.reservationOf(p) == nil {
			eaten += blockSize
		}
	}
	for _, a := range taken.Addresses {
		if s.reservation(a) == nil && s.owner(a) == "" {
			eaten++
		}
	}
	if singles > max(0, s.drawable()-eaten) {
		return subnetFull()
	}
	return nil
}

func noBlocks() *Error {
	return refuse(CodeCIDRBlocks, "The specified subnet does not have enough free cidr blocks to satisfy the request.")
}

// takeBlock gives owner a prefix. The caller has made sure that there is one.
func (s *subnet) takeBlock(r *rand.Rand, now time.Time, owner string) netip.Prefix {
	s.wake(now)
	from, open := s.openBlocks(want{})
	if len(from) == 0 {
		from = open
	}
	rested := slices.IndexFunc(from, func(first int32) bool { return slices.Contains(s.where[first:first+blockSize], resting) })
	if rested <= 0 { // none is tired, or all are
		rested = len(from)
	}
	prefix := netip.PrefixFrom(s.addr(from[r.IntN(rested)]), prefixBits)
	s.holdBlock(prefix, owner)
	return prefix
}

func (s *subnet) holdBlock(prefix netip.Prefix, owner string) {
	first := s.offset(prefix.Addr())
	for offset := first; offset < first+blockSize; offset++ {
		s.leave(offset)
	}
	s.used[first/blockSize] += blockSize
	s.blocks[first] = owner
}

func (s *subnet) releaseBlock(prefix netip.Prefix, now time.Time, pause time.Duration) {
	first := s.offset(prefix.Addr())
	delete(s.blocks, first)
	s.used[first/blockSize] -= blockSize
	for offset := first; offset < first+blockSize; offset++ {
		s.lay(offset, now, pause)
	}
}

// checkPrefix refuses an explicit IPv4 prefix that the subnet cannot give.
func (s *subnet) checkPrefix(p netip.Prefix) *Error {
	if !p.Addr().Is4() || p.Bits() != prefixBits || p.Masked() != p || !s.inside(p.Addr()) {
		return refuse(CodeParameterValue, "invalid value for parameter ipv4Prefix: %s (an aligned /%d inside %s is wanted)", p, prefixBits, s.CIDR)
	}
	first := s.offset(p.Addr())
	if s.reserved(first) || s.reserved(first+blockSize-1) {
		return refuse(CodeParameterValue, "invalid value for parameter ipv4Prefix: %s (in the subnet's reserved range)", p)
	}
	if s.used[first/blockSize] > 0 {
		return refuse(CodeIPInUse, "The specified prefix is already in use: %s", p)
	}
	return nil
}
