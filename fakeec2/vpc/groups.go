package vpc

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Limits of security groups. Source: VPC quotas.
const (
	maxRules     = 60 // in each direction
	maxGroupName = 255
)

// Any as a rule's protocol means every protocol, on all ports.
const Any = "-1"

// Rule lets packets through: allow-only, stateful.
type Rule struct {
	Protocol    string       // tcp, udp, icmp, icmpv6, a protocol's number, or Any
	From, To    int          // ports; for ICMP type and code, -1 for all; both 0 for other protocols
	CIDR        netip.Prefix // the other side, or zero where Group says it
	Group       string       // the other side is an ENI in this group, and its packets' addresses are the ENI's own
	Description string
}

// SecurityGroup is a security group with its rules.
type SecurityGroup struct {
	ID, VPCID, Name, Description string
	Ingress, Egress              []Rule // a group added with neither has EC2's own: nothing in, everything out
	Tags                         map[string]string
}

// Open is the rules that let everything through.
func Open() []Rule {
	return []Rule{{Protocol: Any, CIDR: netip.MustParsePrefix("0.0.0.0/0")}, {Protocol: Any, CIDR: netip.MustParsePrefix("::/0")}}
}

func (g *SecurityGroup) clone() SecurityGroup {
	c := *g
	c.Ingress, c.Egress = slices.Clone(g.Ingress), slices.Clone(g.Egress)
	c.Tags = maps.Clone(g.Tags)
	return c
}

// AddSecurityGroup adds a security group.
func (v *VPC) AddSecurityGroup(g SecurityGroup) (SecurityGroup, error) {
	v.begin(time.Time{})
	defer v.end()
	if v.networks[g.VPCID] == nil {
		return SecurityGroup{}, kindNetwork().missing(g.VPCID)
	}
	id, err := v.chosenID(kindGroup(), g.ID)
	if err != nil {
		return SecurityGroup{}, err
	}
	switch {
	case g.Name == "" || len(g.Name) > maxGroupName || len(g.Description) > maxGroupName:
		return SecurityGroup{}, refuse(CodeParameterValue, "Value (%s) for parameter GroupName is invalid. Up to %d characters are wanted.", clip(g.Name), maxGroupName)
	case checkTags(nil, g.Tags) != nil:
		return SecurityGroup{}, checkTags(nil, g.Tags)
	}
	for _, other := range v.groups {
		if other.ID == id || other.VPCID == g.VPCID && other.Name == g.Name {
			return SecurityGroup{}, refuse(CodeGroupDuplicate, "The security group '%s' already exists for VPC '%s'", g.Name, g.VPCID)
		}
	}
	g = g.clone()
	g.ID = id
	if g.Ingress == nil && g.Egress == nil {
		g.Egress = Open()[:1]
	}
	v.groups[id] = &g
	for _, r := range slices.Concat(g.Ingress, g.Egress) {
		if err := v.checkRule(r); err != nil {
			delete(v.groups, id)
			return SecurityGroup{}, err
		}
	}
	v.emit(Event{Kind: GroupAdded, Detail: id})
	return g.clone(), nil
}

// AuthorizeSecurityGroup adds rules to a group, for what comes in or for what goes out: all or none.
func (v *VPC) AuthorizeSecurityGroup(now time.Time, id string, egress bool, rules []Rule) error {
	return v.changeRules(now, id, egress, rules, func(have []Rule) ([]Rule, error) {
		for _, r := range rules {
			if hasRule(have, r) {
				return nil, refuse(CodePermissionDuplicate, "the specified rule \"peer: %s, %s\" already exists", cmp.Or(r.Group, r.CIDR.String()), r.Protocol)
			}
			have = append(have, r)
		}
		if len(have) > maxRules {
			return nil, refuse(CodeRuleLimit, "The maximum number of rules per security group has been reached.")
		}
		return have, nil
	})
}

// RevokeSecurityGroup takes rules out of a group: all or none.
func (v *VPC) RevokeSecurityGroup(now time.Time, id string, egress bool, rules []Rule) error {
	return v.changeRules(now, id, egress, rules, func(have []Rule) ([]Rule, error) {
		for _, r := range rules {
			if !hasRule(have, r) {
				return nil, refuse(CodePermissionNotFound, "The specified rule does not exist in this security group.")
			}
			have = slices.DeleteFunc(have, func(x Rule) bool { return sameRule(x, r) })
		}
		return have, nil
	})
}

func (v *VPC) changeRules(now time.Time, id string, egress bool, rules []Rule, change func([]Rule) ([]Rule, error)) error {
	v.begin(now)
	defer v.end()
	old, err := v.group(id)
	if err != nil {
		return err
	}
	if len(rules) == 0 {
		return refuse(CodeMissingParameter, "The request must contain the parameter ipPermissions")
	}
	for _, r := range rules {
		if err := v.checkRule(r); err != nil {
			return err
		}
	}
	g := old.clone()
	list := &g.Ingress
	if egress {
		list = &g.Egress
	}
	if *list, err = change(*list); err != nil {
		return err
	}
	v.groups[id] = &g
	v.emit(Event{Kind: GroupModified, Detail: id})
	return nil
}

func sameRule(a, b Rule) bool {
	a.Description, b.Description = "", ""
	return a == b
}

func hasRule(list []Rule, r Rule) bool {
	return slices.ContainsFunc(list, func(x Rule) bool { return sameRule(x, r) })
}

func (v *VPC) checkRule(r Rule) error {
	number, err := strconv.Atoi(r.Protocol)
	named := slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6"}, r.Protocol)
	switch {
	case !named && (err != nil || number < -1 || number > 255):
		return refuse(CodeParameterValue, "Invalid value '%s' for IP protocol. Unknown protocol.", clip(r.Protocol))
	case (r.Protocol == "tcp" || r.Protocol == "udp") && (r.From < 0 || r.To > 65535 || r.From > r.To):
		return refuse(CodeParameterValue, "Invalid value for portRange: %d to %d", r.From, r.To)
	case r.CIDR.IsValid() == (r.Group != ""):
		return refuse(CodeParameterCombination, "A rule has either an address range or a security group on its other side")
	case r.CIDR.IsValid() && r.CIDR.Masked() != r.CIDR:
		return refuse(CodeParameterValue, "CIDR block %s is malformed", r.CIDR)
	case r.Group != "":
		_, err := v.group(r.Group)
		return err
	}
	return nil
}
