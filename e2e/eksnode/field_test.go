package eksnode_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// These tests replay public reports of e2e/fieldcases/cases.md in which the incumbent itself has a part.

// theirs runs the incumbent's plugin for a pod, with a cached result.
func (p *pod) theirs(command string, cached ...json.RawMessage) ([]byte, error) {
	conf := map[string]any{
		"cniVersion": "0.4.0", "name": "aws-cni", "type": "aws-cni", "vethPrefix": "eni", "mtu": "9001", "podSGEnforcingMode": "strict",
		"pluginLogFile": "/var/log/aws-routed-eni/plugin.log", "pluginLogLevel": "DEBUG",
	}
	for _, result := range cached {
		conf["prevResult"] = result
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	return p.node.Plugin(p.node.w.t.Context(), "/opt/cni/bin/aws-cni", stdin, p.Env(command))
}

// connectedBy connects a new pod by one of the two plugins and gives the result that a runtime keeps.
func (n *node) connectedBy(by func(*pod, string, ...json.RawMessage) ([]byte, error)) (p *pod, result json.RawMessage) {
	n.w.t.Helper()
	p = n.sandbox()
	n.w.eventually("ADD of "+p.Name, func() (err error) {
		result, err = by(p, "ADD")
		return err
	})
	return p, result
}

// Pods change hands in both directions: each plugin's DEL takes the result that the other one gave, with its daemon and without.
func TestB5DELTakesTheCachedResultOfTheOther(t *testing.T) {
	w := boot(t, "t3.small")
	n := w.node(0, map[string]string{"WARM_ENI_TARGET": "0", "WARM_IP_TARGET": "2"})
	n.start()
	first, firstResult := n.connectedBy((*pod).theirs)
	second, secondResult := n.connectedBy((*pod).theirs)
	check(t, n.Stop())

	d := n.replace()
	third, thirdResult := n.connectedBy((*pod).plugin)
	fourth, fourthResult := n.connectedBy((*pod).plugin)
	t.Logf("the incumbent's result %s, ours %s", firstResult, thirdResult)
	ends := func(by func(*pod, string, ...json.RawMessage) ([]byte, error), p *pod, result json.RawMessage) {
		t.Helper()
		if out, err := by(p, "DEL", result); err != nil {
			t.Errorf("DEL of %s with the other's result: %v %s", p.Name, err, out)
		}
	}
	ends((*pod).plugin, first, firstResult)
	w.eventually("one of the incumbent's pods is left", func() error {
		if held := n.sandboxes(); len(held) != 3 {
			return fmt.Errorf("held: %v", held)
		}
		return nil
	})
	d.end()
	ends((*pod).plugin, second, secondResult) // nobody is there

	n.start()
	ends((*pod).theirs, third, thirdResult)
	check(t, n.Stop())
	ends((*pod).theirs, fourth, fourthResult)
}

// The incumbent's rules stay in one backend of iptables and, as after a change of the image, in the other one too: pods of every ENI
// reach ClusterIPs, whichever backend kube-proxy writes, and come as themselves.
func TestB46LeftoverRulesOfBothBackendsDoNotBreakClusterIPs(t *testing.T) {
	w := boot(t, "t3.small")
	n := w.node(0, map[string]string{"WARM_ENI_TARGET": "0", "WARM_IP_TARGET": "1"})
	n.start()
	old := n.addMany(4) // more than the primary ENI holds
	check(t, n.Stop())
	left := ""
	for _, backend := range []string{"nft", "legacy"} {
		text := n.shell("iptables-" + backend + "-save")
		if strings.Contains(text, "AWS-SNAT-CHAIN-0") {
			left = text
		}
	}
	if left == "" {
		t.Fatal("the incumbent left no rules in either backend")
	}
	services := map[string]string{"nft": "172.20.0.10", "legacy": "172.20.0.11"}
	for backend, service := range services {
		n.shell(fmt.Sprintf("iptables-%s-restore <<'END'\n%sEND", backend, left))
		if text := n.shell("iptables-" + backend + "-save"); !strings.Contains(text, "AWS-SNAT-CHAIN-0") {
			t.Fatalf("%s has not the incumbent's rules:\n%s", backend, text)
		}
		n.shell(fmt.Sprintf("iptables-%s -t nat -I PREROUTING -d %s -p tcp --dport 80 -j DNAT --to-destination %s:8080", backend, service, old[0].addr))
	}

	n.replace()
	young := []*pod{n.connect(), n.connect()}
	listener, err := old[0].Network().Listen(t.Context(), "tcp4", old[0].addr.String()+":8080")
	check(t, err)
	defer func() { _ = listener.Close() }() // nothing is written
	devices := map[int]bool{}
	for _, p := range append(old[1:], young...) {
		devices[p.device()] = true
		for backend, service := range services {
			if from := n.through(listener, p, service+":80"); from != p.addr {
				t.Errorf("%s by %s comes as %s", p.addr, backend, from)
			}
		}
	}
	if len(devices) < 2 {
		t.Errorf("pods are on devices %v alone", devices)
	}
	w.reachable(n, append(old, young...))
}

// through connects from a pod to an address that leads to the listener, and gives who it comes as.
func (n *node) through(listener net.Listener, p *pod, address string) netip.Addr {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(n.w.t.Context(), patience)
	defer cancel()
	conn, err := p.Network().DialContext(ctx, "tcp4", address)
	if err != nil {
		n.w.t.Errorf("%s to %s: %v", p.addr, address, err)
		return netip.Addr{}
	}
	defer func() { _ = conn.Close() }() // nothing is written
	accepted, err := listener.Accept()
	check(n.w.t, err)
	defer func() { _ = accepted.Close() }() // nothing is written
	return accepted.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// shell runs a line of shell on the node and gives what it printed.
func (n *node) shell(line string) string {
	n.w.t.Helper()
	text, err := n.Output(n.w.t.Context(), "sh", "-c", line)
	if err != nil {
		n.w.t.Fatalf("%s: %v", line, err)
	}
	return text
}
