package vpc

import (
	"maps"
	"net/netip"
	"time"
)

// InternetGateway is a VPC's door to the internet. Packets find it by a default route, and only where their sender has a public
// address.
type InternetGateway struct {
	ID    string
	VPCID string // "" while it is detached
	Tags  map[string]string
}

func (g *InternetGateway) clone() InternetGateway {
	c := *g
	c.Tags = maps.Clone(g.Tags)
	return c
}

// defaultRoutes are the destinations that a route to an internet gateway may have here: IPv4's and IPv6's default. EC2 takes any.
func defaultRoutes() [2]netip.Prefix {
	return [2]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// CreateInternetGateway makes a gateway that is attached to no VPC.
func (v *VPC) CreateInternetGateway(now time.Time, tags map[string]string) (InternetGateway, error) {
	v.begin(now)
	defer v.end()
	if err := checkTags(nil, tags); err != nil {
		return InternetGateway{}, err
	}
	return v.newGateway("", tags).clone(), nil
}

func (v *VPC) newGateway(network string, tags map[string]string) *InternetGateway {
	g := &InternetGateway{ID: drawID(v.minor, kindGateway().prefix), VPCID: network, Tags: maps.Clone(tags)}
	v.gateways[g.ID] = g
	return g
}

// AttachInternetGateway attaches a gateway to a VPC that has none. Without a route nothing goes through it.
func (v *VPC) AttachInternetGateway(now time.Time, id, network string) error {
	v.begin(now)
	defer v.end()
	g, n, err := v.gatewayAndNetwork(id, network)
	switch {
	case err != nil:
		return err
	case g.VPCID != "":
		return refuse(CodeAlreadyAssociated, "resource %s is already attached to network %s", id, g.VPCID)
	case n.Gateway != "":
		return refuse(CodeParameterValue, "Network %s already has an internet gateway attached", network)
	}
	g.VPCID, n.Gateway = network, id
	v.rerouted(n)
	return nil
}

// DetachInternetGateway takes a gateway off its VPC; routes to it lead nowhere from then on.
func (v *VPC) DetachInternetGateway(now time.Time, id, network string) error {
	v.begin(now)
	defer v.end()
	g, n, err := v.gatewayAndNetwork(id, network)
	switch {
	case err != nil:
		return err
	case g.VPCID != network:
		return refuse(CodeNotAttached, "resource %s is not attached to network %s", id, network)
	}
	for _, e := range v.enis {
		if e.VPCID == network && e.Public.IsValid() {
			return refuse(CodeDependency, "Network %s has some mapped public address(es). Please unmap those public address(es) before detaching the gateway.", network)
		}
	}
	g.VPCID, n.Gateway = "", ""
	v.rerouted(n)
	return nil
}

// DeleteInternetGateway deletes a gateway that is detached.
func (v *VPC) DeleteInternetGateway(now time.Time, id string) error {
	v.begin(now)
	defer v.end()
	g, err := lookup(kindGateway(), v.gateways)(id)
	switch {
	case err != nil:
		return err
	case g.VPCID != "":
		return refuse(CodeDependency, "The internetGateway '%s' has dependencies and cannot be deleted.", id)
	}
	delete(v.gateways, id)
	return nil
}

func (v *VPC) gatewayAndNetwork(id, network string) (*InternetGateway, *Network, error) {
	g, err := lookup(kindGateway(), v.gateways)(id)
	if err != nil {
		return nil, nil, err
	}
	n, err := lookup(kindNetwork(), v.networks)(network)
	return g, n, err
}

// rerouted follows a change of a VPC's gateway or routes.
func (v *VPC) rerouted(n *Network) {
	n.Online = v.online(n)
	v.emit(Event{Kind: NetworkModified, Detail: n.ID})
}

// DescribeInternetGateways gives the named gateways (all for none), ascending by id; the first that does not exist is the error.
func (v *VPC) DescribeInternetGateways(ids []string) ([]InternetGateway, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(ids) == 0 {
		ids = sortedKeys(v.gateways)
	}
	return describe(ids, lookup(kindGateway(), v.gateways), (*InternetGateway).clone, func(g *InternetGateway) string { return g.ID })
}

// CreateRoute adds a default route to an internet gateway to a route table. Other routes follow from the VPC and its peerings.
func (v *VPC) CreateRoute(now time.Time, table string, r Route) error {
	v.begin(now)
	defer v.end()
	t, err := lookup(kindTable(), v.tables)(table)
	if err != nil {
		return err
	}
	g, err := lookup(kindGateway(), v.gateways)(r.Target)
	if err != nil {
		return err
	}
	_, there := t.defaults[r.Destination]
	switch {
	case r.Destination != defaultRoutes()[0] && r.Destination != defaultRoutes()[1]:
		return refuse(CodeUnsupported, "The destination %s is not supported by this fake: a route to an internet gateway is a default route here", r.Destination)
	case g.VPCID != t.VPCID:
		return refuse(CodeParameterValue, "route table %s and network gateway %s belong to different networks", table, r.Target)
	case there:
		return refuse(CodeRouteExists, "The route identified by %s already exists.", r.Destination)
	}
	t.defaults[r.Destination] = r.Target
	v.rerouted(v.networks[t.VPCID])
	return nil
}

// DeleteRoute takes a default route out of a route table.
func (v *VPC) DeleteRoute(now time.Time, table string, destination netip.Prefix) error {
	v.begin(now)
	defer v.end()
	t, err := lookup(kindTable(), v.tables)(table)
	if err != nil {
		return err
	}
	if _, there := t.defaults[destination]; !there {
		return refuse(CodeRouteNotFound, "no route with destination-cidr-block %s in route table %s", destination, table)
	}
	delete(t.defaults, destination)
	v.rerouted(v.networks[t.VPCID])
	return nil
}

// online tells whether IPv4 packets of a VPC find its gateway.
func (v *VPC) online(n *Network) bool {
	for _, t := range v.tables {
		if t.VPCID == n.ID {
			return n.Gateway != "" && t.defaults[defaultRoutes()[0]] == n.Gateway
		}
	}
	return false
}
