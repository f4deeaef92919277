package eksnode_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestIncumbent runs the cases side by side, each on machines of its own: the incumbent's timers are seconds to minutes.
func TestIncumbent(t *testing.T) {
	// t3.small: 3 ENIs of 4 addresses. m5.large: 3 of 10.
	w := boot(t, "t3.small", "t3.small", "t3.small", "t3.small", "m5.large", "t3.small", "t3.small", "t3.small", "m5.large", "t3.small", "t3.small")
	w.try("BootsAndServes", false, (*world).bootsAndServes)
	w.try("AttachesAndReleasesENIs", true, (*world).attachesAndReleases)
	w.try("PodsOnTwoNodesAndARestart", true, (*world).podsOnTwoNodes)
	w.try("PrefixMode", false, (*world).prefixMode)
	w.try("AnnotatesPods", false, (*world).annotates)
	w.try("Throttled", true, (*world).throttled)
	w.try("CustomNetworking", true, (*world).customNetworking)
	w.try("SecurityGroupsForPods", false, (*world).asksForATrunk)
	w.try("LateMetadata", false, (*world).lateMetadata)
}

// outside tells what of the incumbent's paths there is on the machine, and since when.
func outside() string {
	var seen []string
	for _, path := range []string{"/host", "/host/var/log/aws-routed-eni/ipamd.log", "/run/aws-node", "/etc/cni", "/opt/cni/bin/aws-cni", "/var/log/aws-routed-eni"} {
		if info, err := os.Stat(path); err == nil {
			seen = append(seen, fmt.Sprint(path, info.Size(), info.ModTime()))
		}
	}
	return fmt.Sprint(seen)
}

func (w *world) bootsAndServes() {
	before := outside()
	n := w.node(0, nil)
	began := time.Now()
	n.start()
	w.say("its own health probe passes %.1f s after its start, with the settings of its DaemonSet", time.Since(began).Seconds())
	tagging := n.requests("CreateTags")
	if len(tagging) == 0 {
		w.t.Error("it has tagged nothing")
	}
	for _, r := range tagging {
		if !strings.Contains(r.UserAgent, "amazon-vpc-cni-k8s") {
			w.t.Errorf("a request came from %q", r.UserAgent)
		}
	}
	if tag := n.enis()[0].Tags["node.k8s.amazonaws.com/instance_id"]; tag != n.enis()[0].Attachment.InstanceID {
		w.t.Errorf("the primary ENI is tagged for instance %q", tag)
	}
	if after := outside(); after != before {
		w.t.Errorf("the machine's own files have changed from %s to %s", before, after)
	}
	p := n.add()
	if !n.enis()[0].Holds(p.addr) {
		w.t.Errorf("the primary ENI does not hold %s", p.addr)
	}
	if !w.answers(n.Network(), p.addr) {
		w.t.Errorf("%s does not answer its own node", p.addr)
	}
	_, total, assigned := n.pool()
	w.say("ADD through libcni gives %s, of %d addresses; the node's ping is answered", p.addr, total)
	if assigned != 1 {
		w.t.Errorf("it counts %d assigned addresses, want 1", assigned)
	}
	p.del()
	p.del() // again, as a runtime may
	if _, _, assigned := n.pool(); assigned != 0 {
		w.t.Errorf("it counts %d assigned addresses after DEL, want none", assigned)
	}
	if rules := n.shows("ip", "rule"); strings.Contains(rules, p.addr.String()) {
		w.t.Errorf("rules of %s are left after DEL:\n%s", p.addr, rules)
	}
	w.say("DEL through libcni, twice, leaves no rule and no assigned address")
}

