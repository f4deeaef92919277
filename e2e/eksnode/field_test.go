package eksnode_test

import (
	"encoding/json"
	"fmt"
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
