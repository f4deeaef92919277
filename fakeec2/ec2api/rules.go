package ec2api

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type rulesInput struct {
	dryRun
	GroupID     string      `query:"GroupId,required"`
	Permissions []ruleInput `query:"IpPermissions,required"`
}

type ruleInput struct {
	Protocol string           `query:"IpProtocol,required"`
	From     *int             `query:"FromPort"`
	To       *int             `query:"ToPort"`
	Groups   []ruleGroupInput `query:"Groups"`
	Ranges   []rangeInput     `query:"IpRanges"`
	Ranges6  []range6Input    `query:"Ipv6Ranges"`
}

type ruleGroupInput struct {
	GroupID     string `query:"GroupId,required"`
	UserID      string `query:"UserId"` // the fake's only account
	Description string `query:"Description"`
}

type rangeInput struct {
	CIDR        string `query:"CidrIp,required"`
	Description string `query:"Description"`
}

type range6Input struct {
	CIDR        string `query:"CidrIpv6,required"`
	Description string `query:"Description"`
}

// rules gives the request in the model's words: one rule for each other side.
func (in rulesInput) rules(account string) ([]vpc.Rule, error) {
	var out []vpc.Rule
	for _, p := range in.Permissions {
		rule := vpc.Rule{Protocol: p.Protocol}
		if protocol, numbered := map[string]string{"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6"}[p.Protocol]; numbered {
			rule.Protocol = protocol
		}
		if slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6"}, rule.Protocol) { // for others EC2 takes all ports, whatever is given
			if p.From == nil || p.To == nil {
				return nil, refuse("InvalidParameterValue", "Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange.")
			}
			rule.From, rule.To = *p.From, *p.To
		}
		before := len(out)
		for _, g := range p.Groups {
			if g.UserID != "" && g.UserID != account {
				return nil, refuse("InvalidParameterValue", "Value (%s) for parameter UserId is invalid.", clip(g.UserID))
			}
			with := rule
			with.Group, with.Description = g.GroupID, g.Description
			out = append(out, with)
		}
		ranges := slices.Clone(p.Ranges)
		for _, r := range p.Ranges6 {
			ranges = append(ranges, rangeInput(r))
		}
		for _, r := range ranges {
			cidr, err := parsePrefix(r.CIDR)
			if err != nil {
				return nil, err
			}
			with := rule
			with.CIDR, with.Description = cidr, r.Description
			out = append(out, with)
		}
		if len(out) == before {
			return nil, missing("IpRanges")
		}
	}
	return out, nil
}

// change makes an action of a change of rules.
func change(do func(c *call, id string, rules []vpc.Rule) error) func(c *call, in rulesInput) (response, error) {
	return func(c *call, in rulesInput) (response, error) {
		rules, err := in.rules(c.vpc.Account())
		if err != nil {
			return nil, err
		}
		return &done{Return: true}, do(c, in.GroupID, rules)
	}
}

func authorizeIngress(c *call, in rulesInput) (response, error) {
	return change(func(c *call, id string, rules []vpc.Rule) error {
		return c.vpc.AuthorizeSecurityGroup(c.now(), id, false, rules)
	})(c, in)
}

func authorizeEgress(c *call, in rulesInput) (response, error) {
	return change(func(c *call, id string, rules []vpc.Rule) error {
		return c.vpc.AuthorizeSecurityGroup(c.now(), id, true, rules)
	})(c, in)
}

func revokeIngress(c *call, in rulesInput) (response, error) {
	return change(func(c *call, id string, rules []vpc.Rule) error {
		return c.vpc.RevokeSecurityGroup(c.now(), id, false, rules)
	})(c, in)
}

func revokeEgress(c *call, in rulesInput) (response, error) {
	return change(func(c *call, id string, rules []vpc.Rule) error {
		return c.vpc.RevokeSecurityGroup(c.now(), id, true, rules)
	})(c, in)
}

type permissionOfGroupXML struct {
	Protocol string             `xml:"ipProtocol"`
	From     *int               `xml:"fromPort"`
	To       *int               `xml:"toPort"`
	Groups   set[ruleGroupXML]  `xml:"groups"`
	Ranges   set[ruleRangeXML]  `xml:"ipRanges"`
	Ranges6  set[ruleRange6XML] `xml:"ipv6Ranges"`
	Prefixes set[struct{}]      `xml:"prefixListIds"`
}

type ruleGroupXML struct {
	UserID      string `xml:"userId"`
	GroupID     string `xml:"groupId"`
	Description string `xml:"description,omitempty"`
}

type ruleRangeXML struct {
	CIDR        string `xml:"cidrIp"`
	Description string `xml:"description,omitempty"`
}

type ruleRange6XML struct {
	CIDR        string `xml:"cidrIpv6"`
	Description string `xml:"description,omitempty"`
}

// permissions shows rules as EC2 does: those with equal protocol and ports as one.
func permissions(account string, rules []vpc.Rule) set[permissionOfGroupXML] {
	type ports struct {
		protocol string
		from, to int
	}
	at := map[ports]int{}
	var out set[permissionOfGroupXML]
	for _, r := range rules {
		key := ports{r.Protocol, r.From, r.To}
		n, there := at[key]
		if !there {
			n = len(out.Items)
			at[key] = n
			x := permissionOfGroupXML{Protocol: r.Protocol}
			if r.Protocol != vpc.Any {
				x.From, x.To = &key.from, &key.to
			}
			out.Items = append(out.Items, x)
		}
		x := &out.Items[n]
		switch {
		case r.Group != "":
			x.Groups.Items = append(x.Groups.Items, ruleGroupXML{account, r.Group, r.Description})
		case r.CIDR.Addr().Is4():
			x.Ranges.Items = append(x.Ranges.Items, ruleRangeXML{r.CIDR.String(), r.Description})
		default:
			x.Ranges6.Items = append(x.Ranges6.Items, ruleRange6XML{r.CIDR.String(), r.Description})
		}
	}
	return out
}

