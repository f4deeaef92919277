package ipamd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// These tests replay public reports about rules, routes and links (e2e/fieldcases/cases.md, B30 to B43): the whole daemon,
// the real plugin through libcni, and packets under the VPC's laws.

// secondENI is the routing table of the ENI at device 1, its mark's rule, and its link as the fake names it.
const (
	secondTable = "7002"
	secondRule  = "1602"
	secondLink  = "eth1"
)

func TestB30RestartKeepsRulesAsTheyWere(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		w := newWorld(t)
		w.start()
		first, second := w.add("a"), w.add("b")
		third := w.add("c")            // on the second ENI
		w.settled(third.addr.String()) // its ENI's other address too
		before, rules := w.view().Kernel, w.ip("rule")
		_ = w.end(sig)
		if diff := cmp.Diff(rules, w.ip("rule")); diff != "" {
			t.Errorf("%s: rules without a daemon: %s", sig, diff)
		}
		w.start()
		if diff := cmp.Diff(before, w.view().Kernel); diff != "" {
			t.Errorf("%s: the kernel after the restart: %s", sig, diff)
		}
		if diff := cmp.Diff(rules, w.ip("rule")); diff != "" {
			t.Errorf("%s: rules after the restart: %s", sig, diff)
		}
		w.talk(first, third)
		w.talk(third, second)
		w.kill()
	}
}

// settled waits until the daemon's kernel state speaks of something.
func (w *world) settled(text string) {
	w.t.Helper()
	w.await("the kernel state has "+text, func() bool { return strings.Contains(strings.Join(w.view().Kernel, "\n"), text) })
}

// talk has one pod connect to another.
func (w *world) talk(from, to *pod) {
	w.t.Helper()
	listener, err := to.ns.Listen(w.t.Context(), "tcp", to.addr.String()+":7000")
	w.check(err)
	defer listener.Close()
	w.reaches(from, to.addr.String()+":7000")
}

func TestB31ThirtyADDsAtOnceGetAllOfTheirState(t *testing.T) {
	const count = 30
	w := newFieldWorld(t, 4, 11)
	w.start()
	pods := make([]*pod, count)
	errs := make([]error, count)
	for i := range pods {
		pods[i] = w.sandbox(fmt.Sprintf("p%d", i))
	}
	var adds sync.WaitGroup
	for i, p := range pods {
		adds.Go(func() { errs[i] = w.tryAdd(p) })
	}
	adds.Wait()
	w.check(errors.Join(errs...))
	kernel := strings.Join(w.view().Kernel, "\n")
	routes := w.podRoutes()
	holder := map[string]int{}
	for _, eni := range w.model.InstanceENIs(w.instance.ID) {
		for _, addr := range eni.Secondary {
			holder[addr.String()] = eni.Attachment.Device
		}
	}
	for _, p := range pods {
		addr := p.addr.String()
		if routes[p.addr] == "" {
			t.Errorf("%s has no host route", addr)
		}
		device, held := holder[addr]
		if marked := strings.Contains(kernel, fmt.Sprintf("\t\t%s : goto use_eni%d\n", addr, device)); !held || device != 0 && !marked {
			t.Errorf("%s on device %d (held: %v) has no way out", addr, device, held)
		}
		if device != 0 && !strings.Contains(kernel, fmt.Sprintf("route table %d default", 7001+device)) {
			t.Errorf("table of device %d is empty", device)
		}
		w.check(w.cniCheck(p))
		w.reaches(p, ec2Addr+":80")
	}
	if len(routes) != count || len(w.veths()) != count {
		t.Errorf("%d routes, %d links for %d pods", len(routes), len(w.veths()), count)
	}
}

