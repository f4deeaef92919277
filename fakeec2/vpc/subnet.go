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

// Places of an offset that is not in the free list.
const (
	held     int32 = -1 // or reserved by EC2
	withheld int32 = -2 // free, but in a CIDR reservation: nothing single is drawn from there
	resting  int32 = -3 // released lately
)

// subnet is a subnet and its allocator for single IPv4 addresses; blocks.go has its prefixes, subnet6.go its IPv6. An offset is
// in exactly one of: reserved, free, withheld, resting, held (by itself or in a prefix).
type subnet struct {
	Subnet
	base     uint32
	size     int32
	free     []int32          // offsets, in no order: a draw takes any and fills the hole with the last
	where    []int32          // offset -> index in free, or one of the places above
	withheld int              // how many are withheld
	rest     []rest           // released, oldest first; entries that are no longer true are skipped
	restNo   map[int32]uint64 // resting offset -> its entry's number
	restNos  uint64
	openRest int              // how many of the resting are in no CIDR reservation
	holder   map[int32]string // offset -> ENI id, or "service/<name>"
	blocks   map[int32]string // first offset of a /28 -> ENI that holds it as a prefix
	used     []uint8          // per /28: offsets that are reserved or held
	reserves []*CIDRReservation
	six      six
	counts   []count // what the free addresses were, for AvailableIpAddressCount
}

type rest struct {
	offset int32
	no     uint64
	until  time.Time
}