// attachesAndReleases: with a target of no spare ENI the third is there only when the first two are full.
func (w *world) attachesAndReleases() {
	n := w.node(1, map[string]string{"WARM_ENI_TARGET": "0", "IP_COOLDOWN_PERIOD": "0"})
	n.start()
	const perENI = 3
	var pods []*pod
	for device := range 3 {
		for range perENI {
			pods = append(pods, n.add())
		}
		last := pods[len(pods)-1]
		if got := last.device(); got != device {
			w.t.Errorf("pod %d has its address from device %d, want %d", len(pods), got, device)
		}
		if !w.answers(n.Network(), last.addr) {
			w.t.Errorf("%s does not answer its own node", last.addr)
		}
		w.say("pod %d: %s of device %d; ADDs refused before: %d", len(pods), last.addr, device, pods[len(pods)-perENI].refused)
	}
	full := n.sandbox()
	if addr, err := full.Add(w.t.Context()); err == nil {
		w.t.Errorf("a pod more than the node has addresses got %s", addr)
	}
	full.del()
	distinct(w.t, pods)
	n.followsGroups()
	w.settle()
	for _, p := range pods {
		p.del()
	}
	began := time.Now()
	w.eventually("release of both ENIs", func() error { return n.has(1) })
	w.say("all 9 pods gone: both ENIs are detached and deleted %.0f s later (an ENI lives a minute at least)", time.Since(began).Seconds())
	for _, action := range []string{"DetachNetworkInterface", "DeleteNetworkInterface"} {
		if count := n.done(action); count != 2 {
			w.t.Errorf("%d successful %s, want 2", count, action)
		}
	}
	w.say("deleting them took %d requests: it waits 2 s after the detach, and EC2 refuses as long as the ENI is detaching", len(n.requests("DeleteNetworkInterface")))
	if again := n.add(); again.device() != 0 {
		w.t.Errorf("a later pod has its address from device %d", again.device())
	}
}

// followsGroups: the other ENIs get the security groups of the primary one within half a minute.
func (n *node) followsGroups() {
	n.w.t.Helper()
	enis := n.enis()
	check(n.w.t, n.w.Operate(n.w.t.Context(), "/enis/modify", map[string]any{"eni": enis[0].ID, "groups": []string{"nodes", "default"}}))
	want := n.enis()[0].Groups
	if slices.Equal(want, enis[1].Groups) {
		n.w.t.Fatal("no group has changed: nothing is proved")
	}
	began := time.Now()
	n.w.eventually("the primary ENI's security groups on all ENIs", func() error {
		for _, e := range n.enis() {
			if !slices.Equal(e.Groups, want) {
				return fmt.Errorf("those of %s are %v, want %v", e.ID, e.Groups, want)
			}
		}
		return nil
	})
	n.w.say("the primary ENI has another security group: %.0f s later the other two have it (it looks every 30 s)", time.Since(began).Seconds())
}

// podsOnTwoNodes: pods on the second ENI of one node and on the primary one of the other, and then a restart with both.
func (w *world) podsOnTwoNodes() {
	// The second ENI is attached when the first is full, so that it is the fourth pod's.
	near, far := w.node(2, map[string]string{"WARM_ENI_TARGET": "0"}), w.node(3, nil)
	near.start()
	far.start()
	nearPods, farPods := near.addMany(4), far.addMany(1)
	a, b := nearPods[3], farPods[0]
	if a.device() != 1 || b.device() != 0 {
		w.t.Fatalf("the pods are on devices %d and %d, want 1 and 0", a.device(), b.device())
	}
	for _, p := range nearPods {
		if !w.answers(p.Network(), b.addr) || !w.answers(b.Network(), p.addr) {
			w.t.Errorf("%s (device %d) and %s (the other node) do not reach each other", p.addr, p.device(), b.addr)
		}
	}
	if source := w.seenAs(a.Network(), b.Network(), b.addr); source != a.addr {
		w.t.Errorf("inside the VPC %s is seen as %s", a.addr, source)
	}
	internet, address := w.outside()
	place, err := w.Machine(near.Name())
	check(w.t, err)
	if source := w.seenAs(a.Network(), internet, address); source != place.Public {
		w.t.Errorf("outside %s is seen as %s, want %s, the node's primary address's", a.addr, source, place.Public)
	}
	if !w.answers(a.Network(), address) {
		w.t.Errorf("the internet does not answer %s", a.addr)
	}
	w.say("%s (device 1) and %s (another node) reach each other under their own addresses; outside the first is seen as %s, the node's primary address's",
		a.addr, b.addr, place.Public)
	w.restart(near, nearPods, b)
}

