package vpc

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// RouteTable is a VPC's main route table, the only one that it has. Its routes follow from the VPC and its peerings, but for the
// default ones.
type RouteTable struct {
	ID, VPCID string
	Tags      map[string]string

	defaults map[netip.Prefix]string // internet gateways
}

// Route is a route of a RouteTable.
type Route struct {
	Destination netip.Prefix
	Target      string // LocalRoute, an internet gateway, or a peering
	Blackhole   bool   // the gateway is gone
}

// LocalRoute is the target of a VPC's own networks.
const LocalRoute = "local"

// Peering joins two VPCs: their addresses reach each other end to end, and no farther.
type Peering struct {
	ID, A, B    string // pcx-...; VPCs
	CrossRegion bool   // as if B were in another region: MTU 8500 instead of 9001, no reference to the other's security groups
}

// other gives the VPC at the other end, or "".
func (p Peering) other(network string) string {
	switch network {
	case p.A:
		return p.B
	case p.B:
		return p.A
	}
	return ""
}

// AddPeering joins two VPCs whose networks do not overlap, with routes on both sides. An empty ID is drawn.
func (v *VPC) AddPeering(p Peering) (Peering, error) {
	v.begin(time.Time{})
	defer v.end()
	a, b := v.networks[p.A], v.networks[p.B]
	switch {
	case a == nil:
		return Peering{}, kindNetwork().missing(clip(p.A))
	case b == nil:
		return Peering{}, kindNetwork().missing(clip(p.B))
	case p.A == p.B:
		return Peering{}, refuse(CodeParameterValue, "A VPC cannot be peered with itself")
	}
	for _, one := range slices.Concat(a.CIDRs, a.IPv6CIDRs) {
		for _, other := range slices.Concat(b.CIDRs, b.IPv6CIDRs) {
			if one.Overlaps(other) {
				return Peering{}, refuse(CodeParameterValue, "The networks %s and %s overlap", one, other)
			}
		}
	}
	if p.ID == "" {
		p.ID = drawID(v.minor, "pcx-")
	}
	for _, other := range v.peerings {
		if other.ID == p.ID || other.other(p.A) == p.B {
			return Peering{}, refuse(CodeParameterValue, "The peering '%s' exists already", other.ID)
		}
	}
	v.peerings[p.ID] = p
	v.emit(Event{Kind: PeeringAdded, Detail: p.ID})
	return p, nil
}

// Peerings gives all peerings, ascending by id.
func (v *VPC) Peerings() []Peering {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.peerings, func(p Peering) Peering { return p })
}

func (v *VPC) addTable(network string) *RouteTable {
	t := &RouteTable{ID: drawID(v.minor, kindTable().prefix), VPCID: network, defaults: map[netip.Prefix]string{}}
	v.tables[t.ID] = t
	return t
}

// DescribeRouteTables gives the named route tables (all for none), ascending by id; the first that does not exist is the error.
func (v *VPC) DescribeRouteTables(ids []string) ([]RouteTable, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(ids) == 0 {
		ids = sortedKeys(v.tables)
	}
	return describe(ids, lookup(kindTable(), v.tables), func(t *RouteTable) RouteTable {
		c := *t
		c.Tags, c.defaults = maps.Clone(t.Tags), nil
		return c
	}, func(t *RouteTable) string { return t.ID })
}

// Routes gives the routes of a VPC: to itself, through its peerings, and the default ones.
func (v *VPC) Routes(network string) []Route {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.networks[network]
	if n == nil {
		return nil
	}
	var out []Route
	to := func(target string, list []netip.Prefix) {
		for _, c := range list {
			out = append(out, Route{Destination: c, Target: target})
		}
	}
	to(LocalRoute, slices.Concat(n.CIDRs, n.IPv6CIDRs))
	for _, id := range sortedKeys(v.peerings) {
		if other := v.networks[v.peerings[id].other(network)]; other != nil {
			to(id, slices.Concat(other.CIDRs, other.IPv6CIDRs))
		}
	}
	for _, t := range v.tables {
		if t.VPCID != network {
			continue
		}
		for _, destination := range defaultRoutes() {
			if gateway, there := t.defaults[destination]; there {
				out = append(out, Route{destination, gateway, gateway != n.Gateway})
			}
		}
	}
	return out
}
