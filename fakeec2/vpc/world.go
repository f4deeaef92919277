package vpc

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Builders take no time: they happen at the model's own, which begin leaves alone when given the zero time.

// AddVPC adds a VPC with its default security group (its members reach each other, and everything), a main route table, and an
// internet gateway to which that leads. An empty ID is drawn; the first CIDR is the primary one.
func (v *VPC) AddVPC(n Network) (Network, error) {
	v.begin(time.Time{})
	defer v.end()
	return v.addVPC(n, true)
}

// CreateVPC adds a VPC as EC2 does: it has no internet gateway.
func (v *VPC) CreateVPC(now time.Time, n Network) (Network, error) {
	v.begin(now)
	defer v.end()
	return v.addVPC(n, false)
}

func (v *VPC) addVPC(n Network, gateway bool) (Network, error) {
	if err := n.check(); err != nil {
		return Network{}, err
	}
	id, err := v.chosenID(kindNetwork(), n.ID)
	if err != nil {
		return Network{}, err
	}
	if v.networks[id] != nil {
		return Network{}, refuse(CodeParameterValue, "The vpc ID '%s' exists already", id)
	}
	n = n.clone()
	n.ID, n.Gateway, n.Online = id, "", false
	group := &SecurityGroup{ID: v.newID(kindGroup()), VPCID: id, Name: "default", Description: "default VPC security group"}
	if n.DefaultGroup != "" {
		if err := kindGroup().check(n.DefaultGroup); err != nil {
			return Network{}, err
		}
		group.ID = n.DefaultGroup
	}
	n.DefaultGroup = group.ID
	group.Ingress, group.Egress = []Rule{{Protocol: Any, Group: group.ID}}, Open()
	if len(n.IPv6CIDRs) == 0 {
		group.Egress = group.Egress[:1] // source: VPC user guide, "Default security groups"
	}
	v.groups[group.ID] = group
	v.networks[id] = &n
	if gateway {
		n.Gateway = v.newGateway(id, nil).ID
	}
	t := v.addTable(id)
	for family, list := range [][]netip.Prefix{n.CIDRs, n.IPv6CIDRs} {
		if gateway && len(list) > 0 {
			t.defaults[defaultRoutes()[family]] = n.Gateway
		}
	}
	n.Online = v.online(&n)
	v.emit(Event{Kind: NetworkAdded, Detail: id})
	return n.clone(), nil
}

// AddCIDR gives a VPC another IPv4 CIDR, as AssociateVpcCidrBlock does. Its route tables and the instances' metadata have it at once.
func (v *VPC) AddCIDR(id string, cidr netip.Prefix) (Network, error) {
	v.begin(time.Time{})
	defer v.end()
	old := v.networks[id]
	if old == nil {
		return Network{}, kindNetwork().missing(clip(id))
	}
	n := old.clone()
	n.CIDRs = append(n.CIDRs, cidr)
	if err := n.check(); err != nil {
		return Network{}, err
	}
	for _, o := range v.outsides {
		if o.CIDR.Overlaps(cidr) {
			return Network{}, refuse(CodeVPCRange, "The CIDR '%s' overlaps the network of %s", cidr, o.Name)
		}
	}
	for _, p := range v.peerings {
		if other := v.networks[p.other(id)]; other != nil && slices.ContainsFunc(other.CIDRs, cidr.Overlaps) {
			return Network{}, refuse(CodeVPCRange, "The CIDR '%s' overlaps one of the peered VPC %s", cidr, other.ID)
		}
	}
	v.networks[id] = &n
	v.emit(Event{Kind: NetworkModified, Detail: id})
	return n.clone(), nil
}

