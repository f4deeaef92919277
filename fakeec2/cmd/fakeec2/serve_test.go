package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveVar); dir != "" { // one that a test may kill; its scenario lies beside the folder
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := command(ctx, []string{"serve", "--dir", dir, "--scenario", filepath.Join(filepath.Dir(dir), "world.yaml")}, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	netlab.Main(m)
}

// patience is how long something may take on a busy machine.
const patience = 10 * time.Second

// served is a world that this test serves.
type served struct {
	t   *testing.T
	dir string
	ec2 string
	ns  map[string]string

	listen string // EC2 on the test's own network
}

// start serves a scenario ("" is the demo's) until the test ends; then everything must be gone.
func start(t *testing.T, text string, flags ...string) *served {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"serve", "--dir", dir, "--check"}, flags...)
	if text != "" {
		file := filepath.Join(t.TempDir(), "scenario.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--scenario", file)
	}
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, args, in, os.Stderr)
		in.CloseWithError(fmt.Errorf("serve ended: %w", cmp.Or(err, io.EOF)))
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "netns", "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("wait for the world: %v", err)
	}
	var ready ready
	if err := json.Unmarshal(line, &ready); err != nil || !ready.Ready {
		t.Fatalf("ready line is %q, %v", line, err)
	}
	return &served{t: t, dir: dir, ec2: ready.EC2, ns: ready.Namespaces, listen: ready.Listen}
}

func (s *served) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) open(name string) *netlab.Namespace {
	s.t.Helper()
	n, err := netlab.Open(s.ns[name])
	s.check(err)
	s.t.Cleanup(func() { n.Close() })
	return n
}

// client asks from inside a namespace, with a new connection each time.
func client(n *netlab.Namespace) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: patience}
}

// do gives the body of an answer with status 200.
func (s *served) do(c *http.Client, method, url, body string, headers ...string) string {
	s.t.Helper()
	text, err := ask(c, method, url, body, headers...)
	s.check(err)
	return text
}

func ask(c *http.Client, method, url, body string, headers ...string) (string, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	return string(text), err
}

const (
	imdsURL     = "http://169.254.169.254/latest/"
	ttlHeader   = "X-aws-ec2-metadata-token-ttl-seconds"
	tokenHeader = "X-aws-ec2-metadata-token"
)

// metadata reads a leaf as the Go SDK does.
func (s *served) metadata(c *http.Client, leaf string) string {
	s.t.Helper()
	token := s.do(c, "PUT", imdsURL+"api/token", "", ttlHeader, "60")
	return s.do(c, "GET", imdsURL+"meta-data/"+leaf, "", tokenHeader, token)
}

// call makes an EC2 call from a node and gives the answer.
func (s *served) call(c *http.Client, action string, params url.Values) string {
	s.t.Helper()
	params.Set("Action", action)
	params.Set("Version", "2016-11-15")
	return s.do(c, "POST", s.ec2+"/", params.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// admin asks the admin socket.
func (s *served) admin(method, path, body string) string {
	s.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.dir, socketName))
	}}}
	return s.do(c, method, "http://fakeec2"+path, body)
}

func TestDemoWorldIsServed(t *testing.T) {
	s := start(t, "")
	a, b := client(s.open("node-a")), client(s.open("node-b"))
	for _, c := range []struct {
		client *http.Client
		want   string
	}{{a, "10.0.1.10"}, {b, "10.0.2.10"}} {
		if got := s.metadata(c.client, "local-ipv4"); got != c.want {
			t.Errorf("local-ipv4 is %s, want %s: instances are told by their link", got, c.want)
		}
	}
	if got := s.call(a, "DescribeSubnets", url.Values{}); !strings.Contains(got, "<cidrBlock>10.0.1.0/24</cidrBlock>") {
		t.Errorf("DescribeSubnets answers %s", got)
	}
	var journal []ec2api.Entry
	s.check(json.Unmarshal([]byte(s.admin("GET", "/journal", "")), &journal))
	if len(journal) != 1 || journal[0].Action != "DescribeSubnets" {
		t.Errorf("journal is %+v", journal)
	}
	for command, want := range map[string]string{"state": "node-a", "journal": "DescribeSubnets", "drops": "source-check"} {
		var out bytes.Buffer
		s.check(run(t.Context(), []string{command, "--dir", s.dir}, &out, io.Discard))
		if !strings.Contains(out.String(), want) {
			t.Errorf("fakeec2 %s printed %q, want it to contain %q", command, out.String(), want)
		}
	}
}

