package vpc

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// DescribeNetworkInterfaces gives the named ENIs, ascending; the first id that does not exist is the error.
func (v *VPC) DescribeNetworkInterfaces(ids []string) ([]ENI, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return describe(ids, v.eni, (*ENI).clone, func(e *ENI) string { return e.ID })
}

// DescribeInstances gives the named instances, ascending; the first id that does not exist is the error.
func (v *VPC) DescribeInstances(ids []string) ([]Instance, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return describe(ids, v.instance, func(i *instance) Instance { return i.clone() }, func(i *instance) string { return i.ID })
}

// DescribeSubnets gives the named subnets, ascending; the first id that does not exist is the error.
func (v *VPC) DescribeSubnets(ids []string) ([]Subnet, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return describe(ids, v.subnet, (*subnet).snapshot, func(s *subnet) string { return s.ID })
}

// DescribeVPCs gives the named VPCs, ascending; the first id that does not exist is the error.
func (v *VPC) DescribeVPCs(ids []string) ([]Network, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return describe(ids, lookup(kindNetwork(), v.networks), (*Network).clone, func(n *Network) string { return n.ID })
}

// DescribeSecurityGroups gives the named groups, ascending; the first id that does not exist is the error.
func (v *VPC) DescribeSecurityGroups(ids []string) ([]SecurityGroup, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return describe(ids, lookup(kindGroup(), v.groups), (*SecurityGroup).clone, func(g *SecurityGroup) string { return g.ID })
}

func describe[R, T any](ids []string, find func(string) (R, error), copied func(R) T, id func(R) string) ([]T, error) {
	found := make([]R, len(ids))
	for n, id := range ids {
		var err error
		if found[n], err = find(id); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b R) int { return strings.Compare(id(a), id(b)) })
	found = slices.CompactFunc(found, func(a, b R) bool { return id(a) == id(b) })
	out := make([]T, len(found))
	for n, r := range found {
		out[n] = copied(r)
	}
	return out, nil
}

func lookup[R any](k kind, m map[string]*R) func(string) (*R, error) {
	return func(id string) (*R, error) {
		if err := k.check(id); err != nil {
			return nil, err
		}
		if r := m[id]; r != nil {
			return r, nil
		}
		return nil, k.missing(id)
	}
}

// eni gives an ENI that the actions know.
func (v *VPC) eni(id string) (*ENI, error) {
	e, err := lookup(kindENI(), v.enis)(id)
	if err == nil && v.concealed(id) {
		return nil, kindENI().missing(id)
	}
	return e, err
}

func (v *VPC) instance(id string) (*instance, error)   { return lookup(kindInstance(), v.instances)(id) }
func (v *VPC) subnet(id string) (*subnet, error)       { return lookup(kindSubnet(), v.subnets)(id) }
func (v *VPC) group(id string) (*SecurityGroup, error) { return lookup(kindGroup(), v.groups)(id) }

// ENI gives one ENI.
func (v *VPC) ENI(id string) (ENI, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.enis[id]; e != nil {
		return e.clone(), true
	}
	return ENI{}, false
}

// Instance gives one instance.
func (v *VPC) Instance(id string) (Instance, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := v.instances[id]; i != nil {
		return i.clone(), true
	}
	return Instance{}, false
}

// Subnet gives one subnet.
func (v *VPC) Subnet(id string) (Subnet, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.subnets[id]; s != nil {
		return s.snapshot(), true
	}
	return Subnet{}, false
}

// InstanceENIs gives an instance's ENIs (attaching, attached and detaching) by card, then device index.
func (v *VPC) InstanceENIs(id string) []ENI {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := v.instances[id]
	if i == nil {
		return nil
	}
	out := make([]ENI, len(i.enis))
	for n, eni := range i.enis {
		out[n] = v.enis[eni].clone()
	}
	return out
}

// Holder gives the ENI that holds an address of a VPC, by itself or in a prefix.
func (v *VPC) Holder(network string, addr netip.Addr) (ENI, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.subnets {
		if s.VPCID == network && (s.inside(addr) || addr.Is6() && s.IPv6CIDR.IsValid() && s.IPv6CIDR.Contains(addr)) {
			if e := v.enis[s.owner(addr)]; e != nil {
				return e.clone(), true
			}
		}
	}
	return ENI{}, false
}

// SelectENIs gives the ENIs that match, ascending by id, without copying the others. match must neither change nor keep the
// ENI, nor call the model.
func (v *VPC) SelectENIs(match func(*ENI) bool) []ENI {
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []*ENI
	for _, e := range v.enis {
		if match(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *ENI) int { return strings.Compare(a.ID, b.ID) })
	out := make([]ENI, len(found))
	for n, e := range found {
		out[n] = e.clone()
	}
	return out
}

// ENIs gives all ENIs, ascending by id.
func (v *VPC) ENIs() []ENI { return v.SelectENIs(func(*ENI) bool { return true }) }

// Instances gives all instances, ascending by id; terminated ones too while EC2 would describe them.
func (v *VPC) Instances() []Instance {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.instances, func(i *instance) Instance { return i.clone() })
}

// Subnets gives all subnets, ascending by id.
func (v *VPC) Subnets() []Subnet {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.subnets, (*subnet).snapshot)
}

// VPCs gives all VPCs, ascending by id.
func (v *VPC) VPCs() []Network {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.networks, (*Network).clone)
}

// SecurityGroups gives all security groups, ascending by id.
func (v *VPC) SecurityGroups() []SecurityGroup {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.groups, (*SecurityGroup).clone)
}

// Services gives all services, ascending by name.
func (v *VPC) Services() []Service {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.services, func(s Service) Service { return s })
}

// Outsides gives all outside hosts, ascending by name.
func (v *VPC) Outsides() []Outside {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.outsides, func(o Outside) Outside { return o })
}

// InstanceTypes gives all known instance types, ascending by name.
func (v *VPC) InstanceTypes() []InstanceType {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.types, InstanceType.clone)
}

func all[K cmp.Ordered, R, T any](m map[K]R, copied func(R) T) []T {
	out := make([]T, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, copied(m[k]))
	}
	return out
}
