package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// quiet ends all trouble and checks that everything comes to rest where it should: once with the pods that are left, once
// with none.
func (n *node) quiet() {
	n.note("quiet")
	n.endFaults()
	n.pass(peaceLasts)
	if n.checkLive("quiet"); n.check() {
		return
	}
	for _, p := range n.pods { // those that find no room are given up: what they ask for would never rest
		if p.wanted && !p.current.runs {
			p.wanted = false
		}
	}
	n.rest()
	if n.check() {
		return
	}
	n.note("everything ends")
	for _, s := range n.runs(nil) {
		s.pod.wanted = false
		n.api.end(s.pod.Pod, false)
		n.del(s)
		n.after(time.Minute, func() { n.api.end(s.pod.Pod, true) })
	}
	n.rest()
	n.checkNothingLeft()
}

// rest waits until nothing can be under way any more: backoffs of minutes, surplus of SurplusAge more than once, audits,
// and limits that EC2 was said to have.
func (n *node) rest() {
	if n.limits {
		n.pass(100 * time.Minute)
		n.limits = false
	}
	n.pass(15 * time.Minute)
	began := time.Now()
	n.pass(10 * time.Minute)
	if n.check() {
		return
	}
	status := n.status()
	n.checkAccounts(status)
	idle := n.checkTargets(status)
	n.checkENIs()
	n.checkAnnotations()
	n.checkCalls(began, idle)
	if len(status.Waiting) > 0 {
		n.fault("quiet", "waiting %v", status.Waiting)
	}
}

// pass lets the driver do nothing for a while.
func (n *node) pass(d time.Duration) { n.wait(now() + d) }

func (n *node) status() reconcile.Status {
	defer n.turn(driver) // the loop is still at work when it has answered
	status, err := n.life.loop.Status(context.Background())
	if err != nil {
		n.fault("quiet", "status: %v", err)
	}
	return status
}

// checkLive: some time after all faults have ended every pod that kubelet wants has its network, unless there is no room.
func (n *node) checkLive(when string) {
	if n.limits || time.Since(n.life.began) < 5*time.Minute {
		return // limits are believed for long
	}
	idle := 0
	for _, e := range n.cloud.own() {
		if e.Attachment == nil || e.Attachment.Device > 0 && e.Tags[instanceTag] == "" {
			continue
		}
		idle += len(e.Secondary)
	}
	for _, s := range n.sandboxes {
		if s.holds {
			idle--
		}
	}
	for _, p := range n.pods {
		s := p.current
		if p.wanted && !s.runs && idle > 0 && n.named(s) <= 1 && p.tries > 1 {
			n.fault("served", "pod %s does not run at the end of %s, with %d idle addresses", p, when, idle)
		}
	}
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
		orphan := slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.lost && s.holds && s.addr == a.Addr })
		if a.ENI != "" {
			known = append(known, a.Addr.String()+" "+a.ENI)
			fine := a.Condition == pool.Free || a.Condition == pool.InUse || orphan && a.Condition == pool.Occupied
			if !fine && !n.stranded(a.ENI) {
				n.fault("totals", "%s is %s when all is quiet", a.Addr, a.Condition)
			}
		}
		if a.Assignment != nil {
			assigned = append(assigned, a.Addr.String()+" "+a.Assignment.Key.Sandbox)
		}
	}
	for _, s := range n.runs(func(s *sandbox) bool { return !s.lost }) {
		running = append(running, s.addr.String()+" "+s.key.Sandbox)
	}
	n.same("addresses at EC2 and in the pool", atEC2, known)
	n.same("running sandboxes and assignments", running, assigned)
}

func (n *node) same(what string, a, b []string) {
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		n.fault("totals", "%s differ: %s | %s", what, strings.Join(a, ", "), strings.Join(b, ", "))
	}
}