func TestAnswerOfEC2IsTrueOnTheWire(t *testing.T) {
	s := start(t, "")
	a, b := s.open("node-a"), s.open("node-b")
	mac := s.metadata(client(b), "mac")
	eni := s.metadata(client(b), "network/interfaces/macs/"+mac+"/interface-id")
	for i := range 20 {
		answer := s.call(client(b), "AssignPrivateIpAddresses", url.Values{"NetworkInterfaceId": {eni}, "PrivateIpAddress.1": {fmt.Sprintf("10.0.2.%d", 100+i)}})
		addr := netip.AddrFrom4([4]byte{10, 0, 2, byte(100 + i)})
		if !strings.Contains(answer, addr.String()) {
			t.Fatalf("assign answers %s", answer)
		}
		s.check(netlab.AddAddr(b, "lo", netip.PrefixFrom(addr, 32)))
		listener, err := b.Listen(t.Context(), "tcp4", addr.String()+":80")
		s.check(err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		conn, err := a.DialContext(ctx, "tcp4", addr.String()+":80")
		cancel()
		s.check(err)
		conn.Close()
		listener.Close()
		s.call(client(b), "UnassignPrivateIpAddresses", url.Values{"NetworkInterfaceId": {eni}, "PrivateIpAddress.1": {addr.String()}})
	}
	var drops map[string]uint64
	s.check(json.Unmarshal([]byte(s.admin("GET", "/drops", "")), &drops))
	if drops["source-check"] != 0 || drops["no-such-address"] != 0 {
		t.Errorf("drops are %v: a packet was quicker than the data plane", drops)
	}
}

const oneNode = `
vpc: {cidrs: [10.0.0.0/16], subnets: [{name: one, cidr: 10.0.1.0/24}]}
services: [{name: ec2, subnet: one, address: 10.0.1.200}]
nodes: [{name: node, subnet: one, address: 10.0.1.10, hopLimit: %d}]
`

// routedPod makes a pod behind a routed hop: the node forwards for it, its address is a secondary one of the node's ENI.
func (s *served) routedPod(node *netlab.Namespace) *netlab.Namespace {
	s.t.Helper()
	addr, gateway := netip.MustParsePrefix("10.0.1.50/32"), netip.MustParseAddr("169.254.1.1")
	mac := s.metadata(client(node), "mac")
	eni := s.metadata(client(node), "network/interfaces/macs/"+mac+"/interface-id")
	s.call(client(node), "AssignPrivateIpAddresses", url.Values{"NetworkInterfaceId": {eni}, "PrivateIpAddress.1": {addr.Addr().String()}})
	pod, err := netlab.New(filepath.Join(s.t.TempDir(), "pod"))
	s.check(err)
	s.t.Cleanup(func() { s.check(pod.Close()) })
	host, inside := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	s.check(netlab.Veth(netlab.End{NS: node, Name: "veth0", MAC: host}, netlab.End{NS: pod, Name: "eth0", MAC: inside}))
	s.check(netlab.AddAddr(pod, "eth0", addr))
	s.check(netlab.Neigh(pod, "eth0", gateway, host))
	s.check(netlab.AddRoute(pod, netlab.Route{Via: gateway, Link: "eth0", Onlink: true}))
	s.check(netlab.Neigh(node, "veth0", addr.Addr(), inside))
	s.check(netlab.AddRoute(node, netlab.Route{Dst: addr, Link: "veth0"}))
	return pod
}

func TestHopLimit(t *testing.T) {
	for _, limit := range []int{1, 2} {
		s := start(t, fmt.Sprintf(oneNode, limit))
		pod := client(s.routedPod(s.open("node")))
		if got := s.do(pod, "GET", imdsURL+"meta-data/local-ipv4", ""); got != "10.0.1.10" {
			t.Errorf("limit %d: version 1 from the pod gives %q: only tokens are limited", limit, got)
		}
		if limit == 1 {
			pod.Timeout = 300 * time.Millisecond // an answer comes within a few
		}
		_, err := ask(pod, "PUT", imdsURL+"api/token", "", ttlHeader, "60")
		if got := err == nil; got != (limit > 1) {
			t.Errorf("limit %d: token for a routed pod: %v", limit, err)
		}
	}
}

func TestAdminChangesFaultsAndDelays(t *testing.T) {
	s := start(t, fmt.Sprintf(oneNode, 1))
	node := client(s.open("node"))
	s.admin("POST", "/faults", `{"add":[{"name":"no","action":"DescribeSubnets","kind":"error","code":"Unavailable","times":1}]}`)
	if _, err := ask(node, "POST", s.ec2+"/", "Action=DescribeSubnets&Version=2016-11-15", "Content-Type", "application/x-www-form-urlencoded"); err == nil || !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("first call: %v, want the fault", err)
	}
	s.call(node, "DescribeSubnets", url.Values{})
	if got := s.admin("POST", "/faults", `{"remove":["no"]}`); strings.TrimSpace(got) != "[]" {
		t.Errorf("faults after removal: %s", got)
	}
	s.admin("POST", "/delays", `{"link":"never","imds":"0s"}`)
	var delays map[string]any
	s.check(json.Unmarshal([]byte(s.admin("GET", "/delays", "")), &delays))
	if delays["link"] != "never" || delays["imds"] != "0s" || delays["attach"] != "1s" {
		t.Errorf("delays are %v", delays)
	}
}

