package vpc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// books are what ENIs and services hold, collected from them.
type books struct {
	v     *VPC
	owner map[string]map[netip.Prefix]string // VPC -> address or prefix -> who
	held  map[string][2]int                  // subnet -> single IPv4 addresses and prefixes
	six   map[string][2]int                  // subnet -> IPv6 addresses and prefixes
	usage map[string]int
}

// note enters an address or prefix, which must be in its subnet's book under the same name and be nobody else's.
func (b *books) note(subnetID string, p netip.Prefix, owner string) error {
	sub := b.v.subnets[subnetID]
	if sub == nil {
		return fmt.Errorf("%s is in unknown subnet %s", owner, subnetID)
	}
	if got := sub.owner(p.Addr()); got != owner {
		return fmt.Errorf("%s of %s is held by %q in the subnet's book", p, owner, got)
	}
	if b.owner[sub.VPCID] == nil {
		b.owner[sub.VPCID] = map[netip.Prefix]string{}
	}
	block := p
	if p.IsSingleIP() {
		bits := prefixBits
		if p.Addr().Is6() {
			bits = prefixBits6
		}
		block = netip.PrefixFrom(p.Addr(), bits).Masked()
	}
	for _, place := range []netip.Prefix{p, block} {
		if other := b.owner[sub.VPCID][place]; other != "" {
			return fmt.Errorf("%s is held by %s and by %s", p, other, owner)
		}
	}
	b.owner[sub.VPCID][p] = owner
	counts, which := b.held, 0
	if p.Addr().Is6() {
		counts = b.six
	}
	if !p.IsSingleIP() {
		which = 1
	}
	n := counts[subnetID]
	n[which]++
	counts[subnetID] = n
	return nil
}

// checkHeld: every address and prefix of an ENI or service is in its subnet's book under that name, and there is nothing else in
// the book; MACs and public addresses are unique.
func (v *VPC) checkHeld() error {
	b := &books{v: v, owner: map[string]map[netip.Prefix]string{}, held: map[string][2]int{}, six: map[string][2]int{}, usage: map[string]int{}}
	macs := map[string]string{}
	for id, e := range v.enis {
		if id != e.ID || macs[e.MAC] != "" || v.macs[e.MAC] != id {
			return fmt.Errorf("MAC %s of %s is not its own", e.MAC, id)
		}
		macs[e.MAC] = id
		if e.Public.IsValid() && v.publics[e.Public] != id {
			return fmt.Errorf("public address %s of %s is not its own", e.Public, id)
		}
		if !slices.IsSortedFunc(e.Secondary, netip.Addr.Compare) || !slices.IsSorted(e.Groups) || !slices.IsSortedFunc(e.Prefixes, comparePrefix) ||
			!slices.IsSortedFunc(e.IPv6, netip.Addr.Compare) || !slices.IsSortedFunc(e.IPv6Prefixes, comparePrefix) {
			return fmt.Errorf("lists of %s are not ascending", id)
		}
		list := e.holding().all()
		slices.SortStableFunc(list, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() }) // prefixes first: note looks for the one around
		for _, p := range list {
			if err := b.note(e.SubnetID, p, id); err != nil {
				return err
			}
		}
		b.usage[e.VPCID] += len(list)
	}
	for name, s := range v.services {
		if err := b.note(s.SubnetID, single(s.Addr), serviceOwner(name)); err != nil {
			return err
		}
	}
	for id, sub := range v.subnets {
		if got := [2]int{len(sub.holder), len(sub.blocks)}; got != b.held[id] {
			return fmt.Errorf("%s: book says %d addresses and prefixes are held, ENIs and services hold %d", id, got, b.held[id])
		}
		if got := [2]int{len(sub.six.holder), len(sub.six.blocks)}; got != b.six[id] {
			return fmt.Errorf("%s: book says %d IPv6 addresses and prefixes are held, ENIs hold %d", id, got, b.six[id])
		}
	}
	maps.DeleteFunc(v.usage, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(v.usage, b.usage) && len(v.usage)+len(b.usage) > 0 {
		for id := range v.networks {
			if v.usage[id] != b.usage[id] {
				return fmt.Errorf("%s: network address usage is noted as %d, ENIs hold %d", id, v.usage[id], b.usage[id])
			}
		}
	}
	if len(v.macs) != len(macs) {
		return fmt.Errorf("%d MACs are noted for %d ENIs", len(v.macs), len(macs))
	}
	return nil
}