// restart ends the agent as a container ends, with pods on two ENIs.
func (w *world) restart(n *node, pods []*pod, other *pod) {
	check(w.t, n.Stop())
	for _, p := range pods {
		if !w.answers(other.Network(), p.addr) {
			w.t.Errorf("%s does not answer while the agent is down", p.addr)
		}
	}
	if n.Probe(w.t.Context()) == nil {
		w.t.Error("the probe passes without an agent")
	}
	refused := n.sandbox()
	if addr, err := refused.Add(w.t.Context()); err == nil {
		w.t.Errorf("ADD without an agent gives %s", addr)
	}
	gone := pods[0]
	gone.del() // the plugin takes its rules without the agent
	if rules := n.shows("ip", "rule"); strings.Contains(rules, gone.addr.String()) {
		w.t.Errorf("rules of %s are left after DEL without an agent:\n%s", gone.addr, rules)
	}
	links := strings.Count(n.shows("ip", "-o", "link"), ": eni")
	gone.remove()
	w.eventually("the end of the pod's veth", func() error { // the kernel takes its time; the agent forgets pods without one
		if left := strings.Count(n.shows("ip", "-o", "link"), ": eni"); left != links-1 {
			return fmt.Errorf("%d of %d are left", left, links)
		}
		return nil
	})
	n.start()
	_, _, assigned := n.pool()
	w.say("restart with %d pods, one of them deleted meanwhile: it knows %d", len(pods), assigned)
	if assigned != len(pods)-1 {
		w.t.Errorf("it knows %d pods, want %d", assigned, len(pods)-1)
	}
	more := n.addMany(2)
	kept := append(append([]*pod{}, pods[1:]...), more...)
	distinct(w.t, kept)
	for _, p := range kept {
		if !w.answers(other.Network(), p.addr) || !w.answers(p.Network(), other.addr) {
			w.t.Errorf("%s and %s do not reach each other after the restart", p.addr, other.addr)
		}
	}
	for _, p := range kept {
		p.del()
	}
	if _, _, assigned := n.pool(); assigned != 0 {
		w.t.Errorf("it counts %d assigned addresses after all DELs, want none", assigned)
	}
	w.say("%d pods from before and %d new ones have different addresses and answer; DEL of all leaves none assigned", len(pods)-1, len(more))
}

func (w *world) prefixMode() {
	n := w.node(4, map[string]string{"ENABLE_PREFIX_DELEGATION": "true", "IP_COOLDOWN_PERIOD": "0"})
	n.start()
	if e := n.enis(); len(e) != 1 || len(e[0].Prefixes) != 1 || len(e[0].Secondary) != 0 {
		w.t.Errorf("it starts with %d ENIs, %v and %v, want one prefix", len(e), e[0].Prefixes, e[0].Secondary)
	}
	const inPrefix = 16
	pods := n.addMany(inPrefix + 1)
	distinct(w.t, pods)
	prefixes := n.enis()[0].Prefixes
	for _, p := range pods {
		if !inAny(prefixes, p.addr) {
			w.t.Errorf("%s is in none of %v", p.addr, prefixes)
		}
	}
	last := pods[inPrefix]
	if !w.answers(n.Network(), last.addr) {
		w.t.Errorf("%s does not answer its own node", last.addr)
	}
	internet, address := w.outside()
	place, err := w.Machine(n.Name())
	check(w.t, err)
	if source := w.seenAs(last.Network(), internet, address); source != place.Public {
		w.t.Errorf("outside %s is seen as %s, want %s", last.addr, source, place.Public)
	}
	w.eventually("a spare prefix", func() error { return n.prefixes(3) })
	w.say("%d pods have addresses of two prefixes, a third is spare: %v; no ENI was attached: %d", len(pods), n.enis()[0].Prefixes, len(n.enis()))
	for _, p := range pods {
		p.del()
	}
	w.eventually("release of the spare prefixes", func() error { return n.prefixes(1) })
	w.say("all pods gone: one prefix is left")
}

func (n *node) shows(path string, args ...string) string {
	n.w.t.Helper()
	text, err := n.Output(n.w.t.Context(), path, args...)
	check(n.w.t, err)
	return text
}
