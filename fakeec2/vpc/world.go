package vpc

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Builders take no time: they happen at the model's own, which begin leaves alone when given the zero time.

// AddVPC adds a VPC with its default security group. An empty ID is drawn; the first CIDR is the primary one.
func (v *VPC) AddVPC(n Network) (Network, error) {
	v.begin(time.Time{})
	defer v.end()
	if len(n.CIDRs) == 0 {
		return Network{}, refuse(CodeMissingParameter, "The request must contain the parameter CidrBlock")
	}
	for _, c := range n.CIDRs {
		if !c.Addr().Is4() || c.Bits() < 16 || c.Bits() > 28 || c.Masked() != c {
			return Network{}, refuse(CodeVPCRange, "The CIDR '%s' is invalid: an IPv4 network between /16 and /28 is wanted", c)
		}
	}
	id, err := v.chosenID(kindNetwork(), n.ID)
	if err != nil {
		return Network{}, err
	}
	if v.networks[id] != nil {
		return Network{}, refuse(CodeParameterValue, "The vpc ID '%s' exists already", id)
	}
	n = n.clone()
	n.ID = id
	group := &SecurityGroup{ID: v.newID(kindGroup()), VPCID: id, Name: "default", Description: "default VPC security group"}
	if n.DefaultGroup != "" {
		if err := kindGroup().check(n.DefaultGroup); err != nil {
			return Network{}, err
		}
		group.ID = n.DefaultGroup
	}
	n.DefaultGroup = group.ID
	v.groups[group.ID] = group
	v.networks[id] = &n
	v.emit(Event{Kind: NetworkAdded, Detail: id})
	return n.clone(), nil
}

// AddSubnet adds a subnet; Free is ignored. It must lie in a CIDR of its VPC and overlap no other subnet of it.
func (v *VPC) AddSubnet(s Subnet) (Subnet, error) {
	v.begin(time.Time{})
	defer v.end()
	n := v.networks[s.VPCID]
	if n == nil {
		return Subnet{}, kindNetwork().missing(s.VPCID)
	}
	if !s.CIDR.Addr().Is4() || s.CIDR.Bits() < 16 || s.CIDR.Bits() > 28 || s.CIDR.Masked() != s.CIDR ||
		!slices.ContainsFunc(n.CIDRs, func(c netip.Prefix) bool { return c.Bits() <= s.CIDR.Bits() && c.Overlaps(s.CIDR) }) {
		return Subnet{}, refuse(CodeSubnetRange, "The CIDR '%s' is invalid.", s.CIDR)
	}
	for _, other := range v.subnets {
		if other.VPCID == s.VPCID && other.CIDR.Overlaps(s.CIDR) {
			return Subnet{}, refuse(CodeSubnetConflict, "The CIDR '%s' conflicts with another subnet", s.CIDR)
		}
	}
	if s.AZ == "" {
		s.AZ = v.opts.Region + "a"
	}
	id, err := v.chosenID(kindSubnet(), s.ID)
	if err != nil {
		return Subnet{}, err
	}
	if v.subnets[id] != nil {
		return Subnet{}, refuse(CodeParameterValue, "The subnet ID '%s' exists already", id)
	}
	s.ID = id
	s.Tags = maps.Clone(s.Tags)
	added := newSubnet(s)
	v.subnets[id] = added
	v.emit(Event{Kind: SubnetAdded, Detail: id})
	return added.snapshot(), nil
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
	for _, other := range v.groups {
		if other.ID == id || other.VPCID == g.VPCID && other.Name == g.Name {
			return SecurityGroup{}, refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", g.Name, g.VPCID)
		}
	}
	g = g.clone()
	g.ID = id
	v.groups[id] = &g
	return g.clone(), nil
}

// AddService takes an address of a subnet for a service inside the VPC.
func (v *VPC) AddService(s Service) error {
	v.begin(time.Time{})
	defer v.end()
	sub := v.subnets[s.SubnetID]
	if sub == nil {
		return kindSubnet().missing(s.SubnetID)
	}
	if _, exists := v.services[s.Name]; exists || s.Name == "" {
		return refuse(CodeParameterValue, "The service name '%s' is empty or exists already", s.Name)
	}
	if err := sub.checkExplicit(s.Addr); err != nil {
		return err
	}
	sub.take(s.Addr, serviceOwner(s.Name))
	v.services[s.Name] = s
	v.emit(Event{Kind: ServiceAdded, Addr: s.Addr, Detail: s.Name})
	return nil
}

func serviceOwner(name string) string { return "service/" + name }

// AddOutside adds a host beyond the internet gateway. Its network must not overlap any VPC.
func (v *VPC) AddOutside(o Outside) error {
	v.begin(time.Time{})
	defer v.end()
	if _, exists := v.outsides[o.Name]; exists || o.Name == "" {
		return refuse(CodeParameterValue, "The outside name '%s' is empty or exists already", o.Name)
	}
	if !o.CIDR.Contains(o.Addr) {
		return refuse(CodeParameterValue, "The address %s is not inside %s", o.Addr, o.CIDR)
	}
	for _, n := range v.networks {
		for _, c := range n.CIDRs {
			if c.Overlaps(o.CIDR) {
				return refuse(CodeParameterValue, "The outside network %s overlaps %s of %s", o.CIDR, c, n.ID)
			}
		}
	}
	v.outsides[o.Name] = o
	v.emit(Event{Kind: OutsideAdded, Addr: o.Addr, Detail: o.Name})
	return nil
}
