package reconcile_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// noticed is how old a theft must be for a reading to show it for sure: readings are up to 9 s old, and the daemon trusts
// fresh answers of EC2 more than readings for 15 s.
const noticed = 25 * time.Second

// stolen marks what works no more because of the driver, not of the daemon.
func (n *node) stolen(addr netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.thefts[addr] = time.Now()
}

func (n *node) excused(addr netip.Addr, since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.thefts[addr]
	return ok && !slices.ContainsFunc(n.cloud.reads, func(read time.Time) bool {
		return read.Sub(at) >= noticed && read.Add(2*time.Second).Before(since) // the answer travels
	})
}

// check looks at the laws that hold at every moment, and tells whether one is broken.
func (n *node) check() bool {
	for _, s := range n.sandboxes {
		if !s.runs || s.taken {
			continue
		}
		if problem := n.atEC2(s.addr); problem != "" {
			n.fault("sandbox %s lost %s: %s", s.key.Sandbox, s.addr, problem)
		}
		for _, other := range n.sandboxes {
			if other != s && other.using && other.addr == s.addr {
				n.fault("%s is used by %s and %s", s.addr, s.key.Sandbox, other.key.Sandbox)
			}
		}
		if !n.host.confirmed(s.addr, n.holder(s.addr)) {
			n.fault("the kernel lost %s of sandbox %s", s.addr, s.key.Sandbox)
		}
		lease, err := n.life.loop.Check(context.Background(), s.key)
		if err != nil || lease.Assignment.Addr != s.addr || !lease.Assignment.Done {
			n.fault("sandbox %s runs with %s, the daemon says %+v, %v", s.key.Sandbox, s.addr, lease.Assignment, err)
		}
	}
	for _, problem := range append(n.host.broken(), n.api.broken()...) {
		n.fault("%s", problem)
	}
	if err := n.cloud.v.Check(); err != nil {
		n.fault("the VPC model: %v", err)
	}
	return len(n.faults) > 0
}

func (n *node) holder(addr netip.Addr) string {
	for _, e := range n.cloud.own() {
		if e.Holds(addr) {
			return e.ID
		}
	}
	return ""
}

// quiet ends all trouble and checks that everything comes to rest where it should: once with the pods that are left, once
// with none.
func (n *node) quiet() {
	n.note("quiet")
	n.cloud.throttled, n.cloud.lost, n.cloud.lag = time.Time{}, 0, 0
	n.api.down, n.saves = time.Time{}, time.Time{}
	n.cloud.v.SetDelays(vpc.Delays{Attach: time.Second, Link: 2 * time.Second, Detach: 3 * time.Second})
	n.rest()
	n.note("everything ends")
	for _, s := range n.sandboxes {
		if s.runs {
			n.del(s)
		}
	}
	n.rest()
	status := n.status()
	if len(status.Pool.Records) > 0 {
		n.fault("records are left: %+v", status.Pool.Records)
	}
	for _, a := range status.Pool.Addresses {
		if a.Assignment != nil {
			n.fault("an assignment is left: %+v", *a.Assignment)
		}
	}
}

// rest waits until nothing can be under way any more: backoffs of minutes, surplus of SurplusAge more than once, audits.
func (n *node) rest() {
	pass(25 * time.Minute)
	synctest.Wait()
	if n.check() {
		return
	}
	status := n.status()
	n.checkAccounts(status)
	n.checkTargets(status)
	n.checkENIs()
	n.checkAnnotations()
	if len(status.Waiting) > 0 {
		n.fault("not quiet: waiting %v", status.Waiting)
	}
}

func (n *node) status() reconcile.Status {
	status, err := n.life.loop.Status(context.Background())
	if err != nil {
		n.fault("status: %v", err)
	}
	return status
}

// checkAccounts compares addresses at EC2, in the pool and in sandboxes, both ways.
func (n *node) checkAccounts(status reconcile.Status) {
	var atEC2, known, assigned, running []string
	for _, e := range n.cloud.own() {
		for _, addr := range e.Secondary {
			atEC2 = append(atEC2, addr.String()+" "+e.ID)
		}
	}
	for _, a := range status.Pool.Addresses {
		if a.ENI != "" {
			known = append(known, a.Addr.String()+" "+a.ENI)
			if a.Condition != pool.Free && a.Condition != pool.InUse {
				n.fault("%s is %s when all is quiet", a.Addr, a.Condition)
			}
		}
		if a.Assignment != nil {
			assigned = append(assigned, a.Addr.String()+" "+a.Assignment.Key.Sandbox)
		}
	}
	for _, s := range n.sandboxes {
		if s.runs {
			running = append(running, s.addr.String()+" "+s.key.Sandbox)
		}
	}
	n.same("addresses at EC2 and in the pool", atEC2, known)
	n.same("running sandboxes and assignments", running, assigned)
}

