package vpc

import (
	"net/netip"
	"slices"
)

// want is what an ENI is to get from its subnet: explicit addresses and prefixes, and counts of those to draw. The words are
// those of EC2's requests; in each family, counts and lists exclude each other (check says which).
type want struct {
	Addresses       []netip.Addr
	Count           int
	Prefixes        []netip.Prefix
	PrefixCount     int
	IPv6            []netip.Addr
	IPv6Count       int
	IPv6Prefixes    []netip.Prefix
	IPv6PrefixCount int
}

// mostCounted bounds the counts of one request: far more than any type allows, and nothing that would keep the model busy.
const mostCounted = 1000

func (w want) slots4() int { return len(w.Addresses) + w.Count + len(w.Prefixes) + w.PrefixCount }

func (w want) slots6() int {
	return len(w.IPv6) + w.IPv6Count + len(w.IPv6Prefixes) + w.IPv6PrefixCount
}

// checkForm refuses counts and lists that exclude each other, whatever the subnet.
func (w want) checkForm(mixed bool) *Error {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"secondaryPrivateIpAddressCount", w.Count}, {"ipv4PrefixCount", w.PrefixCount}, {"ipv6AddressCount", w.IPv6Count}, {"ipv6PrefixCount", w.IPv6PrefixCount},
	} {
		if n.value < 0 {
			return badNumber(n.name, n.value)
		}
		if n.value > mostCounted { // whatever the type is that it will be attached to
			return tooManyAddresses()
		}
	}
	given := func(names ...string) []string {
		there := map[string]bool{
			"secondaryPrivateIpAddressCount": w.Count > 0, "privateIpAddresses": len(w.Addresses) > 0,
			"ipv4PrefixCount": w.PrefixCount > 0, "ipv4Prefixes": len(w.Prefixes) > 0,
			"ipv6AddressCount": w.IPv6Count > 0, "ipv6Addresses": len(w.IPv6) > 0,
			"ipv6PrefixCount": w.IPv6PrefixCount > 0, "ipv6Prefixes": len(w.IPv6Prefixes) > 0,
		}
		return slices.DeleteFunc(names, func(name string) bool { return !there[name] })
	}
	groups := [][]string{
		{"secondaryPrivateIpAddressCount", "privateIpAddresses"}, {"ipv4PrefixCount", "ipv4Prefixes"},
		{"ipv6AddressCount", "ipv6Addresses"}, {"ipv6PrefixCount", "ipv6Prefixes"},
	}
	if !mixed {
		groups = [][]string{slices.Concat(groups[0], groups[1]), slices.Concat(groups[2], groups[3])}
	}
	for _, names := range groups {
		if both := given(names...); len(both) > 1 {
			return together(both[0], both[1])
		}
	}
	return nil
}

// checkLists refuses explicit addresses and prefixes that cannot be had.
func (w want) checkLists(s *subnet) *Error {
	if err := distinct(w.Addresses); err != nil {
		return err
	}
	if err := distinct(w.IPv6); err != nil {
		return err
	}
	for _, a := range w.Addresses {
		if err := s.checkExplicit(a); err != nil {
			return err
		}
	}
	for i, p := range w.Prefixes {
		if err := s.checkPrefix(p); err != nil {
			return err
		}
		if overlapping(p, w.Prefixes[:i], w.Addresses) {
			return refuse(CodeParameterValue, "invalid value for parameter ipv4Prefix: %s (given twice)", p)
		}
	}
	for _, a := range w.IPv6 {
		if err := s.check6(a); err != nil {
			return err
		}
	}
	for i, p := range w.IPv6Prefixes {
		if err := s.checkPrefix6(p); err != nil {
			return err
		}
		if overlapping(p, w.IPv6Prefixes[:i], w.IPv6) {
			return refuse(CodeParameterValue, "invalid value for parameter ipv6Prefix: %s (given twice)", p)
		}
	}
	return nil
}

func overlapping(p netip.Prefix, others []netip.Prefix, addrs []netip.Addr) bool {
	return slices.Contains(others, p) || slices.ContainsFunc(addrs, p.Contains)
}

func distinct(addrs []netip.Addr) *Error {
	seen := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if seen[a] {
			return refuse(CodeParameterValue, "invalid value for parameter address: %s (given twice)", a)
		}
		seen[a] = true
	}
	return nil
}

// claim takes all that is wanted for owner, or nothing: then it is an error and the subnet is as before. What it gives has only
// lists, ascending. Lists have been checked.
func (v *VPC) claim(s *subnet, w want, owner string) (want, *Error) {
	if w.slots6() > 0 && !s.six.cidr.IsValid() {
		return want{}, refuse(CodeParameterValue, "The subnet '%s' has no IPv6 CIDR block", s.ID)
	}
	if err := s.checkBlocks(w.PrefixCount, w.Count, w, v.opts.Inferred.ShortIsBlocks); err != nil {
		return want{}, err
	}
	got := want{IPv6: slices.Clone(w.IPv6), IPv6Prefixes: slices.Clone(w.IPv6Prefixes)}
	if err := v.claim6(s, w, &got, owner); err != nil {
		return want{}, err
	}
	got.Addresses, got.Prefixes = slices.Clone(w.Addresses), slices.Clone(w.Prefixes)
	for _, a := range w.Addresses {
		s.take(a, owner)
	}
	for _, p := range w.Prefixes {
		s.holdBlock(p, owner)
	}
	for range w.PrefixCount { // before single addresses are drawn: those fit everywhere
		got.Prefixes = append(got.Prefixes, s.takeBlock(v.choices, v.now, owner))
	}
	for range w.Count {
		got.Addresses = append(got.Addresses, s.takeRandom(v.choices, v.now, owner))
	}
	got.sort()
	v.usage[s.VPCID] += got.slots4() + got.slots6()
	v.noteCount(s)
	return got, nil
}

