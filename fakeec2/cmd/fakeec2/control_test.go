package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

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
	s.cli("eni assign --prefixes 1 --eni " + eni)
	if out := s.cli("eni unassign --address 10.0.1.99 --eni " + eni); strings.Contains(out, "10.0.1.99") || !strings.Contains(out, "/28") {
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
	if out := s.refused("fault add --name x --kind throttle --action DescribeInstancez"); !strings.Contains(out, "DescribeInstances") {
		t.Errorf("a misspelt action: %s", out)
	}
	if out := s.cli("journal"); !strings.Contains(out, "DescribeSubnets") || !strings.Contains(out, "fault busy") {
		t.Errorf("journal printed %q", out)
	}
	if out := s.cli("journal --since 1"); out != "" {
		t.Errorf("journal after the last request printed %q", out)
	}
}

func TestHelpOfCommandsOfTwoWords(t *testing.T) {
	for name := range verbs() {
		var out, errOut bytes.Buffer
		if code := command(t.Context(), append(strings.Fields(name), "-h"), &out, &errOut); code != 0 || !strings.Contains(out.String(), "flags of fakeec2 "+name) {
			t.Errorf("fakeec2 %s -h: code %d, %q, %q", name, code, out.String(), errOut.String())
		}
	}
	for args, want := range map[string]int{"eni": 2, "eni -h": 0, "eni bogus": 2, "fault add": 2, "instance --help": 0} {
		var out, errOut bytes.Buffer
		if code := command(t.Context(), strings.Fields(args), &out, &errOut); code != want {
			t.Errorf("fakeec2 %s: code %d, want %d: %s%s", args, code, want, out.String(), errOut.String())
		}
	}
}

// bridged makes a container as a container runtime does: its veth's other end is in a bridge of this namespace.
func bridged(t *testing.T, path, outer, addr string) *netlab.Namespace {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	host, err := netlab.Current()
	check(err)
	defer host.Close()
	n, err := netlab.New(path)
	check(err)
	t.Cleanup(func() { // by hand, because the kernel takes its time over the links of a namespace that ends
		if err := netlab.DelLink(n, "eth0"); err != nil {
			t.Error(err)
		}
		check(n.Close())
	})
	check(netlab.Veth(netlab.End{NS: host, Name: outer}, netlab.End{NS: n, Name: "eth0"}))
	prefix := netip.MustParsePrefix(addr)
	check(netlab.AddAddr(n, "eth0", prefix))
	check(netlab.AddRoute(n, netlab.Route{Via: prefix.Masked().Addr().Next(), Link: "eth0"}))
	h, err := host.Netlink()
	check(err)
	defer h.Close()
	bridge, err := h.LinkByName("br0")
	if err != nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		check(h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
		bridge, err = h.LinkByName("br0")
		check(err)
		t.Cleanup(func() { check(netlink.LinkDel(bridge)) })
	}
	link, err := h.LinkByName(outer)
	check(err)
	check(h.LinkSetMaster(link, bridge))
	return n
}

// portsOf gives the links in the bridge br0 of this namespace.
func portsOf(t *testing.T) []string {
	t.Helper()
	bridge, err := netlink.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, l := range links {
		link, err := netlink.LinkByIndex(l.Index)
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().MasterIndex == bridge.Attrs().Index && l.Flags&net.FlagUp != 0 {
			ports = append(ports, l.Name)
		}
	}
	slices.Sort(ports)
	return ports
}

func TestContainersAreAdoptedByCommand(t *testing.T) {
	dir := t.TempDir()
	one, two := bridged(t, dir+"/one", "vethone", "10.0.1.20/24"), bridged(t, dir+"/two", "vethtwo", "10.0.1.21/24")
	s := start(t, "")
	if out := s.cli("instance adopt --name one --group nodes --namespace " + one.Path()); !strings.Contains(out, "adopted eth0 of "+one.Path()) {
		t.Errorf("instance adopt printed %q", out)
	}
	s.cli("instance adopt --name two --group nodes --tokens-required --namespace " + two.Path())
	if ports := portsOf(t); len(ports) != 0 {
		t.Errorf("the bridge still has %v", ports)
	}
	if !s.reaches(one, two, "10.0.1.21") || !s.reaches(s.open("node-b"), one, "10.0.1.20") {
		t.Error("adopted containers are not reached")
	}
	for want, n := range map[string]*netlab.Namespace{"10.0.1.20": one, "10.0.1.21": two} {
		if got := s.metadata(client(n), "local-ipv4"); got != want {
			t.Errorf("local-ipv4 is %s, want %s", got, want)
		}
	}
	s.cli("instance adopt --name one --namespace " + one.Path()) // as if it had been restarted
	if !s.reaches(two, one, "10.0.1.20") {
		t.Error("a container that was adopted again is not reached")
	}
	s.admin("POST", "/delays", `{"detach":"0s"}`)
	s.cli("instance terminate --instance one")
	if diff := fmt.Sprint(portsOf(t)); diff != "[vethone]" {
		t.Errorf("after its instance ended the bridge has %s, want [vethone]", diff)
	}
}

// ownLinks gives the links of this namespace.
func ownLinks(t *testing.T) string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// serveVar makes this test program serve a world: the test kills it.
const serveVar = "FAKEEC2_TEST_SERVE"

// killable serves a world in a process of its own and waits until it stands.
func killable(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), serveVar+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, `"ready":true`) {
		t.Fatalf("ready line is %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd
}

func TestKilledServerLeavesNothingForTheNext(t *testing.T) {
	own := t.TempDir()
	container := bridged(t, own+"/container", "vethone", "10.0.1.20/24")
	before := ownLinks(t)
	// A namespace of somebody else's that the scenario names, and a container.
	foreign, err := netlab.New(own + "/foreign")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { foreign.Close() })
	other := fmt.Sprintf("hopLimit: 1}, {name: other, subnet: one, address: 10.0.1.11, namespace: %s}", foreign.Path())
	text := strings.Replace(fmt.Sprintf(oneNode, 1), "hopLimit: 1}", other, 1)
	file := filepath.Join(own, "world.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(own, "served")
	for round := range 3 {
		cmd := killable(t, dir)
		s := &served{t: t, dir: dir, ns: map[string]string{"node": dir + "/netns/node"}}
		s.cli("instance adopt --name container --namespace " + container.Path())
		if !s.reaches(s.open("node"), container, "10.0.1.20") || !s.reaches(container, foreign, "10.0.1.11") {
			t.Fatalf("round %d: the world does not stand", round)
		}
		if round < 2 {
			s.check(cmd.Process.Kill())
		} else {
			s.check(cmd.Process.Signal(os.Interrupt))
		}
		err := cmd.Wait()
		if clean := err == nil; clean != (round == 2) {
			t.Errorf("round %d: the server ended with %v", round, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if ports := portsOf(t); fmt.Sprint(ports) != "[vethone]" {
		t.Errorf("the bridge has %v, want [vethone]", ports)
	}
	if after := ownLinks(t); after != before {
		t.Errorf("links here are %s, want %s", after, before)
	}
	if err := foreign.Do(func() error {
		links, err := net.Interfaces()
		if len(links) != 1 {
			t.Errorf("the foreign namespace has %v, want lo alone", links)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