// An ENI's table is emptied from outside while pods come and go.
func TestB32EmptiedENITableIsRepairedAndCounted(t *testing.T) {
	w := newWorld(t, "IP_COOLDOWN_PERIOD=0")
	w.start()
	w.add("a")
	w.add("b")
	p := w.add("c")
	for _, kind := range []string{"route", "rule", "nftables", "link", "address", "sysctl"} {
		if n := w.metric(repairs(kind)); n != 0 {
			t.Errorf("%d repairs of kind %s before anything was broken", n, kind)
		}
	}
	churn, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for churn.Err() == nil {
			q := w.sandbox(fmt.Sprintf("churn%d", time.Now().UnixNano()))
			if err := w.tryAdd(q); err == nil {
				w.del(q)
			}
			_ = q.ns.Close()
		}
	})
	const times = 5
	for range times {
		before := w.metric(repairs("route"))
		w.ip("route", "flush", "table", secondTable) // looks twice, so a quick repair may be flushed again
		w.await("the table is back", func() bool { return strings.Contains(w.ip("route", "show", "table", "all"), "table "+secondTable) })
		w.reaches(p, ec2Addr+":80")
		w.await("the repair is counted", func() bool { return w.metric(repairs("route")) > before })
	}
	stop()
	running.Wait()
	if n := w.metric(repairs("rule")); n != 0 {
		t.Errorf("%d repairs of rules, none was touched", n)
	}
	w.await("a warning in the log", func() bool { return w.logged("level=WARN", "changed by others, repaired", secondTable) })
}

// The host route of a running pod is deleted: the daemon puts it back at once. (That CHECK sees it is cni's test of B41, with
// a daemon that repairs nothing; that it is no evidence of the pod's end, hostnet's of B34.)
func TestB34DeletedHostRouteComesBack(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add("a")
	link := w.podRoutes()[p.addr]
	w.ip("route", "del", p.addr.String(), "table", "7000")
	w.await("the route is back", func() bool { return w.podRoutes()[p.addr] == link })
	w.check(w.cniCheck(p))
	w.reaches(p, ec2Addr+":80")
	w.await("it is counted", func() bool { return w.metric(repairs("route")) == 1 })

	// Whoever takes the link down and up again takes route and neighbour with it; there is no note of the kernel about
	// that, so that any other change, or the audit, brings the repair.
	w.ip("link", "set", link, "down")
	w.ip("link", "set", link, "up")
	w.ip("route", "add", "198.51.100.0/24", "dev", "lo", "table", "99")
	w.await("it is repaired again", func() bool { return w.metric(repairs("route")) == 2 })
	if w.podRoutes()[p.addr] != link {
		t.Error("the route is not back")
	}
	w.check(w.cniCheck(p)) // the neighbour too
	w.reaches(p, ec2Addr+":80")

	w.del(p)
	w.empty()
}

// systemd-networkd with its defaults: it removes routes and rules that it does not know, whenever it is restarted.
func TestB35RulesFlushedFromOutsideComeBackAndTheSuspectIsNamed(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.add("a")
	w.add("b")
	p := w.add("c")
	rules := w.ip("rule")
	for i := range 3 {
		w.ip("rule", "del", "priority", secondRule)
		w.ip("rule", "del", "priority", "1802")
		w.ip("route", "flush", "table", secondTable)
		w.await("rules are back", func() bool { return w.ip("rule") == rules })
		w.reaches(p, ec2Addr+":80")
		// A flush takes one pass to repair, or two where the watcher is quick: two cannot be a repetition yet.
		if i == 0 && w.logged("again and again", "kind=rule") {
			t.Error("a suspect is named after the first time")
		}
	}
	w.await("the suspect is named", func() bool { return w.logged("again and again", "kind=rule", "systemd-networkd") })
	w.await("all repairs of rules are counted", func() bool { return w.metric(repairs("rule")) == 6 })
	if warnings := strings.Join(w.view().Warnings, "\n"); !strings.Contains(warnings, "systemd-networkd") {
		t.Errorf("/v1/status warns %q", warnings)
	}
}

// nm-cloud-setup's rules stand on the node before the daemon starts.
func TestB36ForeignRulesBeforeOursAreWarnedOf(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add("a")
	w.kill()
	for _, rule := range [][]string{
		{"priority", "30200", "from", p.addr.String(), "lookup", "30200"},
		{"priority", "30400", "from", "10.0.1.0/24", "lookup", "30400"},
		{"priority", "100", "to", p.addr.String(), "lookup", "99"},           // a VPN's, say
		{"priority", "5210", "fwmark", "0x80000/0xff0000", "lookup", "main"}, // for marked packets only
		{"priority", "1024", "fwmark", "0x80/0x80", "lookup", "main"},        // the incumbent's
	} {
		w.ip(append([]string{"rule", "add"}, rule...)...)
	}
	before := w.ip("rule")
	w.start()
	warnings := w.view().Warnings
	if len(warnings) != 3 {
		t.Errorf("warnings: %q", warnings)
	}
	for _, want := range [][]string{{"30200", "nm-cloud-setup"}, {"30400", "nm-cloud-setup"}, {"100: from all to " + p.addr.String()}} {
		found := false
		for _, line := range warnings {
			all := true
			for _, word := range want {
				all = all && strings.Contains(line, word)
			}
			found = found || all
		}
		if !found {
			t.Errorf("no warning with %q: %q", want, warnings)
		}
	}
	if !w.logged("level=WARN", "foreign rules", "30200") {
		t.Error("no warning in the log")
	}
	if diff := cmp.Diff(before, w.ip("rule")); diff != "" {
		t.Errorf("foreign rules were touched: %s", diff)
	}
	w.ip("rule", "del", "priority", "30200")
	w.ip("rule", "del", "priority", "30400")
	w.ip("rule", "del", "priority", "100")
	w.await("the warning ends with its cause", func() bool { return len(w.view().Warnings) == 0 })
}