func (n *Network) check() error {
	if len(n.CIDRs) == 0 {
		return refuse(CodeMissingParameter, "The request must contain the parameter CidrBlock")
	}
	for i, c := range slices.Concat(n.CIDRs, n.IPv6CIDRs) {
		if slices.ContainsFunc(slices.Concat(n.CIDRs, n.IPv6CIDRs)[:i], c.Overlaps) {
			return refuse(CodeVPCRange, "The CIDR '%s' overlaps another one of the VPC", c)
		}
	}
	for _, c := range n.CIDRs {
		if !c.Addr().Is4() || c.Bits() < 16 || c.Bits() > 28 || c.Masked() != c {
			return refuse(CodeVPCRange, "The CIDR '%s' is invalid: an IPv4 network between /16 and /28 is wanted", c)
		}
	}
	for _, c := range n.IPv6CIDRs {
		if !c.Addr().Is6() || c.Bits() < 44 || c.Bits() > 60 || c.Bits()%4 != 0 || c.Masked() != c {
			return refuse(CodeVPCRange, "The CIDR '%s' is invalid: an IPv6 network between /44 and /60, in steps of 4, is wanted", c)
		}
	}
	return checkTags(nil, n.Tags)
}

// AmazonIPv6 draws a /56 such as EC2 gives a VPC that asks for one.
func (v *VPC) AmazonIPv6() netip.Prefix {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		n := v.minor.Uint32()
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x26, 0x00, 0x1f, 0x14, byte(n >> 16), byte(n >> 8), byte(n)}), 56)
		if !slices.ContainsFunc(sortedKeys(v.networks), func(id string) bool { return slices.ContainsFunc(v.networks[id].IPv6CIDRs, p.Overlaps) }) {
			return p
		}
	}
}

// AddSubnet adds a subnet; Free is ignored. Its networks must lie in its VPC's and overlap no other subnet of it.
func (v *VPC) AddSubnet(s Subnet) (Subnet, error) {
	v.begin(time.Time{})
	defer v.end()
	n := v.networks[s.VPCID]
	if n == nil {
		return Subnet{}, kindNetwork().missing(s.VPCID)
	}
	if err := v.checkSubnet(n, s); err != nil {
		return Subnet{}, err
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
	v.noteCount(added)
	v.emit(Event{Kind: SubnetAdded, Detail: id})
	return added.snapshot(), nil
}

func (v *VPC) checkSubnet(n *Network, s Subnet) error {
	inside := func(list []netip.Prefix, p netip.Prefix) bool {
		return p.Masked() == p && slices.ContainsFunc(list, func(c netip.Prefix) bool { return c.Bits() <= p.Bits() && c.Overlaps(p) })
	}
	if !s.CIDR.IsValid() && !s.IPv6CIDR.IsValid() {
		return refuse(CodeMissingParameter, "The request must contain the parameter CidrBlock")
	}
	if s.CIDR.IsValid() && (!s.CIDR.Addr().Is4() || s.CIDR.Bits() < 16 || s.CIDR.Bits() > 28 || !inside(n.CIDRs, s.CIDR)) {
		return refuse(CodeSubnetRange, "The CIDR '%s' is invalid.", s.CIDR)
	}
	if s.IPv6CIDR.IsValid() && (!s.IPv6CIDR.Addr().Is6() || s.IPv6CIDR.Bits() != subnetBits6 || !inside(n.IPv6CIDRs, s.IPv6CIDR)) {
		return refuse(CodeSubnetRange, "The CIDR '%s' is invalid: an IPv6 /%d of the VPC is wanted", s.IPv6CIDR, subnetBits6)
	}
	if s.AssignIPv6 && !s.IPv6CIDR.IsValid() {
		return refuse(CodeParameterCombination, "A subnet without IPv6 assigns no IPv6 addresses")
	}
	for _, other := range v.subnets {
		if other.VPCID == s.VPCID && (overlaps(other.CIDR, s.CIDR) || overlaps(other.IPv6CIDR, s.IPv6CIDR)) {
			return refuse(CodeSubnetConflict, "The CIDR '%s' conflicts with another subnet", s.CIDR)
		}
	}
	return checkTags(nil, s.Tags)
}

// overlaps is false where one of the two is none.
func overlaps(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && a.Overlaps(b) }

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
	for _, id := range s.Groups {
		if g := v.groups[id]; g == nil || g.VPCID != sub.VPCID {
			return kindGroup().missing(clip(id))
		}
	}
	if err := sub.checkExplicit(s.Addr); err != nil {
		return err
	}
	s.Groups = slices.Clone(s.Groups)
	sub.take(s.Addr, serviceOwner(s.Name))
	v.noteCount(sub)
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
