package vpc

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Reserved addresses at the two ends of a subnet: network, router, DNS, one for the future, and the last one. Source: VPC user guide.
const (
	reservedLow  = 4
	reservedHigh = 1
)

// subnet is a subnet and its allocator. An address is in exactly one of: reserved, free, cooling, held.
type subnet struct {
	Subnet
	base    uint32
	size    int32
	free    []int32          // offsets, in no order: a draw takes any and fills the hole with the last
	where   []int32          // offset -> index in free, or -1
	cooling []cooling        // released, oldest first
	holder  map[int32]string // offset -> ENI id, or "service/<name>"
}

type cooling struct {
	offset int32
	until  time.Time
}

func newSubnet(s Subnet) *subnet {
	s.CIDR = s.CIDR.Masked()
	size := int32(1) << (32 - s.CIDR.Bits())
	base := s.CIDR.Addr().As4()
	n := &subnet{
		Subnet: s,
		base:   binary.BigEndian.Uint32(base[:]),
		size:   size,
		free:   make([]int32, 0, size),
		where:  make([]int32, size),
		holder: map[int32]string{},
	}
	for offset := range size {
		n.where[offset] = -1
		if !n.reserved(offset) {
			n.giveBack(offset)
		}
	}
	return n
}

func (s *subnet) reserved(offset int32) bool {
	return offset < reservedLow || offset >= s.size-reservedHigh
}

func (s *subnet) addr(offset int32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], s.base+uint32(offset))
	return netip.AddrFrom4(b)
}

// offset is meaningful only for addresses inside the subnet.
func (s *subnet) offset(addr netip.Addr) int32 {
	b := addr.As4()
	return int32(binary.BigEndian.Uint32(b[:]) - s.base)
}

func (s *subnet) available() int { return len(s.free) + len(s.cooling) }

// owner says who holds addr, or "".
func (s *subnet) owner(addr netip.Addr) string {
	if !s.CIDR.Contains(addr) {
		return ""
	}
	return s.holder[s.offset(addr)]
}

// takeRandom draws an address for owner. The caller has made sure that one is available.
func (s *subnet) takeRandom(choices *rand.Rand, now time.Time, owner string) netip.Addr {
	for len(s.cooling) > 0 && !s.cooling[0].until.After(now) {
		s.giveBack(s.cooling[0].offset)
		s.cooling = s.cooling[1:]
	}
	var offset int32
	if len(s.free) > 0 {
		offset = s.free[choices.IntN(len(s.free))]
		s.remove(offset)
	} else {
		offset = s.cooling[0].offset // nothing else is left: the one that rested longest
		s.cooling = s.cooling[1:]
	}
	s.holder[offset] = owner
	return s.addr(offset)
}

// take gives owner an address that is free or cooling.
func (s *subnet) take(addr netip.Addr, owner string) {
	offset := s.offset(addr)
	if s.where[offset] >= 0 {
		s.remove(offset)
	} else {
		s.cooling = slices.DeleteFunc(s.cooling, func(c cooling) bool { return c.offset == offset })
	}
	s.holder[offset] = owner
}

// release puts a held address to rest until the given time, or back at once.
func (s *subnet) release(addr netip.Addr, now time.Time, rest time.Duration) {
	offset := s.offset(addr)
	delete(s.holder, offset)
	if rest <= 0 {
		s.giveBack(offset)
		return
	}
	s.cooling = append(s.cooling, cooling{offset, now.Add(rest)})
}

func (s *subnet) giveBack(offset int32) {
	s.where[offset] = int32(len(s.free))
	s.free = append(s.free, offset)
}

func (s *subnet) remove(offset int32) {
	hole, last := s.where[offset], s.free[len(s.free)-1]
	s.free[hole], s.where[last] = last, hole
	s.free = s.free[:len(s.free)-1]
	s.where[offset] = -1
}

// checkExplicit refuses an address that the subnet can never give or that somebody holds.
func (s *subnet) checkExplicit(addr netip.Addr) *Error {
	if err := s.checkInside(addr); err != nil {
		return err
	}
	if s.owner(addr) != "" {
		return addressInUse(addr)
	}
	return nil
}

func (s *subnet) checkInside(addr netip.Addr) *Error {
	switch {
	case !addr.Is4() || !s.CIDR.Contains(addr):
		return refuse(CodeParameterValue, "invalid value for parameter address: %s (not inside the subnet's range %s)", addr, s.CIDR)
	case s.reserved(s.offset(addr)):
		return refuse(CodeParameterValue, "invalid value for parameter address: %s (in the subnet's reserved range)", addr)
	}
	return nil
}

func addressInUse(addr netip.Addr) *Error {
	return refuse(CodeIPInUse, "The specified address is already in use: %s", addr)
}

func (s *subnet) full() *Error {
	return refuse(CodeSubnetFull, "The specified subnet does not have enough free addresses to satisfy the request.")
}

func (s *subnet) snapshot() Subnet {
	c := s.Subnet
	c.Free = s.available()
	c.Tags = maps.Clone(s.Tags)
	return c
}