func newSubnet(s Subnet) *subnet {
	n := &subnet{Subnet: s, holder: map[int32]string{}, blocks: map[int32]string{}, restNo: map[int32]uint64{}, six: newSix(s.IPv6CIDR)}
	if s.Native() {
		return n
	}
	n.CIDR = s.CIDR.Masked()
	n.size = int32(1) << (32 - s.CIDR.Bits())
	base := n.CIDR.Addr().As4()
	n.base = binary.BigEndian.Uint32(base[:])
	n.free = make([]int32, 0, n.size)
	n.where = make([]int32, n.size)
	n.used = make([]uint8, n.size/blockSize)
	for offset := range n.size {
		n.where[offset] = held
		if n.reserved(offset) {
			n.used[offset/blockSize]++
		} else {
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

// available is EC2's AvailableIpAddressCount: what is in a CIDR reservation counts too.
func (s *subnet) available() int { return len(s.free) + s.withheld + len(s.restNo) }

// drawable is how many single addresses can be drawn.
func (s *subnet) drawable() int { return len(s.free) + s.openRest }

// inside tells whether an address is in the subnet's IPv4 range.
func (s *subnet) inside(addr netip.Addr) bool {
	return addr.Is4() && !s.Native() && s.CIDR.Contains(addr)
}

// owner says who holds addr, by itself or in a prefix, or "".
func (s *subnet) owner(addr netip.Addr) string {
	if addr.Is6() {
		return s.six.owner(addr)
	}
	if !s.inside(addr) {
		return ""
	}
	offset := s.offset(addr)
	if by := s.holder[offset]; by != "" {
		return by
	}
	return s.blocks[offset-offset%blockSize]
}

// takeRandom gives owner a free address. The caller has made sure that there is one.
func (s *subnet) takeRandom(r *rand.Rand, now time.Time, owner string) netip.Addr {
	s.wake(now)
	var offset int32
	if len(s.free) > 0 {
		offset = s.free[r.IntN(len(s.free))]
	} else { // nothing else is left: the one that rested longest
		at := slices.IndexFunc(s.rest, func(r rest) bool { return s.restNo[r.offset] == r.no && s.reservation(s.addr(r.offset)) == nil })
		offset = s.rest[at].offset
	}
	s.leave(offset)
	s.used[offset/blockSize]++
	s.holder[offset] = owner
	return s.addr(offset)
}

// wake ends the rest of addresses whose time has come.
func (s *subnet) wake(now time.Time) {
	n := 0
	for n < len(s.rest) && (s.restNo[s.rest[n].offset] != s.rest[n].no || !s.rest[n].until.After(now)) {
		if r := s.rest[n]; s.restNo[r.offset] == r.no {
			s.leave(r.offset)
			s.giveBack(r.offset)
		}
		n++
	}
	if s.rest = s.rest[n:]; len(s.rest) == 0 {
		s.rest = nil
	}
}

// take gives owner an address that nobody holds.
func (s *subnet) take(addr netip.Addr, owner string) {
	offset := s.offset(addr)
	s.leave(offset)
	s.used[offset/blockSize]++
	s.holder[offset] = owner
}

// release puts a held address to rest until the given time, or back at once.
func (s *subnet) release(addr netip.Addr, now time.Time, pause time.Duration) {
	offset := s.offset(addr)
	delete(s.holder, offset)
	s.used[offset/blockSize]--
	s.lay(offset, now, pause)
}

// lay is the way from held to resting, or to free.
func (s *subnet) lay(offset int32, now time.Time, pause time.Duration) {
	if pause <= 0 {
		s.giveBack(offset)
		return
	}
	s.restNos++
	s.where[offset] = resting
	s.restNo[offset] = s.restNos
	s.rest = append(s.rest, rest{offset, s.restNos, after(now, pause)})
	if s.reservation(s.addr(offset)) == nil {
		s.openRest++
	}
}

func (s *subnet) giveBack(offset int32) {
	if s.reservation(s.addr(offset)) != nil {
		s.where[offset] = withheld
		s.withheld++
		return
	}
	s.where[offset] = int32(len(s.free))
	s.free = append(s.free, offset)
}

// leave takes an offset out of free, withheld or resting.
func (s *subnet) leave(offset int32) {
	switch s.where[offset] {
	case withheld:
		s.withheld--
	case resting:
		delete(s.restNo, offset)
		if s.reservation(s.addr(offset)) == nil {
			s.openRest--
		}
	case held:
	default:
		hole, last := s.where[offset], s.free[len(s.free)-1]
		s.free[hole], s.where[last] = last, hole
		s.free = s.free[:len(s.free)-1]
	}
	s.where[offset] = held
}

// reserve makes a CIDR reservation bite, or, with add false, ends it.
func (s *subnet) reserve(r *CIDRReservation, add bool) {
	change := func() {
		if add {
			s.reserves = append(s.reserves, r)
		} else {
			s.reserves = slices.DeleteFunc(s.reserves, func(x *CIDRReservation) bool { return x == r })
		}
	}
	if r.CIDR.Addr().Is6() {
		change()
		return
	}
	var moved []int32
	first := s.offset(r.CIDR.Addr())
	for offset := first; offset < first+1<<(32-r.CIDR.Bits()); offset++ {
		switch {
		case s.where[offset] == resting && add:
			s.openRest--
		case s.where[offset] == resting:
			s.openRest++
		case s.where[offset] != held:
			s.leave(offset)
			moved = append(moved, offset)
		}
	}
	change()
	for _, offset := range moved {
		s.giveBack(offset)
	}
}

// reservation is the CIDR reservation that an address is in, or nil.
func (s *subnet) reservation(addr netip.Addr) *CIDRReservation {
	for _, r := range s.reserves {
		if r.CIDR.Contains(addr) {
			return r
		}
	}
	return nil
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
	case !s.inside(addr):
		return refuse(CodeParameterValue, "invalid value for parameter address: %s (not inside the subnet's range %s)", addr, s.CIDR)
	case s.reserved(s.offset(addr)):
		return refuse(CodeParameterValue, "invalid value for parameter address: %s (in the subnet's reserved range)", addr)
	}
	return nil
}

func addressInUse(addr netip.Addr) *Error {
	return refuse(CodeIPInUse, "The specified address is already in use: %s", addr)
}

func subnetFull() *Error {
	return refuse(CodeSubnetFull, "The specified subnet does not have enough free addresses to satisfy the request.")
}

func (s *subnet) snapshot() Subnet {
	c := s.Subnet
	c.Free = s.available()
	c.Tags = maps.Clone(s.Tags)
	return c
}
