package ec2api

import (
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type createVpcInput struct {
	dryRun
	CIDR             string        `query:"CidrBlock,required"`
	AmazonIPv6       bool          `query:"AmazonProvidedIpv6CidrBlock"`
	IPv6CIDR         string        `query:"Ipv6CidrBlock"`
	TagSpecification []tagsForType `query:"TagSpecification"`
}

type createVpcOutput struct {
	head
	VPC vpcXML `xml:"vpc"`
}

func createVpc(c *call, in createVpcInput) (response, error) {
	tags, err := tagsFor(in.TagSpecification, "vpc")
	if err != nil {
		return nil, err
	}
	network := vpc.Network{Tags: tags["vpc"]}
	cidr, err := parsePrefix(in.CIDR)
	if err != nil {
		return nil, err
	}
	network.CIDRs = []netip.Prefix{cidr}
	switch {
	case in.AmazonIPv6 && in.IPv6CIDR != "":
		return nil, combination("amazonProvidedIpv6CidrBlock", "ipv6CidrBlock")
	case in.AmazonIPv6:
		network.IPv6CIDRs = []netip.Prefix{c.vpc.AmazonIPv6()}
	case in.IPv6CIDR != "":
		six, err := parsePrefix(in.IPv6CIDR)
		if err != nil {
			return nil, err
		}
		network.IPv6CIDRs = []netip.Prefix{six}
	}
	made, err := c.vpc.CreateVPC(c.now(), network)
	if err != nil {
		return nil, err
	}
	x := vpcElement(c.vpc.Account(), made)
	x.State = "pending"
	return &createVpcOutput{VPC: x}, nil
}

type createSubnetInput struct {
	dryRun
	VPCID            string        `query:"VpcId,required"`
	CIDR             string        `query:"CidrBlock"`
	IPv6CIDR         string        `query:"Ipv6CidrBlock"`
	IPv6Native       bool          `query:"Ipv6Native"`
	AZ               string        `query:"AvailabilityZone"`
	TagSpecification []tagsForType `query:"TagSpecification"`
}

type createSubnetOutput struct {
	head
	Subnet subnetXML `xml:"subnet"`
}

func createSubnet(c *call, in createSubnetInput) (response, error) {
	tags, err := tagsFor(in.TagSpecification, "subnet")
	if err != nil {
		return nil, err
	}
	if _, err := c.vpc.DescribeVPCs([]string{in.VPCID}); err != nil {
		return nil, err
	}
	if in.IPv6Native && in.CIDR != "" {
		return nil, combination("ipv6Native", "cidrBlock")
	}
	subnet := vpc.Subnet{VPCID: in.VPCID, AZ: in.AZ, AssignIPv6: in.IPv6Native, Tags: tags["subnet"]}
	for _, cidr := range []struct {
		text string
		to   *netip.Prefix
	}{{in.CIDR, &subnet.CIDR}, {in.IPv6CIDR, &subnet.IPv6CIDR}} {
		if cidr.text == "" {
			continue
		}
		if *cidr.to, err = parsePrefix(cidr.text); err != nil {
			return nil, err
		}
	}
	made, err := c.vpc.AddSubnet(subnet)
	if err != nil {
		return nil, err
	}
	return &createSubnetOutput{Subnet: subnetElement(c.vpc.Region(), c.vpc.Account(), made)}, nil
}

type createGroupInput struct {
	dryRun
	Name             string        `query:"GroupName,required"`
	Description      string        `query:"GroupDescription,required"`
	VPCID            string        `query:"VpcId,required"` // EC2 would take the default VPC, which a fake region has none of
	TagSpecification []tagsForType `query:"TagSpecification"`
}

type createGroupOutput struct {
	head
	Return  bool        `xml:"return"`
	GroupID string      `xml:"groupId"`
	Tags    set[tagXML] `xml:"tagSet"`
}

func createSecurityGroup(c *call, in createGroupInput) (response, error) {
	tags, err := tagsFor(in.TagSpecification, "security-group")
	if err != nil {
		return nil, err
	}
	if _, err := c.vpc.DescribeVPCs([]string{in.VPCID}); err != nil {
		return nil, err
	}
	g, err := c.vpc.AddSecurityGroup(vpc.SecurityGroup{VPCID: in.VPCID, Name: in.Name, Description: in.Description, Tags: tags["security-group"]})
	if err != nil {
		return nil, err
	}
	return &createGroupOutput{Return: true, GroupID: g.ID, Tags: tagSet(g.Tags)}, nil
}

type createReservationInput struct {
	dryRun
	SubnetID         string        `query:"SubnetId,required"`
	CIDR             string        `query:"Cidr,required"`
	Type             string        `query:"ReservationType,required"`
	Description      string        `query:"Description"`
	TagSpecification []tagsForType `query:"TagSpecification"`
}

type createReservationOutput struct {
	head
	Reservation cidrReservationXML `xml:"subnetCidrReservation"`
}

type cidrReservationXML struct {
	ID          string      `xml:"subnetCidrReservationId"`
	SubnetID    string      `xml:"subnetId"`
	CIDR        string      `xml:"cidr"`
	Type        string      `xml:"reservationType"`
	OwnerID     string      `xml:"ownerId"`
	Description string      `xml:"description"`
	Tags        set[tagXML] `xml:"tagSet"`
}

func (c *call) reservationElement(r vpc.CIDRReservation) cidrReservationXML {
	return cidrReservationXML{
		ID: r.ID, SubnetID: r.SubnetID, CIDR: r.CIDR.String(), Type: r.Type, OwnerID: c.vpc.Account(), Description: r.Description, Tags: tagSet(r.Tags),
	}
}

func createSubnetCidrReservation(c *call, in createReservationInput) (response, error) {
	tags, err := tagsFor(in.TagSpecification, "subnet-cidr-reservation")
	if err != nil {
		return nil, err
	}
	cidr, err := parsePrefix(in.CIDR)
	if err != nil {
		return nil, err
	}
	r, err := c.vpc.CreateSubnetCIDRReservation(c.now(), vpc.CIDRReservation{
		SubnetID: in.SubnetID, CIDR: cidr, Type: in.Type, Description: in.Description, Tags: tags["subnet-cidr-reservation"],
	})
	if err != nil {
		return nil, err
	}
	return &createReservationOutput{Reservation: c.reservationElement(r)}, nil
}

type deleteReservationInput struct {
	dryRun
	ID string `query:"SubnetCidrReservationId,required"`
}

type deleteReservationOutput struct {
	head
	Reservation cidrReservationXML `xml:"deletedSubnetCidrReservation"`
}

func deleteSubnetCidrReservation(c *call, in deleteReservationInput) (response, error) {
	r, err := c.vpc.DeleteSubnetCIDRReservation(c.now(), in.ID)
	if err != nil {
		return nil, err
	}
	return &deleteReservationOutput{Reservation: c.reservationElement(r)}, nil
}

type getReservationsInput struct {
	dryRun
	pageInput
	SubnetID string        `query:"SubnetId,required"`
	Filter   []filterInput `query:"Filter"`
}

type getReservationsOutput struct {
	head
	IPv4      set[cidrReservationXML] `xml:"subnetIpv4CidrReservationSet"`
	IPv6      set[cidrReservationXML] `xml:"subnetIpv6CidrReservationSet"`
	NextToken string                  `xml:"nextToken,omitempty"`
}

func getSubnetCidrReservations(c *call, in getReservationsInput) (response, error) {
	if _, err := c.vpc.DescribeSubnets([]string{in.SubnetID}); err != nil {
		return nil, err
	}
	s := search[vpc.CIDRReservation]{
		all: func() []vpc.CIDRReservation { return c.vpc.CIDRReservations(in.SubnetID) },
		id:  func(r *vpc.CIDRReservation) string { return r.ID },
		filters: filters[vpc.CIDRReservation]{
			tags: func(r *vpc.CIDRReservation) map[string]string { return r.Tags },
			names: map[string]func(*vpc.CIDRReservation) []string{
				"reservationType": func(r *vpc.CIDRReservation) []string { return []string{r.Type} },
				"subnet-id":       func(r *vpc.CIDRReservation) []string { return []string{r.SubnetID} },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	out := &getReservationsOutput{NextToken: next}
	for _, r := range found {
		list := &out.IPv4
		if r.CIDR.Addr().Is6() {
			list = &out.IPv6
		}
		list.Items = append(list.Items, c.reservationElement(r))
	}
	return out, nil
}
