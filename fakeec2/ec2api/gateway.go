package ec2api

import (
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// gatewayActions give a VPC a way to the internet: EC2 makes VPCs without one.
func gatewayActions() map[string]action {
	gateway := []string{vpc.CodeGatewayMalformed, vpc.CodeGatewayNotFound}
	joint := append([]string{vpc.CodeVPCMalformed, vpc.CodeVPCNotFound}, gateway...)
	table := []string{vpc.CodeRouteTableMalformed, vpc.CodeRouteTableNotFound}
	targets := []string{"CarrierGatewayId", "CoreNetworkArn", "DestinationPrefixListId", "EgressOnlyInternetGatewayId", "InstanceId", "LocalGatewayId",
		"NatGatewayId", "NetworkInterfaceId", "OdbNetworkArn", "TransitGatewayId", "VpcEndpointId", "VpcPeeringConnectionId"}
	return map[string]action{
		"CreateInternetGateway": on(createInternetGateway).may(vpc.CodeTagLimit),
		"AttachInternetGateway": on(attachInternetGateway).may(append(joint, vpc.CodeAlreadyAssociated)...),
		"DetachInternetGateway": on(detachInternetGateway).may(append(joint, vpc.CodeNotAttached, vpc.CodeDependency)...),
		"DeleteInternetGateway": on(deleteInternetGateway).may(append(gateway, vpc.CodeDependency)...),
		"CreateRoute": on(createRoute, targets...).may(
			append(table, vpc.CodeGatewayMalformed, vpc.CodeGatewayNotFound, vpc.CodeRouteExists, vpc.CodeParameterCombination)...),
		"DeleteRoute": on(deleteRoute, "DestinationPrefixListId").may(append(table, vpc.CodeRouteNotFound, vpc.CodeParameterCombination)...),
	}
}

type createGatewayInput struct {
	dryRun
	TagSpecification []tagsForType `query:"TagSpecification"`
}

type createGatewayOutput struct {
	head
	Gateway gatewayXML `xml:"internetGateway"`
}

type gatewayXML struct {
	ID          string                   `xml:"internetGatewayId"`
	OwnerID     string                   `xml:"ownerId"`
	Attachments set[gatewayOfNetworkXML] `xml:"attachmentSet"`
	Tags        set[tagXML]              `xml:"tagSet"`
}

type gatewayOfNetworkXML struct {
	VPCID string `xml:"vpcId"`
	State string `xml:"state"`
}

// gatewayElement: the state of an attachment has a word of its own here, "available".
func gatewayElement(account string, g vpc.InternetGateway) gatewayXML {
	x := gatewayXML{ID: g.ID, OwnerID: account, Tags: tagSet(g.Tags)}
	if g.VPCID != "" {
		x.Attachments.Items = []gatewayOfNetworkXML{{g.VPCID, "available"}}
	}
	return x
}

func createInternetGateway(c *call, in createGatewayInput) (response, error) {
	tags, err := tagsFor(in.TagSpecification, "internet-gateway")
	if err != nil {
		return nil, err
	}
	g, err := c.vpc.CreateInternetGateway(c.now(), tags["internet-gateway"])
	if err != nil {
		return nil, err
	}
	return &createGatewayOutput{Gateway: gatewayElement(c.vpc.Account(), g)}, nil
}

type gatewayInput struct {
	dryRun
	ID    string `query:"InternetGatewayId,required"`
	VPCID string `query:"VpcId,required"`
}

func attachInternetGateway(c *call, in gatewayInput) (response, error) {
	return &done{Return: true}, c.vpc.AttachInternetGateway(c.now(), in.ID, in.VPCID)
}

func detachInternetGateway(c *call, in gatewayInput) (response, error) {
	return &done{Return: true}, c.vpc.DetachInternetGateway(c.now(), in.ID, in.VPCID)
}

type deleteGatewayInput struct {
	dryRun
	ID string `query:"InternetGatewayId,required"`
}

func deleteInternetGateway(c *call, in deleteGatewayInput) (response, error) {
	return &done{Return: true}, c.vpc.DeleteInternetGateway(c.now(), in.ID)
}

type describeGatewaysInput struct {
	dryRun
	pageInput
	GatewayID []string      `query:"InternetGatewayId"`
	Filter    []filterInput `query:"Filter"`
}

type describeGatewaysOutput struct {
	head
	Gateways  set[gatewayXML] `xml:"internetGatewaySet"`
	NextToken string          `xml:"nextToken,omitempty"`
}

func describeInternetGateways(c *call, in describeGatewaysInput) (response, error) {
	attached := func(value func(*vpc.InternetGateway) string) func(*vpc.InternetGateway) []string {
		return func(g *vpc.InternetGateway) []string {
			if g.VPCID == "" {
				return nil
			}
			return []string{value(g)}
		}
	}
	account := c.vpc.Account()
	s := search[vpc.InternetGateway]{
		ids: in.GatewayID, idsName: "internetGatewayIds", byID: c.vpc.DescribeInternetGateways,
		id: func(g *vpc.InternetGateway) string { return g.ID },
		filters: filters[vpc.InternetGateway]{
			tags: func(g *vpc.InternetGateway) map[string]string { return g.Tags },
			names: map[string]func(*vpc.InternetGateway) []string{
				"internet-gateway-id": func(g *vpc.InternetGateway) []string { return []string{g.ID} },
				"attachment.vpc-id":   attached(func(g *vpc.InternetGateway) string { return g.VPCID }),
				"attachment.state":    attached(func(*vpc.InternetGateway) string { return "available" }),
				"owner-id":            func(*vpc.InternetGateway) []string { return []string{account} },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeGatewaysOutput{NextToken: next, Gateways: setOf(found, func(g vpc.InternetGateway) gatewayXML { return gatewayElement(account, g) })}, nil
}

type routeInput struct {
	RouteTableID string `query:"RouteTableId,required"`
	CIDR         string `query:"DestinationCidrBlock"`
	CIDR6        string `query:"DestinationIpv6CidrBlock"`
}

// destination reads the one destination of a route.
func (in routeInput) destination() (netip.Prefix, error) {
	text, family := in.CIDR, netip.Addr.Is4
	switch {
	case in.CIDR == "" && in.CIDR6 == "":
		return netip.Prefix{}, missing("DestinationCidrBlock")
	case in.CIDR != "" && in.CIDR6 != "":
		return netip.Prefix{}, combination("destinationCidrBlock", "destinationIpv6CidrBlock")
	case in.CIDR6 != "":
		text, family = in.CIDR6, netip.Addr.Is6
	}
	p, err := parsePrefix(text)
	if err == nil && !family(p.Addr()) {
		err = refuse("InvalidParameterValue", "Value (%s) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.", clip(text))
	}
	return p, err
}

type createRouteInput struct {
	dryRun
	routeInput
	GatewayID string `query:"GatewayId,required"`
}

func createRoute(c *call, in createRouteInput) (response, error) {
	to, err := in.destination()
	if err != nil {
		return nil, err
	}
	return &done{Return: true}, c.vpc.CreateRoute(c.now(), in.RouteTableID, vpc.Route{Destination: to, Target: in.GatewayID})
}

type deleteRouteInput struct {
	dryRun
	routeInput
}

func deleteRoute(c *call, in deleteRouteInput) (response, error) {
	to, err := in.destination()
	if err != nil {
		return nil, err
	}
	return &done{Return: true}, c.vpc.DeleteRoute(c.now(), in.RouteTableID, to)
}