func (n *node) same(what string, a, b []string) {
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		n.fault("%s differ:\n  %s\n  %s", what, strings.Join(a, ", "), strings.Join(b, ", "))
	}
}

// checkTargets computes the settings' meaning anew, from EC2's and the sandboxes' state.
func (n *node) checkTargets(status reconcile.Status) {
	per := n.kind.IPv4 - 1
	total, used := 0, 0
	var empty []int // sizes of removable ENIs without a pod
	room, enis := 0, 0
	for _, e := range n.cloud.own() {
		enis++
		mine := 0
		for _, addr := range e.Secondary {
			if slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.using && s.addr == addr }) {
				mine++
			}
		}
		total, used, room = total+len(e.Secondary), used+mine, room+per-len(e.Secondary)
		if mine == 0 && e.Attachment != nil && e.Attachment.Device > 0 {
			empty = append(empty, len(e.Secondary))
		}
	}
	free := total - used
	limit := n.kind.ENIs
	if n.settings.MaxENI > 0 {
		limit = min(limit, n.settings.MaxENI)
	}
	sub, _ := n.cloud.v.Subnet(subnetID)
	exhausted := room == 0 && enis >= limit || sub.Free == 0 || room == 0 && sub.Free < 2
	text := fmt.Sprintf("total %d used %d free %d room %d enis %d subnet has %d: %s", total, used, free, room, enis, sub.Free, status.Pool.Decision)
	s := n.settings
	switch {
	case s.WarmIP > 0 || s.MinimumIP > 0:
		if missing := max(s.WarmIP-free, s.MinimumIP-total); missing > 0 && !exhausted {
			n.fault("%d addresses missing: %s", missing, text)
		}
		if extra := min(free-s.WarmIP, total-s.MinimumIP); extra > 0 {
			n.fault("%d addresses too many: %s", extra, text)
		}
	default:
		want := max(1, s.WarmENI*per)
		if free < want && !exhausted {
			n.fault("%d addresses missing: %s", want-free, text)
		}
		for _, size := range empty {
			if free-size >= want {
				n.fault("an ENI of %d too many: %s", size, text)
			}
		}
	}
}

// checkENIs looks for what a crash may have left.
func (n *node) checkENIs() {
	for _, e := range n.cloud.own() {
		if e.Attachment == nil {
			n.fault("ENI %s is left available", e.ID)
		} else if !e.Attachment.DeleteOnTermination {
			n.fault("ENI %s would outlive the instance", e.ID)
		}
	}
}

func (n *node) checkAnnotations() {
	for _, s := range n.sandboxes {
		for _, key := range []string{"a/ip", "b/ip"} {
			value, ok := n.api.value(s.pod, key)
			wanted := n.settings.Annotate && slices.Contains(n.settings.Keys, key)
			switch {
			case s.runs && wanted && value != s.addr.String():
				n.fault("%s of running %s is %q, not %s", key, s.pod.UID, value, s.addr)
			case s.runs && !wanted && ok && value != "": // "" of an earlier sandbox of the pod may stay
				n.fault("%s of running %s is still there: %q", key, s.pod.UID, value)
			case !s.runs && value != "" && !n.runsNow(s.pod):
				n.fault("%s of ended %s is %q", key, s.pod.UID, value)
			}
		}
	}
}

func (n *node) runsNow(p pool.Pod) bool {
	return slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.runs && s.pod == p })
}

// report prints what was broken with the operations that led there.
func (n *node) report() {
	if len(n.faults) == 0 {
		return
	}
	tail := n.log[max(0, len(n.log)-120):]
	if os.Getenv("SIM_SEED") != "" {
		tail = n.log
	}
	n.t.Errorf("seed %d (repeat with SIM_SEED=%d):\n%s\noperations:\n%s\n%s", n.seed, n.seed,
		strings.Join(n.faults[:min(8, len(n.faults))], "\n"), n.log[0], strings.Join(tail, "\n"))
}
