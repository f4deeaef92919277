package vpc

import (
	"net/netip"
	"time"
)

// AssignIpv6AddressesInput asks for IPv6 addresses or prefixes, drawn or given.
type AssignIpv6AddressesInput struct {
	NetworkInterfaceID string
	Count              int
	Addresses          []netip.Addr
	PrefixCount        int
	Prefixes           []netip.Prefix // /80
}

// AssignIpv6Addresses adds all or nothing, and gives what this call newly assigned.
func (v *VPC) AssignIpv6Addresses(now time.Time, in AssignIpv6AddressesInput) (Assigned, error) {
	v.begin(now)
	defer v.end()
	e, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return Assigned{}, err
	}
	w := want{IPv6: in.Addresses, IPv6Count: in.Count, IPv6Prefixes: in.Prefixes, IPv6PrefixCount: in.PrefixCount}
	if err := w.checkForm(v.opts.Inferred.MixedLists); err != nil {
		return Assigned{}, err
	}
	if w.slots6() == 0 {
		return Assigned{}, refuse(CodeMissingParameter, "The request must contain the parameter ipv6AddressCount or ipv6Addresses")
	}
	sub := v.subnets[e.SubnetID]
	if err := v.checkGrow(e, sub, w, 0); err != nil {
		return Assigned{}, err
	}
	got, refusal := v.claim(sub, w, e.ID)
	if refusal != nil {
		return Assigned{}, refusal
	}
	v.grow(e, got)
	return Assigned{got.IPv6, got.IPv6Prefixes}, nil
}

// UnassignIpv6AddressesInput names IPv6 addresses or prefixes to give back.
type UnassignIpv6AddressesInput struct {
	NetworkInterfaceID string
	Addresses          []netip.Addr
	Prefixes           []netip.Prefix
}

// UnassignIpv6Addresses gives back all or nothing, and what it gave back.
func (v *VPC) UnassignIpv6Addresses(now time.Time, in UnassignIpv6AddressesInput) (Assigned, error) {
	v.begin(now)
	defer v.end()
	e, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return Assigned{}, err
	}
	if len(in.Addresses)+len(in.Prefixes) == 0 {
		return Assigned{}, refuse(CodeMissingParameter, "The request must contain the parameter ipv6Addresses")
	}
	for _, a := range in.Addresses {
		if a == e.PrimaryIPv6 {
			return Assigned{}, refuse(CodeParameterValue, "The primary IPv6 address %s of interface %s cannot be unassigned", a, e.ID)
		}
	}
	gone, refusal := v.checkUnassign(e, want{IPv6: in.Addresses, IPv6Prefixes: in.Prefixes}, want{IPv6: e.IPv6, IPv6Prefixes: e.IPv6Prefixes})
	if refusal != nil {
		return Assigned{}, refusal
	}
	v.giveUp(e, gone)
	return Assigned{gone.IPv6, gone.IPv6Prefixes}, nil
}