// maxTablesPage is the biggest page of DescribeRouteTables. Source: EC2 API reference.
const maxTablesPage = 100

type describeTablesInput struct {
	dryRun
	pageInput
	RouteTableID []string      `query:"RouteTableId"`
	Filter       []filterInput `query:"Filter"`
}

type describeTablesOutput struct {
	head
	Tables    set[tableXML] `xml:"routeTableSet"`
	NextToken string        `xml:"nextToken,omitempty"`
}

type tableXML struct {
	ID           string          `xml:"routeTableId"`
	VPCID        string          `xml:"vpcId"`
	OwnerID      string          `xml:"ownerId"`
	Routes       set[routeXML]   `xml:"routeSet"`
	Associations set[tableOfXML] `xml:"associationSet"`
	Propagating  set[struct{}]   `xml:"propagatingVgwSet"`
	Tags         set[tagXML]     `xml:"tagSet"`
}

type routeXML struct {
	Destination  string `xml:"destinationCidrBlock,omitempty"`
	Destination6 string `xml:"destinationIpv6CidrBlock,omitempty"`
	Gateway      string `xml:"gatewayId,omitempty"`
	Peering      string `xml:"vpcPeeringConnectionId,omitempty"`
	State        string `xml:"state"`
	Origin       string `xml:"origin"`
}

type tableOfXML struct {
	ID      string `xml:"routeTableAssociationId"`
	TableID string `xml:"routeTableId"`
	Main    bool   `xml:"main"`
	State   string `xml:"associationState>state"`
}

func describeRouteTables(c *call, in describeTablesInput) (response, error) {
	one := func(get func(*vpc.RouteTable) string) func(*vpc.RouteTable) []string {
		return func(t *vpc.RouteTable) []string { return []string{get(t)} }
	}
	s := search[vpc.RouteTable]{
		ids: in.RouteTableID, idsName: "routeTableIds", byID: c.vpc.DescribeRouteTables, limit: maxTablesPage,
		id: func(t *vpc.RouteTable) string { return t.ID },
		filters: filters[vpc.RouteTable]{
			tags: func(t *vpc.RouteTable) map[string]string { return t.Tags },
			names: map[string]func(*vpc.RouteTable) []string{
				"route-table-id":                  one(func(t *vpc.RouteTable) string { return t.ID }),
				"association.route-table-id":      one(func(t *vpc.RouteTable) string { return t.ID }),
				"association.main":                one(func(*vpc.RouteTable) string { return "true" }),
				"association.subnet-id":           func(*vpc.RouteTable) []string { return nil },
				"vpc-id":                          one(func(t *vpc.RouteTable) string { return t.VPCID }),
				"owner-id":                        one(func(*vpc.RouteTable) string { return c.vpc.Account() }),
				"route.gateway-id":                func(t *vpc.RouteTable) []string { return targets(c.vpc.Routes(t.VPCID)) },
				"route.vpc-peering-connection-id": func(t *vpc.RouteTable) []string { return targets(c.vpc.Routes(t.VPCID)) },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeTablesOutput{NextToken: next, Tables: setOf(found, func(t vpc.RouteTable) tableXML {
		return tableXML{
			ID: t.ID, VPCID: t.VPCID, OwnerID: c.vpc.Account(), Routes: setOf(c.vpc.Routes(t.VPCID), routeElement), Tags: tagSet(t.Tags),
			Associations: set[tableOfXML]{Items: []tableOfXML{{ID: "rtbassoc-" + t.ID[len("rtb-"):], TableID: t.ID, Main: true, State: "associated"}}},
		}
	})}, nil
}

func targets(routes []vpc.Route) []string {
	var out []string
	for _, r := range routes {
		out = append(out, r.Target)
	}
	return out
}

func routeElement(r vpc.Route) routeXML {
	x := routeXML{State: word(r.Blackhole, "blackhole", "active"), Origin: "CreateRoute"}
	to := &x.Destination
	if r.Destination.Addr().Is6() {
		to = &x.Destination6
	}
	*to = r.Destination.String()
	switch {
	case r.Target == vpc.LocalRoute:
		x.Gateway, x.Origin = r.Target, "CreateRouteTable"
	case len(r.Target) > 4 && r.Target[:4] == "pcx-":
		x.Peering = r.Target
	default:
		x.Gateway = cmp.Or(r.Target, "local")
	}
	return x
}

// sixAssociation is an IPv6 network of a VPC or subnet.
type sixAssociation struct {
	ID    string `xml:"associationId"`
	CIDR  string `xml:"ipv6CidrBlock"`
	State string `xml:"ipv6CidrBlockState>state"`
}

func sixAssociations(kind, id string, list []netip.Prefix) set[sixAssociation] {
	list = slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return !p.IsValid() })
	return setOf(list, func(p netip.Prefix) sixAssociation {
		return sixAssociation{ID: associationID(kind, id, p), CIDR: p.String(), State: "associated"}
	})
}

// associationID names a network of a VPC or subnet. It follows from the two, as nothing else names it.
func associationID(kind, id string, p netip.Prefix) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", id, p)
	return fmt.Sprintf("%s-cidr-assoc-0%016x", kind, h.Sum64())
}
