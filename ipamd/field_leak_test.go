package ipamd_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// These tests replay public reports about lost addresses and DEL (e2e/fieldcases/cases.md, B1 to B17): the whole daemon and
// the real plugin through libcni.

// sandboxDies is the end of a sandbox that nobody asked for: the kernel takes its links in its own time.
func (w *world) sandboxDies(p *pod) {
	w.t.Helper()
	w.check(p.ns.Close())
	w.await("the kernel ends the namespace", func() bool { return w.podRoutes()[p.addr] == "" })
}

func TestB1DELWithEmptyNetnsFreesTheAddress(t *testing.T) {
	w := newWorld(t, "MAX_ENI=1")
	w.start()
	killed, other := w.add("killed"), w.add("other")
	w.sandboxDies(killed)
	for range 2 {
		w.check(w.delAs(killed, ""))
	}
	if n := w.metric(assigned); n != 1 {
		t.Errorf("%d addresses assigned", n)
	}
	if routes := w.podRoutes(); len(routes) != 1 || len(w.veths()) != 1 {
		t.Errorf("the kernel keeps %v, %v", routes, w.veths())
	}
	if next := w.add("next"); next.addr != killed.addr { // the node has no other
		t.Errorf("given %s, free is %s", next.addr, killed.addr)
	}
	w.reaches(other, ec2Addr+":80")
}

func TestB2DELWithoutADaemonRemovesTheRoutesAndTheAddressIsReclaimed(t *testing.T) {
	w := newWorld(t)
	w.start()
	pods := []*pod{w.add("a"), w.add("b"), w.add("c")} // the last one on the second ENI
	w.kill()
	for _, p := range pods {
		w.del(p) // libcni passes the cached result
	}
	if routes := w.podRoutes(); len(routes) != 0 || len(w.veths()) != 0 {
		t.Errorf("the kernel keeps %v, %v", routes, w.veths())
	}
	w.start()
	w.empty()
}

func TestB3DELsSucceedWhileTheDaemonIsDownForGood(t *testing.T) {
	w := newWorld(t)
	w.start()
	a, b := w.add("a"), w.add("b")
	w.kill()
	for i := range 10 {
		began := time.Now()
		w.del(a)
		w.check(w.delAs(b, "")) // its namespace has another name by now, or none
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("DELs number %d took %s", i, took)
		}
	}
	w.del(b)
	if routes := w.podRoutes(); len(routes) != 0 {
		t.Errorf("the kernel keeps %v", routes)
	}
}

// A cached result of the incumbent, of another release, or none that can be read: DEL does not depend on it.
func TestB5DELTakesResultsOfOtherReleases(t *testing.T) {
	w := newWorld(t)
	w.start()
	const incumbent = `{"cniVersion":"0.4.0","interfaces":[{"name":"eni0123456789a"},{"name":"eth0","mac":"3","sandbox":"/var/run/netns/x"},` +
		`{"name":"dummy0123456789a","mac":"0","sandbox":"0"}],"ips":[{"version":"4","interface":1,"address":"10.0.1.77/32"}]}`
	for name, kept := range map[string]string{
		"the incumbent's, vlan id 0":  incumbent,
		"the incumbent's, no vlan id": strings.Replace(incumbent, `,"mac":"0","sandbox":"0"`, "", 1),
		"of another version":          `{"cniVersion":"1.1.0","interfaces":[{"name":"x","mtu":9001,"socketPath":"/x"}],"ips":[]}`,
		"of a version to come":        `{"cniVersion":"9.9.9","interfaces":"many"}`,
		"no result":                   `[]`,
		"null":                        `null`,
	} {
		p := w.add("a")
		if out, err := w.plugin("DEL", p, w.conf("0.4.0", `,"prevResult":`+kept)); err != nil || out != "" {
			t.Errorf("%s: %v, %q", name, err, out)
		}
		w.empty()
		w.check(p.ns.Close())
	}
}

