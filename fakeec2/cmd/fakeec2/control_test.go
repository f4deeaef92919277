package main

import (
	"bytes"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// cli runs a command on the served world and gives what it printed.
func (s *served) cli(line string) string {
	s.t.Helper()
	args := strings.Fields(line)
	var out, errOut bytes.Buffer
	if code := command(s.t.Context(), append(args, "--dir", s.dir), &out, &errOut); code != 0 {
		s.t.Fatalf("fakeec2 %s: code %d: %s", line, code, errOut.String())
	}
	return out.String()
}

// refused runs a command that must fail and gives what it complained of.
func (s *served) refused(line string) string {
	s.t.Helper()
	var out, errOut bytes.Buffer
	if code := command(s.t.Context(), append(strings.Fields(line), "--dir", s.dir), &out, &errOut); code == 0 {
		s.t.Errorf("fakeec2 %s: succeeded with %s", line, out.String())
	}
	return errOut.String()
}

// opened opens the namespace of something that came later.
func (s *served) opened(name string) *netlab.Namespace {
	s.t.Helper()
	n, err := netlab.Open(filepath.Join(s.dir, "netns", name))
	s.check(err)
	s.t.Cleanup(func() { n.Close() })
	return n
}

// reaches tells whether a TCP connection to an address comes about.
func (s *served) reaches(from, to *netlab.Namespace, addr string) bool {
	s.t.Helper()
	listener, err := to.Listen(s.t.Context(), "tcp4", addr+":7")
	s.check(err)
	defer listener.Close()
	deadline := make(chan struct{})
	timer := time.AfterFunc(time.Second, func() { close(deadline); listener.Close() })
	defer timer.Stop()
	dialed := make(chan error, 1)
	go func() {
		conn, err := from.DialContext(s.t.Context(), "tcp4", addr+":7")
		if err == nil {
			conn.Close()
		}
		dialed <- err
	}()
	select {
	case err := <-dialed:
		return err == nil
	case <-deadline:
		return false
	}
}

var eniID = regexp.MustCompile(`eni-[0-9a-f]+`)

func TestCommandsChangeTheWorld(t *testing.T) {
	s := start(t, "")
	s.admin("POST", "/delays", `{"attach":"0s","link":"0s","detach":"0s"}`)
	if out := s.cli("instance run --name node-c --subnet 10.0.1.0/24 --address 10.0.1.77 --group nodes"); !strings.Contains(out, "node-c") || !strings.Contains(out, "10.0.1.77") {
		t.Errorf("instance run printed %q", out)
	}
	c, a := s.opened("node-c"), s.open("node-a")
	if !s.reaches(a, c, "10.0.1.77") {
		t.Error("a new instance is not reached")
	}
	out := s.cli("eni create --subnet 10.0.1.0/24 --addresses 2 --group nodes")
	eni := eniID.FindString(out)
	if eni == "" || !strings.Contains(out, "available") {
		t.Fatalf("eni create printed %q", out)
	}
	if out := s.cli("eni attach --instance node-c --device 3 --eni " + eni); !strings.Contains(out, "device 3, attached, link") {
		t.Errorf("eni attach printed %q", out)
	}
	s.cli("eni assign --address 10.0.1.99 --eni " + eni)
	s.cli("eni assign --address 10.0.1.100 --eni " + eni)
	s.cli("eni assign --prefixes 1 --eni " + eni)
	if out := s.cli(strings.ReplaceAll("eni unassign "+verbs()["eni unassign"].example, "eni-0123456789abcdef0", eni)); strings.Contains(out, "10.0.1.99") || !strings.Contains(out, "/28") {
		t.Errorf("eni unassign printed %q", out)
	}
	s.cli("eni modify --check=false --eni " + eni)
	if out := s.cli("eni modify --group default --eni " + eni); !strings.Contains(out, "no source check") {
		t.Errorf("eni modify printed %q", out)
	}
	if got := s.reaches(a, c, "10.0.1.77"); !got {
		t.Error("the instance is not reached after its second ENI came")
	}
	s.cli("eni detach --eni " + eni)
	s.cli("eni delete --eni " + eni)
	if out := s.refused("eni delete --eni " + eni); !strings.Contains(out, "InvalidNetworkInterfaceID.NotFound") {
		t.Errorf("a second delete: %s", out)
	}
	if out := s.cli("instance terminate --instance node-c"); !strings.Contains(out, "shutting-down") && !strings.Contains(out, "terminated") {
		t.Errorf("instance terminate printed %q", out)
	}
	state := s.cli("state")
	for _, want := range []string{"node-a", "terminated", "10.0.1.10", "device 0, attached, link", "subnet"} {
		if !strings.Contains(state, want) {
			t.Errorf("state lacks %q:\n%s", want, state)
		}
	}
	for line, want := range map[string]string{
		"instance run --name x --subnet 10.9.0.0/24":        "want one of subnet-",
		"instance run --name x":                             "which subnet?",
		"instance run --name node-a --subnet 10.0.1.0/24":   `the name "node-a" is taken`,
		"instance run --subnet 10.0.1.0/24 --group nobody":  "(nodes)",
		"instance terminate --instance nobody":              "there is none",
		"instance adopt --name x --namespace /nowhere":      "/nowhere",
		"instance announce --instance node-a --interrupt x": "want terminate, stop or hibernate",
	} {
		if got := s.refused(line); !strings.Contains(got, want) {
			t.Errorf("fakeec2 %s: %s, want %q", line, got, want)
		}
	}
}

func TestMetadataCommands(t *testing.T) {
	s := start(t, fmt.Sprintf(oneNode, 1))
	node := client(s.open("node"))
	s.cli("instance announce --instance node --interrupt terminate --in 90s --rebalance")
	if got := s.metadata(node, "spot/instance-action"); !strings.HasPrefix(got, `{"action":"terminate","time":"`) {
		t.Errorf("instance-action is %q", got)
	}
	s.metadata(node, "events/recommendations/rebalance")
	s.cli("instance announce --instance node")
	fails := func(status string) {
		t.Helper()
		if _, err := ask(node, "GET", imdsURL+"meta-data/spot/instance-action", ""); err == nil || !strings.Contains(err.Error(), status) {
			t.Errorf("instance-action: %v, want %s", err, status)
		}
	}
	fails("404")
	s.cli("instance metadata --instance node --tokens-required")
	fails("401")
	s.cli("instance metadata --instance node --off")
	fails("403")
	s.cli("instance metadata --instance node --off=false --tokens-required=false")
	fails("404")
	s.cli("instance limit --per-second 0.001 --burst 1")
	fails("404")
	fails("503")
	s.cli("instance limit")
	fails("404")
}

func TestFaultCommands(t *testing.T) {
	s := start(t, fmt.Sprintf(oneNode, 1))
	node := client(s.open("node"))
	s.cli("fault add --name busy --action DescribeSubnets --kind throttle --times 1")
	s.cli("fault add --name slow --kind delay --delay 1ms")
	if _, err := ask(node, "POST", s.ec2+"/", "Action=DescribeSubnets&Version=2016-11-15", "Content-Type", "application/x-www-form-urlencoded"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("first call: %v, want the fault", err)
	}
	if out := s.cli("fault list"); !strings.Contains(out, "busy") || !strings.Contains(out, "1 of 1 requests hit") || !strings.Contains(out, "slow") {
		t.Errorf("fault list printed %q", out)
	}
	if out := s.cli("fault clear --name busy"); strings.Contains(out, "busy") || !strings.Contains(out, "slow") {
		t.Errorf("fault clear --name printed %q", out)
	}
	if out := s.cli("fault clear"); out != "" {
		t.Errorf("fault clear printed %q", out)
	}
	s.cli("fault add --name old --kind stale --age 5s --action DescribeSubnets --off")
	if out := s.cli("fault on --name old"); strings.Contains(out, "off") {
		t.Errorf("fault on printed %q", out)
	}
	if out := s.cli("fault off --name old"); !strings.Contains(out, "stale") || !strings.Contains(out, "off") {
		t.Errorf("fault off printed %q", out)
	}
	if out := s.refused("fault on --name nobody"); !strings.Contains(out, `switch fault "nobody": there is none`) {
		t.Errorf("switching what is not there: %s", out)
	}
	s.cli("fault clear")
	if out := s.refused("fault add --name x --kind throttle --action DescribeInstancez"); !strings.Contains(out, "DescribeInstances") {
		t.Errorf("a misspelt action: %s", out)
	}
	if out := s.refused("fault add --name x --kind stale --age 3m"); !strings.Contains(out, "the world remembers 2m0s") {
		t.Errorf("older than the world's memory: %s", out)
	}
	if out := s.cli("journal"); !strings.Contains(out, "DescribeSubnets") || !strings.Contains(out, "fault busy") {
		t.Errorf("journal printed %q", out)
	}
	if out := s.cli("journal --since 1 --json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("as JSON: %q", out)
	}
	if out := s.cli("journal --since 1"); out != "" {
		t.Errorf("journal after the last request printed %q", out)
	}
}

func TestBucketCommands(t *testing.T) {
	s := start(t, fmt.Sprintf(oneNode, 1))
	node := client(s.open("node"))
	describe := func() string {
		t.Helper()
		_, err := ask(node, "POST", s.ec2+"/", "Action=DescribeSubnets&Version=2016-11-15", "Content-Type", "application/x-www-form-urlencoded")
		if err != nil {
			return err.Error()
		}
		return ""
	}
	if out := s.cli("buckets list"); !strings.Contains(out, "off") || !regexp.MustCompile(`DescribeSubnets +100 tokens +20 a second`).MatchString(out) {
		t.Errorf("buckets list printed %q", out)
	}
	if out := s.cli("buckets set --action DescribeSubnets --size 1"); !regexp.MustCompile(`DescribeSubnets +1 tokens +0 a second +in place of EC2's`).MatchString(out) {
		t.Errorf("buckets set printed %q", out)
	}
	for range 2 {
		if got := describe(); got != "" {
			t.Errorf("with the buckets off: %s", got)
		}
	}
	s.cli("buckets on")
	if got := describe(); got != "" {
		t.Errorf("with a token in the bucket: %s", got)
	}
	if got := describe(); !strings.Contains(got, "503") || !strings.Contains(got, "RequestLimitExceeded") {
		t.Errorf("with an empty bucket: %q", got)
	}
	s.cli("buckets reset --action DescribeSubnets")
	if got := describe(); got != "" {
		t.Errorf("with EC2's own bucket: %s", got)
	}
	s.cli("buckets set --action DescribeSubnets --size 0")
	s.cli("buckets off")
	if got := describe(); got != "" {
		t.Errorf("with the buckets off again: %s", got)
	}
	if out := s.cli("buckets reset"); strings.Contains(out, "in place") {
		t.Errorf("buckets reset printed %q", out)
	}
	for line, want := range map[string]string{
		"buckets set --action DescribeSubnetz --size 1": "no such action is served",
		"buckets set --size 1":                          "no such action is served",
		"buckets set --action DescribeVpcs --size -1":   "want 0 or more",
		"buckets set --action DescribeVpcs --size 0.5":  "never hold a whole token",
		"buckets reset --action DescribeVpcs":           "it has none of its own",
	} {
		if got := s.refused(line); !strings.Contains(got, want) {
			t.Errorf("fakeec2 %s: %s, want %q", line, got, want)
		}
	}
}

func TestLagCommands(t *testing.T) {
	s := start(t, "delays: {attach: 7s}\n"+fmt.Sprintf(oneNode, 1))
	lag := func(out, name, want string) {
		t.Helper()
		if !regexp.MustCompile(`lag +` + name + ` +` + regexp.QuoteMeta(want) + `\n`).MatchString(out) {
			t.Errorf("lag %s is not %s in %q", name, want, out)
		}
	}
	out := s.cli("lag list")
	lag(out, "attach", "7s")
	lag(out, "link", "2s")
	out = s.cli("lag set --lag attach=1s..5s --lag link=never --lag metadata-mac=0s")
	lag(out, "attach", "1s..5s")
	lag(out, "link", "never")
	lag(out, "metadata-mac", "0s")
	lag(out, "detach", "3s")
	s.cli("lag set --lag attach=0s --lag launch=0s")
	eni := eniID.FindString(s.cli("eni create --subnet 10.0.1.0/24"))
	s.cli("eni attach --instance node --eni " + eni)
	if out := s.cli("state"); !regexp.MustCompile(eni + ` .* device 1, attached, no link`).MatchString(out) {
		t.Errorf("an ENI whose link never comes:\n%s", out)
	}
	lag(s.cli("lag reset"), "attach", "7s")
	for line, want := range map[string]string{
		"lag set --lag lunch=1s":       `set lag "lunch": want one of create, launch`,
		"lag set --lag attach=5s..1s":  "does not lead upwards",
		"lag set --lag attach":         "read duration",
		"lag set --lag attach=quickly": "read duration",
	} {
		if got := s.refused(line); !strings.Contains(got, want) {
			t.Errorf("fakeec2 %s: %s, want %q", line, got, want)
		}
	}
}

// Every command has a help of its own with an example, and the example's flags are the command's.
func TestHelpOfEveryCommand(t *testing.T) {
	examples := map[string]string{"serve": "--scenario world.yaml -v"}
	for name, v := range verbs() {
		examples[name] = v.example
		if v.define == nil {
			continue
		}
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		v.define(flags)
		if err := flags.Parse(strings.Fields(v.example)); err != nil || flags.NArg() > 0 {
			t.Errorf("the example of %s: %v, left over: %q", name, err, flags.Args())
		}
	}
	for name, v := range views() {
		examples[name] = v.example
	}
	for name, example := range examples {
		var out, errOut bytes.Buffer
		code := command(t.Context(), append(strings.Fields(name), "--help"), &out, &errOut)
		for _, want := range []string{"flags of fakeec2 " + name, strings.TrimSpace("fakeec2 " + name + " --dir /run/fakeec2 " + example)} {
			if code != 0 || !strings.Contains(out.String(), want) {
				t.Errorf("fakeec2 %s --help: code %d, %q, %q, want %q", name, code, out.String(), errOut.String(), want)
			}
		}
	}
	for args, want := range map[string]int{"eni": 2, "eni -h": 0, "eni bogus": 2, "fault add": 2, "instance --help": 0, "buckets --help": 0, "lag": 2, "nonsense": 2, "": 2} {
		var out, errOut bytes.Buffer
		if code := command(t.Context(), strings.Fields(args), &out, &errOut); code != want {
			t.Errorf("fakeec2 %s: code %d, want %d: %s%s", args, code, want, out.String(), errOut.String())
		}
	}
}

const twoVPCs = `
vpcs:
- {name: blue, cidrs: [10.0.0.0/16], ipv6: ["2600:1f14:1:2300::/56"], subnets: [{name: one, cidr: 10.0.1.0/24, ipv6: "2600:1f14:1:2301::/64"}]}
- name: green
  cidrs: [10.1.0.0/16]
  subnets: [{name: two, cidr: 10.1.1.0/24}]
  securityGroups: [{name: web, ingress: [{protocol: tcp, ports: "7", peer: 10.0.1.0/24}]}]
peerings: [{between: [blue, green]}]
services: [{name: ec2, subnet: one, address: 10.0.1.200}]
nodes:
- {name: a, subnet: one, address: 10.0.1.10}
- {name: b, subnet: two, address: 10.1.1.10, securityGroups: [web]}
`

func TestPeeredVPCsAreServed(t *testing.T) {
	s := start(t, twoVPCs)
	a, b := s.open("a"), s.open("b")
	if !s.reaches(a, b, "10.1.1.10") {
		t.Error("b is not reached through the peering")
	}
	if s.reaches(b, a, "10.0.1.10") {
		t.Error("a is reached, though no rule lets that in")
	}
	state := s.cli("state")
	for _, want := range []string{"peering", "sg-ingress", "10.1.0.0/16"} {
		if !strings.Contains(state, want) {
			t.Errorf("state lacks %q:\n%s", want, state)
		}
	}
}
