package scenario_test

import (
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
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown field":   {"hopLimit", "hoplimits", `unknown field "hoplimits"`},
		"twice in a map":  {"seed: 7", "seed: 7\nseed: 8", `key "seed" already set`},
		"no ec2":          {"name: ec2", "name: ec3", `no service "ec2"`},
		"name twice":      {"name: right,", "name: left,", `"left" is empty or used twice`},
		"name of another": {"name: right,", "name: internet,", `"internet" is empty or used twice`},
		"subnet":          {"{name: right, subnet: one}", "{name: m, subnet: two}", `find subnet "two"`},
		"group":           {"[nodes]", "[nodez]", `find security group "nodez"`},
		"type":            {"type: toy", "type: tiny", "tiny"},
		"address":         {"address: 10.0.1.10", "address: 10.0.1.1", "reserved"},
		"rp_filter":       {"rpFilter: 2", "rpFilter: 3", "want 0, 1 or 2"},
		"duration":        {"1.5s", "1500", "want text"},
		"negative":        {"250ms", "-1s", "negative"},
		"fault":           {"kind: delay", "kind: dely", "dely"},
		"address syntax":  {"10.0.1.200", "10.0.1", "10.0.1"},
	} {
		text := strings.Replace(small, c.from, c.to, 1)
		s, err := scenario.Parse([]byte(text))
		if err == nil {
			_, err = s.Build(time.Unix(1_700_000_000, 0))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
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
