package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

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
