package vpc

import (
	"net/netip"
	"slices"
	"time"
)

// AssignPrivateIpAddressesInput asks for secondary addresses: either Count drawn ones or the given ones.
type AssignPrivateIpAddressesInput struct {
	NetworkInterfaceID string
	Count              int
	Addresses          []netip.Addr
	AllowReassignment  bool // take addresses that are another ENI's secondary ones
	PrefixCount        int
	Prefixes           []netip.Prefix // IPv4
}

// Assigned is what an Assign newly assigned, ascending.
type Assigned struct {
	Addresses []netip.Addr
	Prefixes  []netip.Prefix
}

// AssignPrivateIpAddresses is AssignPrivate for callers that ask for addresses only.
func (v *VPC) AssignPrivateIpAddresses(now time.Time, in AssignPrivateIpAddressesInput) ([]netip.Addr, error) {
	got, err := v.AssignPrivate(now, in)
	return got.Addresses, err
}

// AssignPrivate (EC2: AssignPrivateIpAddresses) adds all the addresses or prefixes or none, and gives those that this call newly
// assigned. It is not idempotent: a repeated call assigns again.
func (v *VPC) AssignPrivate(now time.Time, in AssignPrivateIpAddressesInput) (Assigned, error) {
	v.begin(now)
	defer v.end()
	e, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return Assigned{}, err
	}
	w := want{Addresses: in.Addresses, Count: in.Count, Prefixes: in.Prefixes, PrefixCount: in.PrefixCount}
	if err := w.checkForm(v.opts.Inferred.MixedLists); err != nil {
		return Assigned{}, err
	}
	if w.slots4() == 0 {
		return Assigned{}, refuse(CodeMissingParameter, "The request must contain the parameter secondaryPrivateIpAddressCount or privateIpAddresses")
	}
	sub := v.subnets[e.SubnetID]
	w, moved, err := v.reassignments(e, sub, w, in.AllowReassignment)
	if err != nil {
		return Assigned{}, err
	}
	if err := v.checkGrow(e, sub, w, len(moved)); err != nil {
		return Assigned{}, err
	}
	got, refusal := v.claim(sub, w, e.ID)
	if refusal != nil {
		return Assigned{}, refusal
	}
	for _, a := range moved {
		v.shrink(v.enis[sub.owner(a)], want{Addresses: []netip.Addr{a}})
		sub.holder[sub.offset(a)] = e.ID
		got.Addresses = append(got.Addresses, a)
	}
	got.sort()
	v.grow(e, got)
	return Assigned{got.Addresses, got.Prefixes}, nil
}

// reassignments parts explicit addresses: those that move from another ENI (or are here already, which is nothing to do) go
// out of the want.
func (v *VPC) reassignments(e *ENI, sub *subnet, w want, allowed bool) (want, []netip.Addr, error) {
	if err := distinct(w.Addresses); err != nil {
		return w, nil, err
	}
	var fresh, moved []netip.Addr
	for _, a := range w.Addresses {
		if err := sub.checkInside(a); err != nil {
			return w, nil, err
		}
		holder := sub.owner(a)
		other := v.enis[holder] // nil: nobody's, or a service's
		switch {
		case holder == "":
			fresh = append(fresh, a)
		case other != nil && allowed && slices.Contains(other.Secondary, a):
			if other != e {
				moved = append(moved, a)
			}
		case other != nil && other != e && slices.Contains(other.Secondary, a):
			return w, nil, refuse(CodeAlreadyAssigned, "%s is already assigned to %s: the specified address is already in use", a, other.ID)
		default:
			return w, nil, addressInUse(a)
		}
	}
	w.Addresses = fresh
	return w, moved, nil
}

// checkGrow refuses what the ENI's type, its VPC's quota or its subnet's books do not allow.
func (v *VPC) checkGrow(e *ENI, sub *subnet, w want, moved int) error {
	if err := v.checkSlots(e, w, moved); err != nil {
		return err
	}
	if more := w.slots4() + w.slots6(); more > 0 { // what moves is counted already
		if err := v.checkUsage(e.VPCID, more); err != nil {
			return err
		}
	}
	if err := w.checkLists(sub); err != nil {
		return err
	}
	return nil
}

