package scenario

import (
	"fmt"
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

func (s Scenario) checkTypes(p *problems) {
	names := map[string]bool{"": true}
	for i, t := range s.Types {
		field := fmt.Sprintf("types[%d].", i)
		if names[t.Name] {
			p.want(field+"name", t.Name, "a name of its own")
		}
		names[t.Name] = true
		if t.ENIs < 1 || t.ENIs > maxENIs {
			p.want(field+"enis", t.ENIs, fmt.Sprintf("1 to %d", maxENIs))
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
	for i, sub := range s.VPC.Subnets {
		if sub.Name == "" || slices.Contains(subnets, sub.Name) {
			p.want(fmt.Sprintf("vpc.subnets[%d].name", i), sub.Name, "a name of its own")
		}
		subnets = append(subnets, sub.Name)
	}
	groups := []string{"default"}
	for i, g := range s.VPC.Groups {
		if g.Name == "" || slices.Contains(groups, g.Name) {
			p.want(fmt.Sprintf("vpc.securityGroups[%d].name", i), g.Name, "a name of its own, which \"default\" is not")
		}
		groups = append(groups, g.Name)
	}
	for i, x := range s.Services {
		oneOf(p, fmt.Sprintf("services[%d].subnet", i), x.Subnet, subnets)
	}
	for i, n := range s.Nodes {
		oneOf(p, fmt.Sprintf("nodes[%d].subnet", i), n.Subnet, subnets)
		for j, g := range n.Groups {
			oneOf(p, fmt.Sprintf("nodes[%d].securityGroups[%d]", i, j), g, groups)
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
	return p.err()
}
