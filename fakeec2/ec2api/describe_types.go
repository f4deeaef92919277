package ec2api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type describeTypesInput struct {
	dryRun
	pageInput
	InstanceType []string      `query:"InstanceType"`
	Filter       []filterInput `query:"Filter"`
}

type describeTypesOutput struct {
	head
	Types     set[typeXML] `xml:"instanceTypeSet"`
	NextToken string       `xml:"nextToken,omitempty"`
}

type typeXML struct {
	Name              string     `xml:"instanceType"`
	CurrentGeneration bool       `xml:"currentGeneration"`
	BareMetal         bool       `xml:"bareMetal"`
	Hypervisor        string     `xml:"hypervisor,omitempty"` // bare metal has none
	Network           networkXML `xml:"networkInfo"`
}

type networkXML struct {
	ENIs          int          `xml:"maximumNetworkInterfaces"`
	CardCount     int          `xml:"maximumNetworkCards"`
	DefaultCard   int          `xml:"defaultNetworkCardIndex"`
	Cards         set[cardXML] `xml:"networkCards"`
	IPv4          int          `xml:"ipv4AddressesPerInterface"`
	IPv6          int          `xml:"ipv6AddressesPerInterface"`
	IPv6Supported bool         `xml:"ipv6Supported"`
	ENA           string       `xml:"enaSupport"`
	EFA           bool         `xml:"efaSupported"`
}

type cardXML struct {
	Index int `xml:"networkCardIndex"`
	ENIs  int `xml:"maximumNetworkInterfaces"`
}

func describeInstanceTypes(c *call, in describeTypesInput) (response, error) {
	if err := in.check(in.InstanceType, "instanceTypes", maxTypesPage); err != nil {
		return nil, err
	}
	match, err := typeFilters().compile(in.Filter)
	if err != nil {
		return nil, err
	}
	types := c.vpc.InstanceTypes()
	for _, name := range in.InstanceType {
		if !slices.ContainsFunc(types, func(t vpc.InstanceType) bool { return t.Name == name }) {
			return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", clip(name))
		}
	}
	if len(in.InstanceType) > 0 {
		types = keep(types, func(t *vpc.InstanceType) bool { return slices.Contains(in.InstanceType, t.Name) })
	}
	types, next, err := page(keep(types, match), in.pageInput, filterDigest(in.Filter), func(t *vpc.InstanceType) string { return t.Name })
	if err != nil {
		return nil, err
	}
	return &describeTypesOutput{Types: setOf(types, typeElement), NextToken: next}, nil
}

func typeElement(t vpc.InstanceType) typeXML {
	x := typeXML{
		Name: t.Name, CurrentGeneration: t.Hypervisor != vpc.Xen, BareMetal: t.BareMetal, Hypervisor: t.Hypervisor,
		Network: networkXML{ENIs: t.ENIs, CardCount: len(t.Cards), DefaultCard: t.DefaultCard, IPv4: t.IPv4, IPv6: t.IPv6, IPv6Supported: true, ENA: "required", EFA: t.EFA},
	}
	if t.Hypervisor == vpc.Xen {
		x.Network.ENA = "supported"
	}
	for index, enis := range t.Cards {
		x.Network.Cards.Items = append(x.Network.Cards.Items, cardXML{index, enis})
	}
	return x
}

func typeFilters() filters[vpc.InstanceType] {
	number := func(get func(*vpc.InstanceType) int) func(*vpc.InstanceType) []string {
		return func(t *vpc.InstanceType) []string { return []string{strconv.Itoa(get(t))} }
	}
	return filters[vpc.InstanceType]{
		tags: func(*vpc.InstanceType) map[string]string { return nil },
		names: map[string]func(*vpc.InstanceType) []string{
			"instance-type": func(t *vpc.InstanceType) []string { return []string{t.Name} },
			"hypervisor":    func(t *vpc.InstanceType) []string { return strings.Fields(t.Hypervisor) },
			"bare-metal":    func(t *vpc.InstanceType) []string { return []string{strconv.FormatBool(t.BareMetal)} },
			"network-info.maximum-network-interfaces":   number(func(t *vpc.InstanceType) int { return t.ENIs }),
			"network-info.ipv4-addresses-per-interface": number(func(t *vpc.InstanceType) int { return t.IPv4 }),
		},
	}
}