// A fault that can never hit is a test that passes for nothing.
func TestFaultsThatCannotHitAreRefused(t *testing.T) {
	s := start(t, fmt.Sprintf(oneNode, 1))
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.dir, socketName))
	}}}
	s.admin("POST", "/faults", `{"add":[{"name":"kept","kind":"throttle","off":true}]}`)
	before := s.admin("GET", "/faults", "")
	for body, want := range map[string]string{
		`{"add":[{"name":"a","action":"DescribeInstancez","kind":"throttle"}]}`:                        "AssignPrivateIpAddresses, ",
		`{"add":[{"name":"a","action":"describeInstances","kind":"throttle"}]}`:                        "DescribeInstances",
		`{"add":[{"name":"a","kind":"error","code":"RequestLimitExceded"}]}`:                           "RequestLimitExceeded",
		`{"add":[{"name":"a","kind":"explode"}]}`:                                                      "want one of [error throttle ",
		`{"add":[{"name":"a","kind":"throttle","resource":"eni-xyz"}]}`:                                "want the id of an instance",
		`{"add":[{"name":"a","kind":"throttle","resource":"node"}]}`:                                   "want the id of an instance",
		`{"add":[{"name":"a","kind":"throttle","code":"Unavailable"}]}`:                                "code and status belong to kind",
		`{"add":[{"name":"a","kind":"throttle","actoin":"DescribeVpcs"}]}`:                             "unknown field",
		`{"add":[{"name":"kept","kind":"throttle"}]}`:                                                  "name is taken",
		`{"clear":true,"remove":["kept"]}`:                                                             "there is none",
		`{"clear":true,"add":[{"name":"a","kind":"throttle"},{"name":"b","kind":"x"}]}`:                `kind "x"`,
		`{"add":[{"name":"a","kind":"throttle","action":"X"},{"name":"b","kind":"error","code":"Y"}]}`: `code "Y"`,
		`{"clear":true}{"add":[]}`:                                                                     "more than one JSON value",
	} {
		if _, err := ask(c, "POST", "http://fakeec2/faults", body); err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want 400 with %q", body, err, want)
		}
		if got := s.admin("GET", "/faults", ""); got != before {
			t.Fatalf("%s was refused and left %s", body, got)
		}
	}
	for _, resource := range []string{"eni-0123456789abcdef0", "i-01234567", "10.0.1.50", "m5.xlarge"} {
		s.admin("POST", "/faults", fmt.Sprintf(`{"add":[{"name":%q,"kind":"lost","resource":%q}]}`, resource, resource))
	}
}