// checkSlots: before it is attached, an ENI's type is not known, and the most that any type has counts.
func (v *VPC) checkSlots(e *ENI, w want, moved int) error {
	if e.InterfaceType == EFAOnly {
		return refuse(CodeParameterCombination, "Interface %s is of type '%s' and has no IP addresses", e.ID, EFAOnly)
	}
	limit4, limit6 := MaxIPv4PerENI, MaxIPv4PerENI
	if e.Attachment != nil {
		t := v.instances[e.Attachment.InstanceID].Limits
		if (len(w.Prefixes)+w.PrefixCount+len(w.IPv6Prefixes)+w.IPv6PrefixCount) > 0 && !t.TakesPrefixes() {
			return v.prefixOnXen(t)
		}
		limit4, limit6 = t.IPv4, t.IPv6
	} else if v.opts.Inferred.LateAddressLimit {
		return nil
	}
	if e.slots4()+w.slots4()+moved > limit4 && w.slots4()+moved > 0 || e.slots6()+w.slots6() > limit6 && w.slots6() > 0 {
		return tooManyAddresses()
	}
	return nil
}

func (v *VPC) prefixOnXen(t InstanceType) *Error {
	return refuse(v.opts.Inferred.PrefixOnXen, "Prefix delegation is not supported on instance type %s", t.Name)
}

func tooManyAddresses() *Error {
	return refuse(CodePrivateIPLimit, "Number of private addresses will exceed limit.")
}

// UnassignPrivateIpAddressesInput names secondary addresses or prefixes to give back.
type UnassignPrivateIpAddressesInput struct {
	NetworkInterfaceID string
	Addresses          []netip.Addr
	Prefixes           []netip.Prefix
}

// UnassignPrivateIpAddresses gives back all the addresses and prefixes or none.
func (v *VPC) UnassignPrivateIpAddresses(now time.Time, in UnassignPrivateIpAddressesInput) error {
	v.begin(now)
	defer v.end()
	e, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return err
	}
	if len(in.Addresses)+len(in.Prefixes) == 0 {
		return refuse(CodeMissingParameter, "The request must contain the parameter privateIpAddresses")
	}
	if len(in.Addresses) > 0 && len(in.Prefixes) > 0 && !v.opts.Inferred.MixedLists {
		return together("privateIpAddresses", "ipv4Prefixes")
	}
	if slices.Contains(in.Addresses, e.Primary) {
		return refuse(CodeParameterValue, "The primary address %s of interface %s cannot be unassigned", e.Primary, e.ID)
	}
	gone, refusal := v.checkUnassign(e, want{Addresses: in.Addresses, Prefixes: in.Prefixes}, want{Addresses: e.Secondary, Prefixes: e.Prefixes})
	if refusal != nil {
		return refusal
	}
	v.giveUp(e, gone)
	return nil
}

// checkUnassign gives what is to go: all of the list, which must be there.
func (v *VPC) checkUnassign(e *ENI, list, have want) (want, *Error) {
	seen := map[netip.Prefix]bool{}
	for _, p := range list.all() {
		if seen[p] {
			return want{}, refuse(CodeParameterValue, "invalid value for parameter address: %s (given twice)", p.Addr())
		}
		seen[p] = true
	}
	known := want{
		Addresses: common(list.Addresses, have.Addresses), IPv6: common(list.IPv6, have.IPv6),
		Prefixes: common(list.Prefixes, have.Prefixes), IPv6Prefixes: common(list.IPv6Prefixes, have.IPv6Prefixes),
	}
	if len(known.all()) == len(list.all()) || v.opts.Inferred.UnassignKnown && len(known.all()) > 0 {
		return known, nil
	}
	return want{}, refuse(CodeParameterValue, "Some of the specified addresses are not assigned to interface %s", e.ID)
}

func common[T comparable](list, have []T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !slices.Contains(have, x) })
}

func (v *VPC) giveUp(e *ENI, gone want) {
	v.shrink(e, gone)
	v.unclaim(v.subnets[e.SubnetID], gone)
}