func TestB6PodsDeletedAfterARestartLeaveNothing(t *testing.T) {
	w := newFieldWorld(t, 2, 12)
	w.start()
	var pods []*pod
	for i := range 20 {
		pods = append(pods, w.add(fmt.Sprintf("p%d", i)))
	}
	if n := w.metric(assigned); n != len(pods) {
		t.Errorf("%d addresses assigned", n)
	}
	_ = w.end(syscall.SIGKILL)
	w.start()
	if n := w.metric(assigned); n != len(pods) {
		t.Errorf("%d addresses assigned after the restart", n)
	}
	for _, p := range pods {
		w.del(p)
	}
	w.empty()
}

// A DEL that never came is made good by CNI's GC: at once, and counted. Without GC it is evidence that ends the
// allocation, in two audits (reconcile's test of the same case).
func TestB7GCFreesWhatALostDELLeft(t *testing.T) {
	w := newWorld(t)
	w.start()
	live, lost := w.add("live"), w.add("lost")
	w.sandboxDies(lost)
	valid := fmt.Sprintf(`,"cni.dev/valid-attachments":[{"containerID":%q,"ifname":"eth0"}]`, live.conf.ContainerID)
	if out, err := w.plugin("GC", live, w.conf("1.1.0", valid)); err != nil || out != "" {
		t.Errorf("GC: %v, %q", err, out)
	}
	if n, gc := w.metric(assigned), w.metric(`awscni_del_ip_req_count{reason="gc"}`); n != 1 || gc != 1 {
		t.Errorf("%d addresses assigned, %d freed by GC", n, gc)
	}
	w.reaches(live, ec2Addr+":80")
	w.check(w.cniCheck(live))
}

// The kernel refuses after the address was given: something sits on the interface's name in the sandbox.
func TestB9FailedKernelWorkGivesTheAddressBack(t *testing.T) {
	w := newWorld(t, "MAX_ENI=1")
	w.start()
	p := w.sandbox("a")
	w.check(netlab.Veth(netlab.End{NS: p.ns, Name: "eth0"}, netlab.End{NS: p.ns, Name: "other"}))
	for range 5 { // more often than the node has addresses
		if err := w.tryAdd(p); err == nil {
			t.Fatal("ADD succeeded over a link that is not its own")
		}
		w.await("the address is given back", func() bool { return w.metric(assigned) == 0 })
	}
	if len(w.podRoutes()) != 0 || len(w.veths()) != 0 {
		t.Errorf("the kernel keeps %v, %v", w.podRoutes(), w.veths())
	}
	w.check(netlab.DelLink(p.ns, "eth0"))
	w.check(w.tryAdd(p))
	w.reaches(p, ec2Addr+":80")
}

// The daemon is killed when EC2 has attached the ENI and it has not heard of it.
func TestB10ENIAttachedAcrossAKillIsAdopted(t *testing.T) {
	w := newWorld(t)
	w.check(w.faults.Add(fault.Rule{Name: "lost", Action: "AttachNetworkInterface", Kind: fault.Lost}))
	w.start()
	w.add("a")
	w.add("b")
	waiting := w.sandbox("c")
	var adds sync.WaitGroup
	adds.Go(func() { _ = w.tryAdd(waiting) }) // its daemon dies: the outcome is not this test's
	w.await("EC2 attaches a second ENI", func() bool { return len(w.model.InstanceENIs(w.instance.ID)) == 2 })
	_ = w.end(syscall.SIGKILL)
	adds.Wait()
	second := w.model.InstanceENIs(w.instance.ID)[1].ID
	w.faults.Clear()

	w.start()
	for _, name := range []string{"d", "e"} {
		p := w.add(name)
		w.reaches(p, ec2Addr+":80")
	}
	enis := w.model.InstanceENIs(w.instance.ID)
	if len(enis) != 2 || enis[1].ID != second {
		t.Errorf("ENIs %v, attached before the kill was %s", enis, second)
	}
}
