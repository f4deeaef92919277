package vpc

import "time"

// CreateSubnetCIDRReservation keeps a part of a subnet from automatic assignment; what is held there already stays held. An
// empty ID is drawn.
func (v *VPC) CreateSubnetCIDRReservation(now time.Time, r CIDRReservation) (CIDRReservation, error) {
	v.begin(now)
	defer v.end()
	sub, err := v.subnet(r.SubnetID)
	if err != nil {
		return CIDRReservation{}, err
	}
	if err := checkTags(nil, r.Tags); err != nil {
		return CIDRReservation{}, err
	}
	within := r.CIDR.IsValid() && r.CIDR.Masked() == r.CIDR &&
		(sub.CIDR.IsValid() && r.CIDR.Addr().Is4() && sub.CIDR.Contains(r.CIDR.Addr()) && r.CIDR.Bits() >= sub.CIDR.Bits() ||
			sub.IPv6CIDR.IsValid() && r.CIDR.Addr().Is6() && sub.IPv6CIDR.Contains(r.CIDR.Addr()) && r.CIDR.Bits() >= sub.IPv6CIDR.Bits())
	switch {
	case !within:
		return CIDRReservation{}, refuse(CodeParameterValue, "Value (%s) for parameter cidr is invalid. A network inside the subnet is wanted.", r.CIDR)
	case r.Type != ReservePrefix && r.Type != ReserveExplicit:
		return CIDRReservation{}, refuse(CodeParameterValue, "Value (%s) for parameter reservationType is invalid.", clip(r.Type))
	case sub.reservationOf(r.CIDR) != nil:
		return CIDRReservation{}, refuse(CodeParameterValue, "The CIDR '%s' conflicts with another reservation of the subnet", r.CIDR)
	}
	if r.ID == "" {
		r.ID = drawID(v.minor, kindReservation().prefix)
	}
	stored := r.clone()
	v.reservations[r.ID] = &stored
	sub.reserve(&stored, true)
	v.emit(Event{Kind: ReservationAdded, Detail: r.ID})
	return stored.clone(), nil
}

// DeleteSubnetCIDRReservation ends a reservation, and gives it.
func (v *VPC) DeleteSubnetCIDRReservation(now time.Time, id string) (CIDRReservation, error) {
	v.begin(now)
	defer v.end()
	r, err := lookup(kindReservation(), v.reservations)(id)
	if err != nil {
		return CIDRReservation{}, err
	}
	v.subnets[r.SubnetID].reserve(r, false)
	delete(v.reservations, id)
	v.emit(Event{Kind: ReservationDeleted, Detail: id})
	return r.clone(), nil
}

// CIDRReservations gives the reservations of a subnet ("": all), ascending by id.
func (v *VPC) CIDRReservations(subnet string) []CIDRReservation {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []CIDRReservation
	for _, r := range all(v.reservations, (*CIDRReservation).clone) {
		if subnet == "" || r.SubnetID == subnet {
			out = append(out, r)
		}
	}
	return out
}