// claim6 takes the IPv6 part; got has the lists already.
func (v *VPC) claim6(s *subnet, w want, got *want, owner string) *Error {
	for _, a := range w.IPv6 {
		s.six.take(a, owner)
	}
	for _, p := range w.IPv6Prefixes {
		s.six.blocks[p] = owner
	}
	var failure *Error
	for range w.IPv6PrefixCount {
		p, found := s.drawBlock6(v.choices)
		if !found {
			failure = noBlocks()
			break
		}
		s.six.blocks[p] = owner
		got.IPv6Prefixes = append(got.IPv6Prefixes, p)
	}
	for range w.IPv6Count {
		a, found := s.draw6(v.choices)
		if !found {
			failure = subnetFull()
			break
		}
		s.six.take(a, owner)
		got.IPv6 = append(got.IPv6, a)
	}
	if failure != nil {
		s.free6(*got)
	}
	return failure
}

func (s *subnet) free6(w want) {
	for _, a := range w.IPv6 {
		s.six.release(a)
	}
	for _, p := range w.IPv6Prefixes {
		delete(s.six.blocks, p)
	}
}

// unclaim gives back to the subnet.
func (v *VPC) unclaim(s *subnet, w want) {
	for _, a := range w.Addresses {
		s.release(a, v.now, v.opts.ReuseDelay)
	}
	for _, p := range w.Prefixes {
		s.releaseBlock(p, v.now, v.opts.ReuseDelay)
	}
	s.free6(w)
	v.usage[s.VPCID] -= w.slots4() + w.slots6()
	v.noteCount(s)
}

func (w *want) sort() {
	slices.SortFunc(w.Addresses, netip.Addr.Compare)
	slices.SortFunc(w.IPv6, netip.Addr.Compare)
	slices.SortFunc(w.Prefixes, comparePrefix)
	slices.SortFunc(w.IPv6Prefixes, comparePrefix)
}

func comparePrefix(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }

// all is everything of the list in one form: an address is a prefix of one.
func (w want) all() []netip.Prefix {
	var out []netip.Prefix
	for _, list := range [][]netip.Addr{w.Addresses, w.IPv6} {
		for _, a := range list {
			out = append(out, single(a))
		}
	}
	return slices.Concat(out, w.Prefixes, w.IPv6Prefixes)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// holding is all that an ENI holds.
func (e *ENI) holding() want {
	return want{Addresses: e.Addresses(), Prefixes: e.Prefixes, IPv6: e.IPv6, IPv6Prefixes: e.IPv6Prefixes}
}

// grow adds what was claimed to a copy of an ENI, stores it and tells of it.
func (v *VPC) grow(old *ENI, got want) {
	if len(got.all()) == 0 {
		return
	}
	e := edit(old)
	have := want{
		Addresses: slices.Concat(e.Secondary, got.Addresses), Prefixes: slices.Concat(e.Prefixes, got.Prefixes),
		IPv6: slices.Concat(e.IPv6, got.IPv6), IPv6Prefixes: slices.Concat(e.IPv6Prefixes, got.IPv6Prefixes),
	}
	have.sort()
	e.Secondary, e.Prefixes, e.IPv6, e.IPv6Prefixes = have.Addresses, have.Prefixes, have.IPv6, have.IPv6Prefixes
	v.put(e)
	v.tell(AddressAssigned, PrefixAssigned, e, got)
	v.showAssigned(e, got.all())
}

// shrink takes addresses and prefixes off a copy of an ENI, stores it and tells of it; what becomes of them is the caller's.
func (v *VPC) shrink(old *ENI, gone want) {
	e := edit(old)
	e.Secondary = without(e.Secondary, gone.Addresses)
	e.Prefixes = without(e.Prefixes, gone.Prefixes)
	e.IPv6 = without(e.IPv6, gone.IPv6)
	e.IPv6Prefixes = without(e.IPv6Prefixes, gone.IPv6Prefixes)
	if !slices.Contains(e.IPv6, e.PrimaryIPv6) {
		e.PrimaryIPv6 = netip.Addr{}
	}
	v.put(e)
	gone.sort()
	v.tell(AddressUnassigned, PrefixUnassigned, e, gone)
	v.showUnassigned(e, gone.all())
}

func without[T comparable](list, gone []T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return slices.Contains(gone, x) })
}

// tell emits one event for each address and prefix.
func (v *VPC) tell(single, prefix string, e *ENI, w want) {
	for _, p := range w.all() {
		event := Event{Kind: single, Instance: instanceOf(e), ENI: e.ID, Addr: p.Addr()}
		if !p.IsSingleIP() {
			event.Kind, event.Detail = prefix, p.String()
		}
		v.emit(event)
	}
}