func TestUnusableScenarioIsToldWithFileAndField(t *testing.T) {
	good := fmt.Sprintf(oneNode, 1)
	for name, c := range map[string]struct{ from, to, want string }{
		"field":        {"hopLimit: 1", "hopLimit: 99", ": nodes[0].hopLimit: 99: want 1 to 64"},
		"name":         {"name: node,", "name: ../../x,", `: nodes[0].name: "../../x": want`},
		"line":         {"services:", "\tservices:", ": yaml: line 3: found character"},
		"fault action": {"services:", "faults: [{name: f, kind: throttle, action: DescribeInstancez}]\nservices:", `: faults[0]: fault "f": action "DescribeInstancez": want one of `},
		"bucket":       {"services:", "buckets: [{action: Nope, size: 1}]\nservices:", `: buckets[0].action: "Nope": want one of Assign`},
		"stale fault":  {"services:", "faults: [{name: f, kind: stale, age: 3m}]\nservices:", `: faults[0]: fault "f": age 3m0s: the world remembers 2m0s`},
		"fault code":   {"services:", "faults: [{name: f, kind: error, code: Nope}]\nservices:", `: faults[0]: fault "f": code "Nope"`},
	} {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "world.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(good, c.from, c.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(t.Context(), []string{"serve", "--dir", filepath.Join(dir, "d"), "--scenario", file}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), file+c.want) {
			t.Errorf("%s: %v, want %q", name, err, file+c.want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: the folder was made", name)
		}
	}
}

func TestUsage(t *testing.T) {
	const examples = "examples:\n  fakeec2 serve --dir"
	tests := []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"--help", 0, examples, ""},
		{"-h", 0, examples, ""},
		{"help", 0, examples, ""},
		{"serve -h", 0, "-scenario", ""},
		{"serve --help", 0, "example:\n  fakeec2 serve --dir", ""},
		{"state -h", 0, "-dir", ""},
		{"", 2, "", "no command given"},
		{"bogus", 2, "", `unknown command "bogus"`},
		{"bogus", 2, "", examples},
		{"serve", 2, "", "serve: the flag --dir is required"},
		{"serve --dri x", 2, "", "serve: flag provided but not defined: -dri"},
		{"serve --seed x", 2, "", "serve: invalid value"},
		{"serve --dir x now", 2, "", "serve: unexpected now"},
		{"state", 2, "", "state: the flag --dir is required"},
		{"state --bogus", 2, "", "state: flag provided but not defined"},
		{"state --dir /does/not/exist", 1, "", "ask the served world"},
		{"serve --dir x --scenario /does/not/exist", 1, "", "/does/not/exist"},
	}
	for _, test := range tests {
		var out, errOut bytes.Buffer
		code := command(t.Context(), strings.Fields(test.args), &out, &errOut)
		if code != test.code || !strings.Contains(out.String(), test.out) || !strings.Contains(errOut.String(), test.errOut) {
			t.Errorf("fakeec2 %s: code %d, out %q, err %q", test.args, code, out.String(), errOut.String())
		}
		if test.code == 0 && errOut.Len() > 0 || test.code != 0 && out.Len() > 0 {
			t.Errorf("fakeec2 %s: text on the wrong stream: out %q, err %q", test.args, out.String(), errOut.String())
		}
		if got := strings.Count(errOut.String(), "not defined"); got > 1 {
			t.Errorf("fakeec2 %s: told %d times", test.args, got)
		}
	}
}
