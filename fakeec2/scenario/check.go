package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	// maxHopLimit is the most that HttpPutResponseHopLimit may be, 1 the least. Source: EC2 API reference,
	// ModifyInstanceMetadataOptions.
	maxHopLimit = vpc.MaxHopLimit
	// maxENIs is the most that any instance type has (p5.48xlarge).
	maxENIs = 64
	// maxBranches is the most that any instance type has.
	maxBranches = 120
	// maxQuota is more than any region is given.
	maxQuota = 1 << 20
	// maxName is Kubernetes's limit on a node's name, and below what a file system takes.
	maxName = 253
	// fabricPrefix begins the names of the data plane's own namespaces.
	fabricPrefix = "fabric-"
)

var (
	accountID = regexp.MustCompile(`^[0-9]{12}$`)
	// guestName keeps a name inside <dir>/netns: it becomes a file there.
	guestName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// check looks for everything that the model cannot know or would take.
func (s Scenario) check() error {
	var p problems
	if s.Account != "" && !accountID.MatchString(s.Account) {
		p.want("account", s.Account, "twelve digits")
	}
	s.checkRates(&p)
	s.checkStatus(&p)
	s.checkKeys(&p)
	s.checkTypes(&p)
	s.checkGuests(&p)
	for i, n := range s.Nodes {
		field := fmt.Sprintf("nodes[%d].", i)
		if n.RPFilter != nil && (*n.RPFilter < 0 || *n.RPFilter > 2) {
			p.want(field+"rpFilter", *n.RPFilter, "0, 1 or 2")
		}
		if n.HopLimit != nil && (*n.HopLimit < 1 || *n.HopLimit > maxHopLimit) {
			p.want(field+"hopLimit", *n.HopLimit, fmt.Sprintf("1 to %d", maxHopLimit))
		}
	}
	s.checkReferences(&p)
	return p.err()
}

// checkRates looks at lags, buckets and limits.
func (s Scenario) checkRates(p *problems) {
	for _, name := range slices.Sorted(maps.Keys(s.Lags)) {
		if !slices.Contains(LagNames(), name) {
			p.want("lags."+name, name, "one of "+strings.Join(LagNames(), ", "))
		}
	}
	for i, b := range s.Buckets {
		field := fmt.Sprintf("buckets[%d].", i)
		if b.Action == "" {
			p.want(field+"action", b.Action, "the name of an action")
		}
		if slices.ContainsFunc(s.Buckets[:i], func(other Bucket) bool { return other.Action == b.Action }) {
			p.want(field+"action", b.Action, "one bucket for each action")
		}
		if b.Size < 0 || b.Refill < 0 {
			p.want(field+"size", b.Size, "a size and a refill of 0 or more")
		}
		if b.Size > 0 && b.Size < 1 {
			p.want(field+"size", b.Size, "0, which refuses everything, or 1 and more: a request takes a whole token")
		}
	}
	for _, limit := range []struct {
		name       string
		value, max int
	}{
		{"enis", s.Limits.ENIs, maxQuota}, {"groupsPerENI", s.Limits.GroupsPerENI, 16}, {"networkAddressUsage", s.Limits.Usage, maxQuota},
		{"networkAddressUsagePeered", s.Limits.PeeredUsage, maxQuota}, {"unpagedENIs", s.Limits.Unpaged, maxQuota},
	} {
		if limit.value < 0 || limit.value > limit.max {
			p.want("limits."+limit.name, limit.value, fmt.Sprintf("0 to %d", limit.max))
		}
	}
}

func (s Scenario) checkKeys(p *problems) {
	if len(s.Keys) > 0 && !s.Signed {
		p.want("signed", s.Signed, "true, where there are keys")
	}
	for i, k := range s.Keys {
		if k.ID == "" || k.Secret == "" {
			p.want(fmt.Sprintf("keys[%d]", i), k.ID, "an id and a secret")
		}
	}
}

// checkStatus: clients take only these for errors.
func (s Scenario) checkStatus(p *problems) {
	if status := s.Inferred.AuthFailureStatus; status != 0 && (status < 400 || status > 599) {
		p.want("inferred.authFailureStatus", status, "400 to 599")
	}
}

func (s Scenario) checkTypes(p *problems) {
	names := map[string]bool{"": true}
	for i, t := range s.Types {
		field := fmt.Sprintf("types[%d].", i)
		if names[t.Name] {
			p.want(field+"name", t.Name, "a name of its own")
		}
		names[t.Name] = true
		total := 0
		for j, n := range t.Cards {
			if total += max(0, n); n < 1 || n > maxENIs {
				p.want(fmt.Sprintf("%scards[%d]", field, j), n, fmt.Sprintf("1 to %d", maxENIs))
			}
		}
		switch {
		case len(t.Cards) > 0 && t.ENIs != 0 && t.ENIs != total:
			p.want(field+"enis", t.ENIs, fmt.Sprintf("what the cards take together, %d", total))
		case len(t.Cards) == 0 && (t.ENIs < 1 || t.ENIs > maxENIs):
			p.want(field+"enis", t.ENIs, fmt.Sprintf("1 to %d", maxENIs))
		}
		if t.IPv6 < 0 || t.IPv6 > vpc.MaxIPv4PerENI {
			p.want(field+"ipv6", t.IPv6, fmt.Sprintf("0 to %d", vpc.MaxIPv4PerENI))
		}
		if t.Branches < 0 || t.Branches > maxBranches {
			p.want(field+"branches", t.Branches, fmt.Sprintf("0 to %d", maxBranches))
		}
		if t.Addresses < 1 || t.Addresses > vpc.MaxIPv4PerENI {
			p.want(field+"addresses", t.Addresses, fmt.Sprintf("1 to %d", vpc.MaxIPv4PerENI))
		}
	}
}

// guest is something with a namespace.
type guest struct{ field, name, namespace string }

func (s Scenario) guests() []guest {
	var all []guest
	for i, x := range s.Services {
		all = append(all, guest{fmt.Sprintf("services[%d].", i), x.Name, x.Namespace})
	}
	for i, x := range s.Outside {
		all = append(all, guest{fmt.Sprintf("outside[%d].", i), x.Name, x.Namespace})
	}
	for i, x := range s.Nodes {
		all = append(all, guest{fmt.Sprintf("nodes[%d].", i), x.Name, x.Namespace})
	}
	return all
}

func (s Scenario) checkGuests(p *problems) {
	names, paths := map[string]bool{}, map[string]bool{"": true}
	for _, g := range s.guests() {
		switch {
		case !guestName.MatchString(g.name) || len(g.name) > maxName || strings.HasPrefix(g.name, fabricPrefix):
			p.want(g.field+"name", g.name, fmt.Sprintf("1 to %d letters, digits, '.', '-' and '_', a letter or digit first and last, not beginning with %q", maxName, fabricPrefix))
		case names[g.name]:
			p.want(g.field+"name", g.name, "a name of its own: services, outside hosts and nodes share one folder of namespaces")
		}
		names[g.name] = true
		if g.namespace == "" {
			continue
		}
		switch folder, err := os.Stat(filepath.Dir(g.namespace)); {
		case !filepath.IsAbs(g.namespace):
			p.want(g.field+"namespace", g.namespace, "an absolute path")
		case err != nil || !folder.IsDir():
			p.want(g.field+"namespace", g.namespace, "a path whose folder exists")
		case paths[filepath.Clean(g.namespace)]:
			p.want(g.field+"namespace", g.namespace, "a path of its own")
		}
		paths[filepath.Clean(g.namespace)] = true
	}
	if !slices.ContainsFunc(s.Services, func(x Service) bool { return x.Name == EC2Service }) {
		*p = append(*p, Problem{Field: "services", Accepts: fmt.Sprintf("one with the name %q, at which the EC2 API answers", EC2Service)})
	}
}

// checkReferences looks whether the names by which parts refer to each other are there.
func (s Scenario) checkReferences(p *problems) {
	var subnets []string
	groups := map[string][]string{} // by subnet: those of its VPC
	networks := map[string]bool{}
	for _, n := range s.networks() {
		if n.Name != "" && networks[n.Name] {
			p.want(n.field+".name", n.Name, "a name of its own")
		}
		networks[n.Name] = true
		own := []string{"default"}
		for i, g := range n.Groups {
			if g.Name == "" || slices.Contains(own, g.Name) {
				p.want(fmt.Sprintf("%s.securityGroups[%d].name", n.field, i), g.Name, "a name of its own, which \"default\" is not")
			}
			own = append(own, g.Name)
		}
		for i, sub := range n.Subnets {
			if sub.Name == "" || slices.Contains(subnets, sub.Name) {
				p.want(fmt.Sprintf("%s.subnets[%d].name", n.field, i), sub.Name, "a name of its own")
			}
			subnets = append(subnets, sub.Name)
			groups[sub.Name] = own
		}
		n.checkRules(p, own)
	}
	for i, peering := range s.Peerings {
		field := fmt.Sprintf("peerings[%d].between", i)
		if len(peering.Between) != 2 {
			p.want(field, fmt.Sprint(peering.Between), "the names of two VPCs")
		}
		for j, name := range peering.Between {
			if name == "" || !networks[name] {
				p.want(fmt.Sprintf("%s[%d]", field, j), name, "the name of a VPC")
			}
		}
	}
	for i, x := range s.Services {
		oneOf(p, fmt.Sprintf("services[%d].subnet", i), x.Subnet, subnets)
	}
	for i, n := range s.Nodes {
		field := fmt.Sprintf("nodes[%d].", i)
		oneOf(p, field+"subnet", n.Subnet, subnets)
		if own, there := groups[n.Subnet]; there {
			groupsOf(p, field, n.Groups, own)
		}
		for j, e := range n.ENIs {
			place := fmt.Sprintf("%senis[%d].", field, j)
			if e.Subnet != "" {
				oneOf(p, place+"subnet", e.Subnet, subnets)
			}
			if own, there := groups[cmp.Or(e.Subnet, n.Subnet)]; there {
				groupsOf(p, place, e.Groups, own)
			}
		}
	}
}

func groupsOf(p *problems, field string, names, own []string) {
	for j, g := range names {
		oneOf(p, fmt.Sprintf("%ssecurityGroups[%d]", field, j), g, own)
	}
}

// checkRules looks at what the rules of a VPC's groups say.
func (n placedVPC) checkRules(p *problems, groups []string) {
	for i, g := range n.Groups {
		for _, list := range []struct {
			name  string
			rules []Rule
		}{{"ingress", g.Ingress}, {"egress", g.Egress}} {
			for j, r := range list.rules {
				field := fmt.Sprintf("%s.securityGroups[%d].%s[%d].", n.field, i, list.name, j)
				if _, _, ok := r.ports(); !ok {
					p.want(field+"ports", r.Ports, "a port or a range such as 30000-32767")
				}
				if _, err := netip.ParsePrefix(r.Peer); err != nil {
					oneOf(p, field+"peer", r.Peer, groups)
				}
			}
		}
	}
}

func oneOf(p *problems, field, name string, names []string) {
	switch {
	case slices.Contains(names, name):
	case len(names) == 0:
		p.want(field, name, "a subnet of the VPC, which has none")
	default:
		p.want(field, name, "one of the scenario's: "+strings.Join(names, ", "))
	}
}

// CheckFaults looks at each fault with a check of the server's that is to carry it out: what it can never meet is refused.
func (s Scenario) CheckFaults(check func(Fault) error) error {
	var p problems
	for i, f := range s.Faults {
		p.refused(fmt.Sprintf("faults[%d]", i), check(f))
	}
	return locate(p.err(), s.lines)
}

// CheckBuckets refuses a bucket of an action that the server does not serve: nothing would ever be throttled by it.
func (s Scenario) CheckBuckets(actions []string) error {
	var p problems
	for i, b := range s.Buckets {
		if !slices.Contains(actions, b.Action) {
			p.want(fmt.Sprintf("buckets[%d].action", i), b.Action, "one of "+strings.Join(actions, ", "))
		}
	}
	return locate(p.err(), s.lines)
}