// The kernel refuses the first attempt at the host route, as another is in its place: it is cleared and tried again.
func TestB38FailedHostRouteIsTriedAgain(t *testing.T) {
	w := newWorld(t, "MAX_ENI=1")
	w.start()
	probe := w.add("a")
	w.del(probe)
	w.ip("route", "add", "blackhole", probe.addr.String(), "table", "7000", "proto", "static")
	again := w.another("a", "again") // the same pod has the same address
	w.check(w.tryAdd(again))
	if again.addr != probe.addr {
		t.Fatalf("given %s, not %s", again.addr, probe.addr)
	}
	if routes := w.podRoutes(); len(routes) != 1 || routes[again.addr] == "" {
		t.Errorf("routes %v", routes)
	}
	w.check(w.cniCheck(again))
	w.reaches(again, ec2Addr+":80")
}

// A log on stdout would be read as the result.
func TestB42OnlyTheResultIsOnStdout(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.sandbox("a")
	for _, target := range []string{"stdout", "/dev/stdout", "/proc/self/fd/1"} {
		out, err := w.plugin("ADD", p, w.conf("0.4.0", fmt.Sprintf(`,"logFile":%q,"logLevel":"debug"`, target)))
		var refused cnitypes.Error
		if jsonErr := json.Unmarshal([]byte(out), &refused); err == nil || jsonErr != nil || refused.Code != api.CodeInvalidConfig {
			t.Errorf("log on %s: %v, %q", target, err, out)
		}
	}
	log := filepath.Join(w.dir, "p.log")
	out, err := w.plugin("ADD", p, w.conf("0.4.0", fmt.Sprintf(`,"logFile":%q,"logLevel":"debug"`, log)))
	w.check(err)
	var result struct{ IPs []struct{ Address string } }
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.IPs) != 1 {
		t.Errorf("stdout of ADD: %v, %q", err, out)
	}
	w.kill()
	out, err = w.plugin("DEL", p, w.conf("0.4.0", fmt.Sprintf(`,"logFile":%q`, log))) // has something to log
	text, _ := os.ReadFile(log)
	if err != nil || out != "" || len(text) == 0 {
		t.Errorf("DEL: %v, stdout %q, log %q", err, out, text)
	}

	w.env = append(w.env, "AWS_VPC_K8S_PLUGIN_LOG_FILE=stdout")
	w.launch()
	if err := <-w.ended; err == nil || !w.logged(`AWS_VPC_K8S_PLUGIN_LOG_FILE="stdout"`) {
		t.Errorf("the daemon takes the setting: %v", err)
	}
	w.daemon = nil
}

// A firewall is restarted and flushes everything, and a sysctl file is applied again: pods of a secondary ENI have no way out
// until it is repaired, which does not wait for the audit.
func TestB35FlushedRulesetAndSwitchesComeBackAtOnce(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.add("a")
	w.add("b")
	p := w.add("c")
	before := w.view().Kernel
	w.inNodeRun("nft", "flush", "ruleset")
	w.await("the ruleset is back", func() bool { return cmp.Equal(before, w.view().Kernel) })
	w.reaches(p, ec2Addr+":80")
	w.check(w.node.SetSysctl("net.ipv4.conf."+secondLink+".rp_filter", "1"))
	w.check(w.node.SetSysctl("net.ipv4.ip_forward", "0"))
	w.await("the switches are back", func() bool { return cmp.Equal(before, w.view().Kernel) })
	w.reaches(p, ec2Addr+":80")
	w.await("both are counted", func() bool { return w.metric(repairs("nftables")) == 1 && w.metric(repairs("sysctl")) == 2 })
}