// checkTargets computes the settings' meaning anew, from EC2's and the sandboxes' state. It tells whether the daemon has
// no reason to ask EC2 for anything.
func (n *node) checkTargets(status reconcile.Status) bool {
	per := n.kind.IPv4 - 1
	total, used := 0, 0
	var empty []int // sizes of removable ENIs without a pod
	room, enis := 0, 0
	stranded := false
	for _, e := range n.cloud.own() {
		if e.Attachment == nil {
			stranded = stranded || n.stranded(e.ID) // whether its place is free by now is asked again and again
			continue
		}
		enis++
		mine := 0
		for _, addr := range e.Secondary {
			if slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.holds && s.addr == addr }) {
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
	idle := !stranded
	missing, extra := max(1, s.WarmENI*per)-free, 0
	if s.WarmIP > 0 || s.MinimumIP > 0 {
		missing, extra = max(s.WarmIP-free, s.MinimumIP-total), min(free-s.WarmIP, total-s.MinimumIP)
	} else {
		for _, size := range empty {
			if free-size >= max(1, s.WarmENI*per) {
				n.fault("targets", "an ENI of %d too many: %s", size, text)
			}
		}
	}
	if missing > 0 {
		idle = false
		if !exhausted {
			n.fault("targets", "%d addresses missing: %s", missing, text)
		}
	}
	if extra > 0 {
		n.fault("targets", "%d addresses too many: %s", extra, text)
	}
	return idle
}

// stranded tells whether the ENI is not attached and cannot be: its place is taken (after a human detached it) or never was
// there (more was asked of EC2 than the instance can have), and pods still have its addresses, or such as EC2 took from them
// and gave to it, so that it is not deleted either.
func (n *node) stranded(id string) bool {
	e, _ := n.cloud.v.ENI(id)
	return e.Attachment == nil && slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.runs && e.Holds(s.addr) })
}

// checkENIs looks for what a crash may have left.
func (n *node) checkENIs() {
	for _, e := range n.cloud.own() {
		if e.Attachment == nil {
			if !n.stranded(e.ID) {
				n.fault("no leak", "ENI %s is left available", e.ID)
			}
		} else if !e.Attachment.DeleteOnTermination {
			n.fault("no leak", "ENI %s would outlive the instance", e.ID)
		}
	}
	for _, e := range n.cloud.v.ENIs() {
		if e.Attachment == nil && strings.HasPrefix(e.Description, "aws-cni") {
			n.fault("no leak", "ENI %s is left available, without a tag", e.ID)
		}
	}
}

// checkCalls: at rest EC2 is read now and then, and asked for nothing; where a target cannot be met, now and then.
func (n *node) checkCalls(began time.Time, idle bool) {
	actions, reads := 0, 0
	for _, e := range n.cloud.journal {
		if e.at.After(began) {
			actions++
		}
	}
	for _, at := range n.cloud.reads {
		if at.After(began) {
			reads++
		}
	}
	if most := 30; actions > 0 && idle || actions > most {
		n.fault("few calls", "%d calls change something at EC2 in ten quiet minutes", actions)
	}
	if reads > 45 {
		n.fault("few calls", "%d readings in ten quiet minutes", reads)
	}
}

func (n *node) checkAnnotations() {
	for _, s := range n.sandboxes {
		if s.lost || s.dead {
			continue
		}
		for _, key := range []string{"a/ip", "b/ip"} {
			value, there, known := n.api.value(s.pod.Pod, key)
			wanted := n.settings.Annotate && slices.Contains(n.settings.Keys, key)
			switch {
			case !known:
			case s.runs && wanted && value != s.addr.String():
				n.fault("annotated", "%s of running %s is %q, not %s", key, s, value, s.addr)
			case s.runs && !wanted && there && value != "": // "" of an earlier sandbox of the pod may stay
				n.fault("annotated", "%s of running %s is still there: %q", key, s, value)
			case !s.runs && value != "" && !n.runsNow(s.pod):
				n.fault("annotated", "%s of ended %s is %q", key, s, value)
			}
		}
	}
}

func (n *node) runsNow(p *simPod) bool {
	return slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.runs && s.pod == p })
}

// checkNothingLeft looks for records and assignments, in the daemon and in its file.
func (n *node) checkNothingLeft() {
	status := n.status()
	for _, rec := range status.Pool.Records {
		n.fault("no leak", "a record is left: %+v", rec)
	}
	for _, a := range status.Pool.Addresses {
		if a.Assignment != nil {
			n.fault("no leak", "an assignment is left: %+v", *a.Assignment)
		}
	}
	snap, found, err := store.New(n.disk, statePath).Load()
	switch {
	case err != nil || !found:
		n.fault("no leak", "the state file: %v, found %v", err, found)
	case len(snap.Assignments)+len(snap.Annotations) > 0:
		n.fault("no leak", "the state file has %d assignments and %d records", len(snap.Assignments), len(snap.Annotations))
	}
	for _, c := range snap.Cooling {
		if n.atEC2(c.Addr) != "" && c.Until.Before(time.Now().Add(-time.Minute)) {
			n.fault("no leak", "the state file remembers %s of %s for nothing", c.Addr, c.Pod.UID)
		}
	}
}
