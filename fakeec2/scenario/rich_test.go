package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// rich uses what the small scenario leaves out.
const rich = `
seed: 3
lags: {attach: 1s..5s, metadata-bare: never, launch: 0s}
throttle: true
buckets: [{action: CreateTags, size: 1, refill: 0.5}]
limits: {enis: 100, groupsPerENI: 6, networkAddressUsage: 500, tagSettle: 1s}
inferred: {mixedLists: true, unfitType: UnsupportedOperation}
types:
- {name: cards, addresses: 4, cards: [2, 1], branches: 3, efa: true}
- {name: old, enis: 2, addresses: 3, xen: true}
vpcs:
- name: main
  cidrs: [10.0.0.0/16, 10.7.0.0/16]
  ipv6: [2600:1f14:0:100::/56]
  subnets:
  - {name: one, cidr: 10.0.1.0/24, ipv6: 2600:1f14:0:101::/64, reservations: [{cidr: 10.0.1.64/27, type: prefix}]}
  - {name: six, ipv6: 2600:1f14:0:102::/64, az: us-west-2b}
  securityGroups:
  - {name: closed, ingress: []}
  - {name: web, ingress: [{protocol: tcp, ports: 80-443, peer: 0.0.0.0/0}, {peer: closed}], egress: [{protocol: icmp, peer: 10.0.0.0/8}]}
- {name: peer, cidrs: [10.1.0.0/16], subnets: [{name: far, cidr: 10.1.1.0/24}]}
peerings: [{between: [main, peer], crossRegion: true}]
services: [{name: ec2, subnet: one, address: 10.0.1.200}]
nodes:
- {name: a, type: cards, subnet: one, ipv6: 1, securityGroups: [web], metadataTags: true, predictableNames: true, enis: [{device: 1, secondary: 2}, {device: 1, card: 1, prefixes: 2, keep: true}]}
- {name: b, type: old, subnet: six, metadataOff: true}
- {name: c, subnet: far}
faults: [{name: old, kind: stale, age: 5s}, {name: stuck, kind: hang, "off": true}, {name: slow, kind: delay, jitter: 1s}]
`

func TestBuildMakesARichModel(t *testing.T) {
	s, err := scenario.Parse([]byte(rich))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Build(time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Model.Check(); err != nil {
		t.Fatal(err)
	}
	l := w.Model.Lags()
	if l.Attach != (vpc.Range{Min: time.Second, Max: 5 * time.Second}) || l.MetadataBare.Min != vpc.Never || l.Launch != (vpc.Range{}) || l.Link.Min != 2*time.Second {
		t.Errorf("lags %+v", l)
	}
	if !w.Buckets.On() || !w.Buckets.Take(time.Time{}, "", "CreateTags", false, 0) || w.Buckets.Take(time.Time{}, "", "CreateTags", false, 0) {
		t.Error("the bucket of one token is not there")
	}
	nodes := map[string]vpc.Instance{}
	for _, i := range w.Model.Instances() {
		nodes[i.Name] = i
	}
	enis := w.Model.InstanceENIs(nodes["a"].ID)
	if len(enis) != 3 || len(enis[0].IPv6) != 1 || len(enis[1].Secondary) != 2 || len(enis[2].Prefixes) != 2 || enis[2].Attachment.Card != 1 || enis[2].Attachment.DeleteOnTermination {
		t.Errorf("%+v", enis)
	}
	if b := w.Model.InstanceENIs(nodes["b"].ID)[0]; b.Primary.IsValid() || len(b.IPv6) != 1 || !nodes["b"].MetadataOff {
		t.Errorf("%+v", b)
	}
	if !nodes["a"].PredictableNames || nodes["b"].PredictableNames {
		t.Error("predictable names are not those of node a alone")
	}
	if p := w.Model.Peerings(); len(p) != 1 || !p[0].CrossRegion || nodes["c"].VPCID != p[0].B {
		t.Errorf("%+v", p)
	}
	for _, g := range w.Model.SecurityGroups() {
		switch {
		case g.Name == "closed" && (len(g.Ingress) != 0 || len(g.Egress) != 2):
			t.Errorf("%+v", g)
		case g.Name == "web" && (len(g.Ingress) != 2 || g.Ingress[0].To != 443 || g.Ingress[1].Group == "" || len(g.Egress) != 1 || g.Egress[0].From != -1):
			t.Errorf("%+v", g)
		}
	}
}

func TestMistakesHaveLines(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"attach: 1s..5s", "attach: 5s..1s", `lags.attach: "5s..1s": want a duration such as "1.5s", or a range such as "1s..5s" (line 3)`},
		{"launch: 0s", "lunch: 0s", `lags.lunch: "lunch": want one of create, launch, attach`},
		{"device: 1, card: 1", "device: 1, card: 2", "nodes[0]: InvalidParameterValue: invalid value for parameter networkCardIndex: 2 (line 25)"},
		{"{device: 1, secondary: 2}", "{device: 0}", "already has an interface attached at device index '0'. (line 25)"},
		{"type: prefix", "type: prefixes", "vpcs[0].subnets[0].reservations[0]: InvalidParameterValue: Value (prefixes) for parameter reservationType is invalid. (line 16)"},
		{"peer: closed", "peer: close", `vpcs[0].securityGroups[1].ingress[1].peer: "close": want one of the scenario's: default, closed, web (line 20)`},
		{"ports: 80-443", "ports: 443-80", `vpcs[0].securityGroups[1].ingress[0].ports: "443-80": want a port or a range such as 30000-32767 (line 20)`},
		{"[main, peer]", "[main, pear]", `peerings[0].between[1]: "pear": want the name of a VPC (line 22)`},
		{"cards: [2, 1]", "enis: 5, cards: [2, 1]", "types[0].enis: 5: want what the cards take together, 3 (line 9)"},
		{"size: 1,", "size: -1,", "buckets[0].size: -1: want a size and a refill of 0 or more (line 5)"},
		{"refill: 0.5}]", "refill: 0.5}, {action: CreateTags}]", `buckets[1].action: "CreateTags": want one bucket for each action`},
		{"size: 1,", "size: 0.5,", "buckets[0].size: 0.5: want 0, which refuses everything, or 1 and more"},
		{"mixedLists: true", "authFailureStatus: 200", "inferred.authFailureStatus: 200: want 400 to 599 (line 7)"},
		{"enis: 100", "unpagedENIs: -1", "limits.unpagedENIs: -1: want 0 to "},
		{"seed: 3", "seed: 3\nkeys: [{id: a}]", "signed: false: want true, where there are keys"},
		{"seed: 3", "seed: 3\nsigned: true\nkeys: [{id: a}]", `keys[0]: "a": want an id and a secret (line 4)`},
		{"groupsPerENI: 6", "groupsPerENI: 17", "limits.groupsPerENI: 17: want 0 to 16 (line 6)"},
		{"{name: ec2, subnet: one", "{name: other, subnet: one", `services: want one with the name "ec2", at which the EC2 API answers (line 23)`},
		{`"off": true`, "off: true", `faults[1].false: unknown field: YAML takes a bare off, no or n for false: write "off": in quotes; want one of action, `},
		{"kind: stale, age: 5s", "kind: stale", `faults[0]: add fault "old": kind "stale", and no other, needs an age (line 28)`},
	} {
		if err := build(t, strings.Replace(rich, c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
