package ec2api

import (
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// assignInput has no DryRun, and neither have its three like: EC2 knows none there.
type assignInput struct {
	NetworkInterfaceID string   `query:"NetworkInterfaceId,required"`
	PrivateIPAddress   []string `query:"PrivateIpAddress"`
	SecondaryCount     *int     `query:"SecondaryPrivateIpAddressCount"`
	Prefix             []string `query:"Ipv4Prefix"`
	PrefixCount        *int     `query:"Ipv4PrefixCount"`
	AllowReassignment  bool     `query:"AllowReassignment"`
}

type assignOutput struct {
	head
	NetworkInterfaceID string             `xml:"networkInterfaceId"`
	Assigned           set[assignedIPXML] `xml:"assignedPrivateIpAddressesSet"`
	Prefixes           set[prefixXML]     `xml:"assignedIpv4PrefixSet"`
}

type assignedIPXML struct {
	Address string `xml:"privateIpAddress"`
}

// positive takes a count that was given: zero is no count.
func positive(name string, given *int) (int, error) {
	if given == nil {
		return 0, nil
	}
	if *given <= 0 {
		return 0, refuse("InvalidParameterValue", "invalid value for parameter %s: %d", name, *given)
	}
	return *given, nil
}

func itself(text string) string { return text }

func assignPrivateIpAddresses(c *call, in assignInput) (response, error) {
	assign := vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: in.NetworkInterfaceID, AllowReassignment: in.AllowReassignment}
	var err error
	if assign.Addresses, err = parseAddrs(in.PrivateIPAddress, netip.Addr.Is4); err != nil {
		return nil, err
	}
	if assign.Prefixes, err = parsePrefixes(in.Prefix, itself); err != nil {
		return nil, err
	}
	if assign.Count, err = positive("secondaryPrivateIpAddressCount", in.SecondaryCount); err != nil {
		return nil, err
	}
	if assign.PrefixCount, err = positive("ipv4PrefixCount", in.PrefixCount); err != nil {
		return nil, err
	}
	fresh, err := c.vpc.AssignPrivate(c.now(), assign)
	if err != nil {
		return nil, err
	}
	return &assignOutput{
		NetworkInterfaceID: in.NetworkInterfaceID, Prefixes: prefixSet(fresh.Prefixes),
		Assigned: setOf(fresh.Addresses, func(a netip.Addr) assignedIPXML { return assignedIPXML{a.String()} }),
	}, nil
}

type unassignInput struct {
	NetworkInterfaceID string   `query:"NetworkInterfaceId,required"`
	PrivateIPAddress   []string `query:"PrivateIpAddress"`
	Prefix             []string `query:"Ipv4Prefix"`
}

func unassignPrivateIpAddresses(c *call, in unassignInput) (response, error) {
	addrs, err := parseAddrs(in.PrivateIPAddress, netip.Addr.Is4)
	if err != nil {
		return nil, err
	}
	prefixes, err := parsePrefixes(in.Prefix, itself)
	if err != nil {
		return nil, err
	}
	return &done{Return: true}, c.vpc.UnassignPrivateIpAddresses(c.now(), vpc.UnassignPrivateIpAddressesInput{
		NetworkInterfaceID: in.NetworkInterfaceID, Addresses: addrs, Prefixes: prefixes,
	})
}

type assign6Input struct {
	NetworkInterfaceID string   `query:"NetworkInterfaceId,required"`
	Address            []string `query:"Ipv6Addresses"`
	Count              *int     `query:"Ipv6AddressCount"`
	Prefix             []string `query:"Ipv6Prefix"`
	PrefixCount        *int     `query:"Ipv6PrefixCount"`
}

type assign6Output struct {
	head
	NetworkInterfaceID string      `xml:"networkInterfaceId"`
	Assigned           set[string] `xml:"assignedIpv6Addresses"`
	Prefixes           set[string] `xml:"assignedIpv6PrefixSet"`
}

func assignIpv6Addresses(c *call, in assign6Input) (response, error) {
	assign := vpc.AssignIpv6AddressesInput{NetworkInterfaceID: in.NetworkInterfaceID}
	var err error
	if assign.Addresses, err = parseAddrs(in.Address, netip.Addr.Is6); err != nil {
		return nil, err
	}
	if assign.Prefixes, err = parsePrefixes(in.Prefix, itself); err != nil {
		return nil, err
	}
	if assign.Count, err = positive("ipv6AddressCount", in.Count); err != nil {
		return nil, err
	}
	if assign.PrefixCount, err = positive("ipv6PrefixCount", in.PrefixCount); err != nil {
		return nil, err
	}
	fresh, err := c.vpc.AssignIpv6Addresses(c.now(), assign)
	if err != nil {
		return nil, err
	}
	return &assign6Output{
		NetworkInterfaceID: in.NetworkInterfaceID,
		Assigned:           setOf(fresh.Addresses, netip.Addr.String), Prefixes: setOf(fresh.Prefixes, netip.Prefix.String),
	}, nil
}

type unassign6Input struct {
	NetworkInterfaceID string   `query:"NetworkInterfaceId,required"`
	Address            []string `query:"Ipv6Addresses"`
	Prefix             []string `query:"Ipv6Prefix"`
}

type unassign6Output struct {
	head
	NetworkInterfaceID string      `xml:"networkInterfaceId"`
	Unassigned         set[string] `xml:"unassignedIpv6Addresses"`
	Prefixes           set[string] `xml:"unassignedIpv6PrefixSet"`
}

func unassignIpv6Addresses(c *call, in unassign6Input) (response, error) {
	addrs, err := parseAddrs(in.Address, netip.Addr.Is6)
	if err != nil {
		return nil, err
	}
	prefixes, err := parsePrefixes(in.Prefix, itself)
	if err != nil {
		return nil, err
	}
	gone, err := c.vpc.UnassignIpv6Addresses(c.now(), vpc.UnassignIpv6AddressesInput{
		NetworkInterfaceID: in.NetworkInterfaceID, Addresses: addrs, Prefixes: prefixes,
	})
	if err != nil {
		return nil, err
	}
	return &unassign6Output{
		NetworkInterfaceID: in.NetworkInterfaceID,
		Unassigned:         setOf(gone.Addresses, netip.Addr.String), Prefixes: setOf(gone.Prefixes, netip.Prefix.String),
	}, nil
}
