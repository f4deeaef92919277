package scenario_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const small = `
seed: 7
delays: {attach: 0s, link: 250ms, detach: never}
types: [{name: toy, enis: 2, addresses: 3}]
vpc:
  cidrs: [10.0.0.0/16]
  subnets: [{name: one, cidr: 10.0.1.0/24, tags: {kind: pods}}]
  securityGroups: [{name: nodes}]
services: [{name: ec2, subnet: one, address: 10.0.1.200}]
outside: [{name: internet, address: 203.0.113.10, network: 203.0.113.0/24}]
nodes:
- {name: left, type: toy, subnet: one, address: 10.0.1.10, public: 198.51.100.1, securityGroups: [nodes], hopLimit: 2, rpFilter: 2, role: r}
- {name: right, subnet: one}
faults: [{name: slow, action: AssignPrivateIpAddresses, kind: delay, delay: 1.5s}]
`

func TestBuildMakesTheModel(t *testing.T) {
	s, err := scenario.Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Build(time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Model.Check(); err != nil {
		t.Error(err)
	}
	byName := map[string]vpc.Instance{}
	for _, i := range w.Model.Instances() {
		byName[i.Name] = i
	}
	n, m := byName["left"], byName["right"]
	if n.PrivateIP != netip.MustParseAddr("10.0.1.10") || n.Limits.ENIs != 2 || n.Limits.IPv4 != 3 || n.HopLimit != 2 || n.Role != "r" {
		t.Errorf("node n is %+v", n)
	}
	if m.Type != "m5.xlarge" || !m.PrivateIP.IsValid() || m.HopLimit != 1 {
		t.Errorf("node m is %+v", m)
	}
	if diff := cmp.Diff(map[string]int{n.ID: 2, m.ID: 1}, w.RPFilter); diff != "" {
		t.Errorf("rp_filter (-want +got):\n%s", diff)
	}
	want := vpc.Delays{Attach: 0, Link: 250 * time.Millisecond, Detach: vpc.Never, IMDS: time.Second}
	if diff := cmp.Diff(want, w.Model.Delays()); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if states := w.Faults.States(); len(states) != 1 || states[0].Delay != 1500*time.Millisecond {
		t.Errorf("faults are %+v", states)
	}
	if public := w.Model.InstanceENIs(n.ID)[0].Public; public != netip.MustParseAddr("198.51.100.1") {
		t.Errorf("public address of n is %s", public)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	const left = "{name: left,"
	long := strings.Repeat("a", 254)
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown field":      {"hopLimit", "hoplimits", `nodes[0].hoplimits: unknown field: want one of address, enis, hopLimit, id, `},
		"twice in a map":     {"seed: 7", "seed: 7\nseed: 8", `line 3: key "seed" already set`},
		"no YAML":            {"seed: 7", "\tseed: 7", "line 2: found character that cannot start any token"},
		"seed":               {"seed: 7", "seed: -1", "seed: -1: want a whole number, 0 or more"},
		"account":            {"seed: 7", `account: "12"`, `account: "12": want twelve digits`},
		"account no text":    {"seed: 7", "account: 12", `account: "12": want twelve digits`},
		"namespace twice":    {"{name: right,", "{name: right, subnet: one, namespace: /x}\n- {name: other, namespace: /./x,", `nodes[2].namespace: "/./x": want a path of its own`},
		"no ec2":             {"name: ec2", "name: ec3", `services: want one with the name "ec2"`},
		"name twice":         {"name: right,", "name: left,", `nodes[1].name: "left": want a name of its own`},
		"name of another":    {"name: right,", "name: internet,", `nodes[1].name: "internet": want a name of its own`},
		"no name":            {left, "{", `nodes[0].name: "": want 1 to 253 letters`},
		"name leads out":     {left, "{name: ../../x,", `nodes[0].name: "../../x": want`},
		"name is a folder":   {left, "{name: a/b,", `nodes[0].name: "a/b": want`},
		"name is ..":         {left, "{name: ..,", `nodes[0].name: "..": want`},
		"name too long":      {left, "{name: " + long + ",", `: want 1 to 253`},
		"name of the fabric": {left, "{name: fabric-vpc-1,", `not beginning with "fabric-"`},
		"service's name":     {"[{name: ec2,", "[{name: ../e, subnet: one, address: 10.0.1.201}, {name: ec2,", `services[0].name: "../e": want`},
		"outside's name":     {"{name: internet,", "{name: ../e,", `outside[0].name: "../e": want`},
		"namespace":          {left, "{namespace: /does/not/exist, name: left,", `nodes[0].namespace: "/does/not/exist": want a path whose folder exists`},
		"namespace relative": {left, "{namespace: x/y, name: left,", `nodes[0].namespace: "x/y": want an absolute path`},
		"subnet":             {"{name: right, subnet: one}", "{name: m, subnet: two}", `nodes[1].subnet: "two": want one of the scenario's: one`},
		"service's subnet":   {"ec2, subnet: one", "ec2, subnet: two", `services[0].subnet: "two": want`},
		"group":              {"[nodes]", "[nodez]", `nodes[0].securityGroups[0]: "nodez": want one of the scenario's: default, nodes`},
		"group twice":        {"{name: nodes}", "{name: nodes}, {name: nodes}", `vpc.securityGroups[1].name: "nodes": want a name`},
		"type":               {"type: toy", "type: tiny", "nodes[0]: InvalidParameterValue: Invalid value 'tiny'"},
		"type without ENIs":  {"enis: 2", "enis: 0", "types[0].enis: 0: want 1 to 64"},
		"type's ENIs":        {"enis: 2", "enis: -2", "types[0].enis: -2: want 1 to 64"},
		"type's addresses":   {"addresses: 3", "addresses: 51", "types[0].addresses: 51: want 1 to 50"},
		"type's name":        {"name: toy,", "", `types[0].name: "": want`},
		"hop limit":          {"hopLimit: 2", "hopLimit: 99", "nodes[0].hopLimit: 99: want 1 to 64"},
		"hop limit below":    {"hopLimit: 2", "hopLimit: -1", "nodes[0].hopLimit: -1: want 1 to 64"},
		"hop limit of 0":     {"hopLimit: 2", "hopLimit: 0", "nodes[0].hopLimit: 0: want 1 to 64"},
		"hop limit as text":  {"hopLimit: 2", "hopLimit: two", `nodes[0].hopLimit: "two": want a whole number`},
		"address":            {"address: 10.0.1.10", "address: 10.0.1.1", "nodes[0]: InvalidParameterValue: invalid value for parameter address: 10.0.1.1 (in the subnet's reserved range)"},
		"CIDR":               {"[10.0.0.0/16]", "[10.0.0.1/16]", "vpc: InvalidVpcRange"},
		"CIDR syntax":        {"[10.0.0.0/16]", "[10.0.0.0/99]", `vpc.cidrs[0]: "10.0.0.0/99": want a network such as`},
		"subnet's CIDR":      {"10.0.1.0/24", "10.9.1.0/24", "vpc.subnets[0]: InvalidSubnet.Range"},
		"outside's address":  {"203.0.113.10", "203.0.114.10", "outside[0]: InvalidParameterValue"},
		"rp_filter":          {"rpFilter: 2", "rpFilter: 3", "nodes[0].rpFilter: 3: want 0, 1 or 2"},
		"duration":           {"1.5s", "1500", `faults[0].delay: 1500: want a duration such as "1.5s"`},
		"negative":           {"250ms", "-1s", `delays.link: "-1s": want a duration such as "1.5s", 0 or more`},
		"fault":              {"kind: delay", "kind: dely", `faults[0]: add fault "slow": kind "dely" is unknown: want one of [error throttle delay lost hang stale]`},
		"no list":            {"tags: {kind: pods}", "tags: [pods]", "vpc.subnets[0].tags: [pods]: want a map"},
		"no map":             {"delays: {attach: 0s, link: 250ms, detach: never}", "delays: 3", "delays: 3: want a map"},
		"two at once":        {"{attach: 0s,", "{attach: fast, lnk: 1s,", "2 problems\n  delays.attach: \"fast\": want a duration"},
		"address syntax":     {"10.0.1.200", "10.0.1", `services[0].address: "10.0.1": want an address such as`},
	} {
		if err := build(t, strings.Replace(small, c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func build(t *testing.T, text string) error {
	t.Helper()
	s, err := scenario.Parse([]byte(text))
	if err != nil {
		return err
	}
	_, err = s.Build(time.Unix(1_700_000_000, 0))
	return err
}

func TestAllMistakesAreToldAtOnce(t *testing.T) {
	err := build(t, `
account: "12"
types: [{name: toy, enis: 0, addresses: 0}]
vpc: {cidrs: [10.0.0.0/16], subnets: [{name: one, cidr: 10.0.1.0/24}]}
services: [{name: "e/c", subnet: two}]
nodes: [{name: ../../x, subnet: one, hopLimit: 99, namespace: /does/not/exist}, {name: y, subnet: one, rpFilter: 5}]
`)
	want := []string{
		"account", "types[0].enis", "types[0].addresses", "services[0].name", "nodes[0].name", "nodes[0].namespace", "services",
		"nodes[0].hopLimit", "nodes[1].rpFilter", "services[0].subnet",
	}
	var bad *scenario.Error
	if !errors.As(err, &bad) {
		t.Fatal(err)
	}
	var fields []string
	for _, problem := range bad.Problems {
		fields = append(fields, problem.Field)
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if lines := strings.Count(err.Error(), "\n"); lines != len(want) {
		t.Errorf("%d lines:\n%v", lines, err)
	}
	// What only the laws of the VPC refuse is told together, too.
	err = build(t, `
vpc: {cidrs: [10.0.0.0/16], subnets: [{name: one, cidr: 10.0.1.0/24}]}
services: [{name: ec2, subnet: one, address: 10.0.1.1}]
outside: [{name: out, address: 10.0.1.9, network: 10.0.1.0/24}]
nodes: [{name: a, subnet: one, type: m9.huge}, {name: b, subnet: one, address: 10.0.2.1}]
`)
	if !errors.As(err, &bad) || len(bad.Problems) != 4 {
		t.Errorf("want four problems: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(rich))
	f.Add([]byte(`{"services":[{"name":"ec2"}],"delays":{"link":"never"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenario.Parse(text)
		if err != nil {
			return
		}
		w, err := s.Build(time.Unix(1_700_000_000, 0))
		if err != nil {
			return
		}
		if err := w.Model.Check(); err != nil {
			t.Errorf("a scenario that was built breaks a law: %v", err)
		}
	})
}