// checkSubnets: every offset is in exactly one of reserved, free, withheld, resting, held; a prefix is held whole.
func (v *VPC) checkSubnets() error {
	for id, s := range v.subnets {
		if err := s.check(); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func (s *subnet) check() error {
	for at, offset := range s.free {
		if s.where[offset] != int32(at) {
			return fmt.Errorf("offset %d is free at %d but noted at %d", offset, at, s.where[offset])
		}
	}
	free, withheldNow, resting4, open := 0, 0, 0, 0
	used := make([]uint8, len(s.used))
	owners := s.owners()
	for offset := range s.size {
		owner := owners[offset]
		var reservation *CIDRReservation
		if len(s.reserves) > 0 {
			reservation = s.reservation(s.addr(offset))
		}
		place := s.where[offset]
		if s.reserved(offset) || owner != "" {
			used[offset/blockSize]++
		}
		switch {
		case (s.reserved(offset) || owner != "") != (place == held):
			return fmt.Errorf("%s is held by %q but noted at %d", s.addr(offset), owner, place)
		case s.reserved(offset) && owner != "":
			return fmt.Errorf("reserved %s is held by %s", s.addr(offset), owner)
		case place == withheld:
			withheldNow++
			if reservation == nil {
				return fmt.Errorf("%s is withheld for no reservation", s.addr(offset))
			}
		case place == resting:
			resting4++
			if reservation == nil {
				open++
			}
			if s.restNo[offset] == 0 {
				return fmt.Errorf("%s rests for ever", s.addr(offset))
			}
		case place >= 0:
			free++
			if reservation != nil {
				return fmt.Errorf("%s is free in reservation %s", s.addr(offset), reservation.ID)
			}
		}
	}
	if free != len(s.free) || withheldNow != s.withheld || resting4 != len(s.restNo) || open != s.openRest || !slices.Equal(used, s.used) {
		return fmt.Errorf("counts are off: free %d/%d, withheld %d/%d, resting %d/%d, of those drawable %d/%d, or the blocks'",
			free, len(s.free), withheldNow, s.withheld, resting4, len(s.restNo), open, s.openRest)
	}
	for first, by := range s.blocks {
		for offset := first; offset < first+blockSize; offset++ {
			if s.holder[offset] != "" {
				return fmt.Errorf("%s is in a prefix of %s and held by %s", s.addr(offset), by, s.holder[offset])
			}
		}
	}
	return nil
}

// owners are the holders by offset.
func (s *subnet) owners() []string {
	out := make([]string, s.size)
	for first, by := range s.blocks {
		for offset := first; offset < first+blockSize; offset++ {
			out[offset] = by
		}
	}
	for offset, by := range s.holder {
		out[offset] = by
	}
	return out
}

// checkTrunks: associations tie ENIs that are there, one VLAN each, no more than the type allows.
func (v *VPC) checkTrunks() error {
	vlans := map[string]string{}
	for id, a := range v.trunks {
		branch, trunk := v.enis[a.BranchID], v.enis[a.TrunkID]
		switch key := fmt.Sprint(a.TrunkID, " ", a.VLAN); {
		case branch == nil || trunk == nil || trunk.InterfaceType != TrunkInterface:
			return fmt.Errorf("%s ties ENIs that are not there", id)
		case branch.TrunkID != a.TrunkID || branch.VLAN != a.VLAN || branch.InterfaceType != BranchInterface || branch.Status != InUse || v.branches[branch.ID] != id:
			return fmt.Errorf("%s: %s does not say so", id, branch.ID)
		case vlans[key] != "":
			return fmt.Errorf("VLAN %d of %s is taken by %s and %s", a.VLAN, a.TrunkID, vlans[key], id)
		case trunk.Attachment != nil && v.branchCount(trunk.ID) > v.instances[trunk.Attachment.InstanceID].Limits.Branches:
			return fmt.Errorf("%s has too many branches", trunk.ID)
		default:
			vlans[key] = id
		}
	}
	for id, e := range v.enis {
		if e.TrunkID != "" && v.branches[id] == "" {
			return fmt.Errorf("%s is a branch without association", id)
		}
	}
	if len(v.branches) != len(v.trunks) {
		return fmt.Errorf("%d branches are noted for %d associations", len(v.branches), len(v.trunks))
	}
	return nil
}

// checkViews: what the views will show in the end is what is true.
func (v *VPC) checkViews() error {
	if ids := v.order.sorted(v.history); !slices.IsSorted(ids) || len(ids) != len(v.history) {
		return fmt.Errorf("the describes go through %d ENIs, the history has %d", len(ids), len(v.history))
	}
	for id, e := range v.enis {
		h := v.history[id]
		if len(h) == 0 || h[len(h)-1].eni != e {
			return fmt.Errorf("the description of %s is not what it is", id)
		}
	}
	for id, s := range v.subnets {
		if last := s.counts[len(s.counts)-1]; last.free != s.available() {
			return fmt.Errorf("%s will be described with %d free addresses and has %d", id, last.free, s.available())
		}
	}
	for id, i := range v.instances {
		for _, eni := range i.enis {
			e, m := v.enis[eni], i.meta[eni]
			if e == nil || e.Attachment == nil || e.Attachment.Status == Detaching {
				continue
			}
			if m == nil || m.places[len(m.places)-1].fact.ID != e.Attachment.ID {
				return fmt.Errorf("the metadata of %s will never show %s", id, eni)
			}
			var will []netip.Prefix
			for _, k := range m.items {
				if k.gone.IsZero() {
					will = append(will, k.fact)
				}
			}
			is := e.holding().all()
			slices.SortFunc(will, comparePrefix)
			slices.SortFunc(is, comparePrefix)
			if !slices.Equal(will, is) || !slices.Equal(m.groups[len(m.groups)-1].fact, e.Groups) {
				return fmt.Errorf("the metadata of %s will show %s with %s, it has %s", id, eni, will, is)
			}
		}
	}
	return nil
}
