package ec2api

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type describeSubnetsInput struct {
	dryRun
	pageInput
	SubnetID []string      `query:"SubnetId"`
	Filter   []filterInput `query:"Filter"`
}

type describeSubnetsOutput struct {
	head
	Subnets   set[subnetXML] `xml:"subnetSet"`
	NextToken string         `xml:"nextToken,omitempty"`
}

type subnetXML struct {
	ID            string              `xml:"subnetId"`
	ARN           string              `xml:"subnetArn"`
	State         string              `xml:"state"`
	OwnerID       string              `xml:"ownerId"`
	VPCID         string              `xml:"vpcId"`
	CIDR          string              `xml:"cidrBlock,omitempty"`
	IPv6          set[sixAssociation] `xml:"ipv6CidrBlockAssociationSet"`
	IPv6Native    bool                `xml:"ipv6Native"`
	Free          int                 `xml:"availableIpAddressCount"`
	AZ            string              `xml:"availabilityZone"`
	AZID          string              `xml:"availabilityZoneId"`
	DefaultForAZ  bool                `xml:"defaultForAz"`
	PublicOnStart bool                `xml:"mapPublicIpOnLaunch"`
	IPv6OnCreate  bool                `xml:"assignIpv6AddressOnCreation"`
	Tags          set[tagXML]         `xml:"tagSet"`
}

