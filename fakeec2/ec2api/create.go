package ec2api

import (
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// eniInput is what CreateNetworkInterface and each NetworkInterface of RunInstances say in the same words.
type eniInput struct {
	SubnetID           string         `query:"SubnetId"`
	Description        string         `query:"Description"`
	InterfaceType      string         `query:"InterfaceType"`
	SecurityGroupID    []string       `query:"SecurityGroupId"`
	PrivateIPAddress   string         `query:"PrivateIpAddress"`
	PrivateIPAddresses []wantedIP     `query:"PrivateIpAddresses"`
	SecondaryCount     *int           `query:"SecondaryPrivateIpAddressCount"`
	PrefixCount        *int           `query:"Ipv4PrefixCount"`
	Prefix             []prefixInput  `query:"Ipv4Prefix"`
	IPv6Count          *int           `query:"Ipv6AddressCount"`
	IPv6               []ipv6Input    `query:"Ipv6Addresses"`
	IPv6PrefixCount    *int           `query:"Ipv6PrefixCount"`
	IPv6Prefix         []prefix6Input `query:"Ipv6Prefix"`
	Tracking           trackingInput  `query:"ConnectionTrackingSpecification"`
}

type createInput struct {
	dryRun
	eniInput
	ClientToken       string        `query:"ClientToken"`
	EnablePrimaryIPv6 bool          `query:"EnablePrimaryIpv6"`
	TagSpecification  []tagsForType `query:"TagSpecification"`
}

type wantedIP struct {
	PrivateIPAddress string `query:"PrivateIpAddress,required"`
	Primary          bool   `query:"Primary"`
}

type prefixInput struct {
	Prefix string `query:"Ipv4Prefix,required"`
}

type prefix6Input struct {
	Prefix string `query:"Ipv6Prefix,required"`
}

type ipv6Input struct {
	Address string `query:"Ipv6Address,required"`
	Primary bool   `query:"IsPrimaryIpv6"`
}

type trackingInput struct {
	TCPEstablished int `query:"TcpEstablishedTimeout"`
	UDPStream      int `query:"UdpStreamTimeout"`
	UDP            int `query:"UdpTimeout"`
}

type createOutput struct {
	head
	NetworkInterface eniXML `xml:"networkInterface"`
	ClientToken      string `xml:"clientToken,omitempty"`
}

func createNetworkInterface(c *call, in createInput) (response, error) {
	if in.SubnetID == "" {
		return nil, missing("SubnetId")
	}
	create, err := in.create()
	if err != nil {
		return nil, err
	}
	create.ClientToken = in.ClientToken
	create.EnablePrimaryIPv6 = create.EnablePrimaryIPv6 || in.EnablePrimaryIPv6
	tags, err := tagsFor(in.TagSpecification, "network-interface")
	if err != nil {
		return nil, err
	}
	create.Tags = tags["network-interface"]
	e, err := c.vpc.CreateNetworkInterface(c.now(), create)
	if err != nil {
		return nil, err
	}
	return &createOutput{NetworkInterface: c.painter().eni(e), ClientToken: in.ClientToken}, nil
}

// create gives the request in the model's words.
func (in eniInput) create() (vpc.CreateNetworkInterfaceInput, error) {
	create := vpc.CreateNetworkInterfaceInput{
		SubnetID: in.SubnetID, Description: in.Description, InterfaceType: in.InterfaceType, Groups: in.SecurityGroupID,
		Tracking: vpc.ConnectionTracking{TCPEstablished: in.Tracking.TCPEstablished, UDPStream: in.Tracking.UDPStream, UDP: in.Tracking.UDP},
	}
	if err := in.addresses(&create); err != nil {
		return create, err
	}
	for _, count := range []struct {
		from *int
		to   *int
	}{{in.PrefixCount, &create.PrefixCount}, {in.IPv6Count, &create.IPv6Count}, {in.IPv6PrefixCount, &create.IPv6PrefixCount}} {
		if count.from != nil {
			*count.to = *count.from
		}
	}
	var err error
	if create.Prefixes, err = parsePrefixes(in.Prefix, func(p prefixInput) string { return p.Prefix }); err != nil {
		return create, err
	}
	if create.IPv6Prefixes, err = parsePrefixes(in.IPv6Prefix, func(p prefix6Input) string { return p.Prefix }); err != nil {
		return create, err
	}
	return create, in.addIPv6(&create)
}

func (in eniInput) addIPv6(create *vpc.CreateNetworkInterfaceInput) error {
	for _, wanted := range in.IPv6 {
		a, err := parseAddr(wanted.Address, netip.Addr.Is6)
		switch {
		case err != nil:
			return err
		case !wanted.Primary:
			create.IPv6 = append(create.IPv6, a)
		case create.EnablePrimaryIPv6:
			return refuse("InvalidParameterCombination", "Only one primary IPv6 address may be specified")
		default: // the model takes the first one for the primary
			create.EnablePrimaryIPv6 = true
			create.IPv6 = append([]netip.Addr{a}, create.IPv6...)
		}
	}
	return nil
}

// addresses reads the three ways to ask for IPv4 addresses: a primary one, a list with one of them marked primary, a count.
func (in eniInput) addresses(create *vpc.CreateNetworkInterfaceInput) error {
	primary := in.PrivateIPAddress
	var secondary []string
	for _, wanted := range in.PrivateIPAddresses {
		switch {
		case !wanted.Primary:
			secondary = append(secondary, wanted.PrivateIPAddress)
		case primary != "":
			return refuse("InvalidParameterCombination", "Only one primary private IP address may be specified")
		default:
			primary = wanted.PrivateIPAddress
		}
	}
	if in.SecondaryCount != nil {
		if len(secondary) > 0 {
			return combination("secondaryPrivateIpAddressCount", "privateIpAddresses")
		}
		create.SecondaryCount = *in.SecondaryCount
	}
	var err error
	if primary != "" {
		if create.Primary, err = parseAddr(primary, netip.Addr.Is4); err != nil {
			return err
		}
	}
	create.Secondary, err = parseAddrs(secondary, netip.Addr.Is4)
	return err
}

func parseAddr(text string, family func(netip.Addr) bool) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !family(a) || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, refuse("InvalidParameterValue", "invalid value for parameter address: %s", clip(text))
	}
	return a, nil
}

func parseAddrs(texts []string, family func(netip.Addr) bool) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, text := range texts {
		a, err := parseAddr(text, family)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, refuse("InvalidParameterValue", "Value (%s) is not a valid CIDR block.", clip(text))
	}
	return p, nil
}

func parsePrefixes[T any](list []T, text func(T) string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, x := range list {
		p, err := parsePrefix(text(x))
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
