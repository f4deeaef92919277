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
}

// AssignPrivateIpAddresses adds all the addresses or none, and gives those that this call newly assigned, ascending. It is
// not idempotent: a repeated call assigns again.
func (v *VPC) AssignPrivateIpAddresses(now time.Time, in AssignPrivateIpAddressesInput) ([]netip.Addr, error) {
	v.begin(now)
	defer v.end()
	e, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Count != 0 && len(in.Addresses) > 0:
		return nil, refuse(CodeParameterCombination, "The parameters secondaryPrivateIpAddressCount and privateIpAddresses may not be used together")
	case in.Count < 0:
		return nil, refuse(CodeParameterValue, "invalid value for parameter secondaryPrivateIpAddressCount: %d", in.Count)
	case in.Count == 0 && len(in.Addresses) == 0:
		return nil, refuse(CodeMissingParameter, "The request must contain the parameter secondaryPrivateIpAddressCount or privateIpAddresses")
	}
	sub := v.subnets[e.SubnetID]
	wanted, err := v.checkAssign(e, sub, in)
	if err != nil {
		return nil, err
	}
	fresh := make([]netip.Addr, 0, in.Count+len(wanted))
	for _, a := range wanted {
		if from := sub.owner(a); from != "" {
			v.unassign(v.enis[from], []netip.Addr{a})
		}
		sub.take(a, e.ID)
		fresh = append(fresh, a)
	}
	for range in.Count {
		fresh = append(fresh, sub.takeRandom(v.choices, v.now, e.ID))
	}
	slices.SortFunc(fresh, netip.Addr.Compare)
	v.assigned(e, fresh)
	return fresh, nil
}

func (v *VPC) assigned(old *ENI, fresh []netip.Addr) {
	if len(fresh) == 0 {
		return
	}
	e := edit(old)
	e.Secondary = slices.Concat(e.Secondary, fresh)
	slices.SortFunc(e.Secondary, netip.Addr.Compare)
	v.put(e)
	for _, a := range fresh {
		v.emit(Event{Kind: AddressAssigned, Instance: instanceOf(e), ENI: e.ID, Addr: a})
	}
}

// checkAssign refuses what cannot be done whole, and gives the explicit addresses that the ENI does not hold yet.
func (v *VPC) checkAssign(e *ENI, sub *subnet, in AssignPrivateIpAddressesInput) ([]netip.Addr, error) {
	if err := distinct(in.Addresses); err != nil {
		return nil, err
	}
	var wanted []netip.Addr
	for _, a := range in.Addresses {
		if err := sub.checkInside(a); err != nil {
			return nil, err
		}
		holder := sub.owner(a)
		if holder == e.ID && in.AllowReassignment && a != e.Primary {
			continue
		}
		if holder != "" {
			other := v.enis[holder] // nil: a service's address
			if !in.AllowReassignment || other == nil || other.Primary == a {
				return nil, addressInUse(a)
			}
		}
		wanted = append(wanted, a)
	}
	limit := MaxIPv4PerENI
	if e.Attachment != nil {
		limit = v.instances[e.Attachment.InstanceID].Limits.IPv4
	}
	if 1+len(e.Secondary)+len(wanted)+in.Count > limit {
		return nil, tooManyAddresses()
	}
	if in.Count > sub.available() {
		return nil, sub.full()
	}
	return wanted, nil
}

// UnassignPrivateIpAddressesInput names secondary addresses to give back.
type UnassignPrivateIpAddressesInput struct {
	NetworkInterfaceID string
	Addresses          []netip.Addr
}

// UnassignPrivateIpAddresses gives back all the addresses or none.
func (v *VPC) UnassignPrivateIpAddresses(now time.Time, in UnassignPrivateIpAddressesInput) error {
	v.begin(now)
	defer v.end()
	e, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return err
	}
	if len(in.Addresses) == 0 {
		return refuse(CodeMissingParameter, "The request must contain the parameter privateIpAddresses")
	}
	if err := distinct(in.Addresses); err != nil {
		return err
	}
	for _, a := range in.Addresses {
		if a == e.Primary {
			return refuse(CodeParameterValue, "The primary address %s of interface %s cannot be unassigned", a, e.ID)
		}
		if !e.Holds(a) {
			return refuse(CodeParameterValue, "Some of the specified addresses are not assigned to interface %s", e.ID)
		}
	}
	v.unassign(e, in.Addresses)
	sub := v.subnets[e.SubnetID]
	for _, a := range in.Addresses {
		sub.release(a, v.now, v.opts.ReuseDelay)
	}
	return nil
}

// unassign takes addresses off an ENI; what becomes of them is the caller's business.
func (v *VPC) unassign(old *ENI, addrs []netip.Addr) {
	e := edit(old)
	e.Secondary = slices.DeleteFunc(slices.Clone(e.Secondary), func(a netip.Addr) bool { return slices.Contains(addrs, a) })
	v.put(e)
	for _, a := range slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare) {
		v.emit(Event{Kind: AddressUnassigned, Instance: instanceOf(e), ENI: e.ID, Addr: a})
	}
}