func describeSubnets(c *call, in describeSubnetsInput) (response, error) {
	s := search[vpc.Subnet]{
		ids: in.SubnetID, idsName: "subnetIds", byID: c.described().Subnets,
		id:      func(s *vpc.Subnet) string { return s.ID },
		filters: subnetFilters(c.vpc.Region(), c.vpc.Account()),
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeSubnetsOutput{NextToken: next, Subnets: setOf(found, func(s vpc.Subnet) subnetXML {
		return subnetElement(c.vpc.Region(), c.vpc.Account(), s)
	})}, nil
}

func subnetElement(region, account string, s vpc.Subnet) subnetXML {
	x := subnetXML{
		ID: s.ID, ARN: fmt.Sprintf("arn:aws:ec2:%s:%s:subnet/%s", region, account, s.ID), State: "available", OwnerID: account,
		VPCID: s.VPCID, Free: s.Free, AZ: s.AZ, AZID: zoneID(region, s.AZ), Tags: tagSet(s.Tags), IPv6OnCreate: s.AssignIPv6,
		IPv6: sixAssociations("subnet", s.ID, []netip.Prefix{s.IPv6CIDR}), IPv6Native: s.Native(),
	}
	if !s.Native() {
		x.CIDR = s.CIDR.String()
	}
	return x
}

func subnetFilters(region, account string) filters[vpc.Subnet] {
	one := func(get func(*vpc.Subnet) string) func(*vpc.Subnet) []string {
		return func(s *vpc.Subnet) []string { return []string{get(s)} }
	}
	return filters[vpc.Subnet]{
		tags: func(s *vpc.Subnet) map[string]string { return s.Tags },
		names: map[string]func(*vpc.Subnet) []string{
			"subnet-id":                  one(func(s *vpc.Subnet) string { return s.ID }),
			"vpc-id":                     one(func(s *vpc.Subnet) string { return s.VPCID }),
			"availability-zone":          one(func(s *vpc.Subnet) string { return s.AZ }),
			"availability-zone-id":       one(func(s *vpc.Subnet) string { return zoneID(region, s.AZ) }),
			"cidr-block":                 one(func(s *vpc.Subnet) string { return word(s.Native(), "", s.CIDR.String()) }),
			"ipv6-native":                one(func(s *vpc.Subnet) string { return strconv.FormatBool(s.Native()) }),
			"state":                      one(func(*vpc.Subnet) string { return "available" }),
			"owner-id":                   one(func(*vpc.Subnet) string { return account }),
			"available-ip-address-count": one(func(s *vpc.Subnet) string { return strconv.Itoa(s.Free) }),
		},
	}
}

type describeVpcsInput struct {
	dryRun
	pageInput
	VpcID  []string      `query:"VpcId"`
	Filter []filterInput `query:"Filter"`
}

type describeVpcsOutput struct {
	head
	Vpcs      set[vpcXML] `xml:"vpcSet"`
	NextToken string      `xml:"nextToken,omitempty"`
}

type vpcXML struct {
	ID        string              `xml:"vpcId"`
	OwnerID   string              `xml:"ownerId"`
	State     string              `xml:"state"`
	CIDR      string              `xml:"cidrBlock"`
	CIDRs     set[associatedCIDR] `xml:"cidrBlockAssociationSet"`
	IPv6      set[sixAssociation] `xml:"ipv6CidrBlockAssociationSet"`
	Tenancy   string              `xml:"instanceTenancy"`
	IsDefault bool                `xml:"isDefault"`
	Tags      set[tagXML]         `xml:"tagSet"`
}

type associatedCIDR struct {
	ID    string `xml:"associationId"`
	CIDR  string `xml:"cidrBlock"`
	State string `xml:"cidrBlockState>state"`
}

func describeVpcs(c *call, in describeVpcsInput) (response, error) {
	account := c.vpc.Account()
	s := search[vpc.Network]{
		ids: in.VpcID, idsName: "vpcIds", byID: c.vpc.DescribeVPCs, all: c.vpc.VPCs,
		id: func(n *vpc.Network) string { return n.ID },
		filters: filters[vpc.Network]{
			tags: func(n *vpc.Network) map[string]string { return n.Tags },
			names: map[string]func(*vpc.Network) []string{
				"vpc-id":   func(n *vpc.Network) []string { return []string{n.ID} },
				"cidr":     func(n *vpc.Network) []string { return []string{n.CIDRs[0].String()} },
				"state":    func(*vpc.Network) []string { return []string{"available"} },
				"owner-id": func(*vpc.Network) []string { return []string{account} },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeVpcsOutput{NextToken: next, Vpcs: setOf(found, func(n vpc.Network) vpcXML { return vpcElement(account, n) })}, nil
}

func vpcElement(account string, n vpc.Network) vpcXML {
	return vpcXML{
		ID: n.ID, OwnerID: account, State: "available", CIDR: n.CIDRs[0].String(), Tenancy: "default", Tags: tagSet(n.Tags),
		CIDRs: setOf(n.CIDRs, func(c netip.Prefix) associatedCIDR {
			return associatedCIDR{associationID("vpc", n.ID, c), c.String(), "associated"}
		}),
		IPv6: sixAssociations("vpc", n.ID, n.IPv6CIDRs),
	}
}

type describeGroupsInput struct {
	dryRun
	pageInput
	GroupID []string      `query:"GroupId"`
	Filter  []filterInput `query:"Filter"`
}

type describeGroupsOutput struct {
	head
	Groups    set[securityGroupXML] `xml:"securityGroupInfo"`
	NextToken string                `xml:"nextToken,omitempty"`
}

type securityGroupXML struct {
	ID          string                    `xml:"groupId"`
	Name        string                    `xml:"groupName"`
	Description string                    `xml:"groupDescription"`
	OwnerID     string                    `xml:"ownerId"`
	VPCID       string                    `xml:"vpcId"`
	Ingress     set[permissionOfGroupXML] `xml:"ipPermissions"`
	Egress      set[permissionOfGroupXML] `xml:"ipPermissionsEgress"`
	Tags        set[tagXML]               `xml:"tagSet"`
}

func describeSecurityGroups(c *call, in describeGroupsInput) (response, error) {
	account := c.vpc.Account()
	s := search[vpc.SecurityGroup]{
		ids: in.GroupID, idsName: "groupIds", byID: c.vpc.DescribeSecurityGroups, all: c.vpc.SecurityGroups,
		id: func(g *vpc.SecurityGroup) string { return g.ID },
		filters: filters[vpc.SecurityGroup]{
			tags: func(g *vpc.SecurityGroup) map[string]string { return g.Tags },
			names: map[string]func(*vpc.SecurityGroup) []string{
				"group-id":    func(g *vpc.SecurityGroup) []string { return []string{g.ID} },
				"group-name":  func(g *vpc.SecurityGroup) []string { return []string{g.Name} },
				"description": func(g *vpc.SecurityGroup) []string { return []string{g.Description} },
				"vpc-id":      func(g *vpc.SecurityGroup) []string { return []string{g.VPCID} },
				"owner-id":    func(*vpc.SecurityGroup) []string { return []string{account} },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeGroupsOutput{NextToken: next, Groups: setOf(found, func(g vpc.SecurityGroup) securityGroupXML {
		return securityGroupXML{
			ID: g.ID, Name: g.Name, Description: g.Description, OwnerID: account, VPCID: g.VPCID, Tags: tagSet(g.Tags),
			Ingress: permissions(account, g.Ingress), Egress: permissions(account, g.Egress),
		}
	})}, nil
}

// search is a Describe action over things that are few: all of them are read, then filtered.
type search[T any] struct {
	ids     []string
	idsName string // as EC2's message calls the parameter
	byID    func(ids []string) ([]T, error)
	all     func() []T // nil: byID gives all where no id is named
	id      func(*T) string
	filters filters[T]
	limit   int // of a page; 0: maxPage
}

func (s search[T]) run(inputs []filterInput, paging pageInput) ([]T, string, error) {
	if err := paging.check(s.ids, s.idsName, cmp.Or(s.limit, maxPage)); err != nil {
		return nil, "", err
	}
	match, err := s.filters.compile(inputs)
	if err != nil {
		return nil, "", err
	}
	var found []T
	if len(s.ids) == 0 && s.all != nil {
		found = s.all()
	} else if found, err = s.byID(s.ids); err != nil {
		return nil, "", err
	}
	return page(keep(found, match), paging, filterDigest(inputs), s.id)
}
