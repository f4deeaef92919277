package reconcile_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// noticed is how old a theft must be for a reading to show it for sure: readings are up to 9 s old, and the daemon trusts
// fresh answers of EC2 more than readings for 15 s.
const noticed = 25 * time.Second

// excused tells whether the daemon cannot know yet that an address was taken away.
func (n *node) excused(addr netip.Addr, since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.thefts[addr]
	return ok && !n.readSince(at, since)
}

// readSince tells whether a reading shows for sure what was at a moment, and was answered before another one.
func (n *node) readSince(at, before time.Time) bool {
	return slices.ContainsFunc(n.cloud.reads, func(read time.Time) bool {
		return read.Sub(at) >= noticed && read.Add(2*time.Second).Before(before) // the answer travels
	})
}

func (n *node) isTroubled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.trouble)
}

// check looks at the laws that hold at every moment, and tells whether one is broken.
func (n *node) check() bool {
	defer n.turn(driver) // the loop is still at work when it has answered
	running := n.runs(nil)
	for _, s := range running {
		for _, other := range running {
			if other != s && other.addr == s.addr {
				n.fault("one holder", "%s is used by %s and %s", s.addr, s, other)
			}
		}
		n.checkRunning(s)
	}
	for _, problem := range n.host.broken() {
		n.fault("veth's name", "%s", problem)
	}
	for _, problem := range n.api.broken() {
		n.fault("owner's value", "%s", problem)
	}
	if err := n.cloud.v.Check(); err != nil {
		n.fault("the world", "the VPC model: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.faults) > 0
}

// checkRunning looks at one running sandbox. What a human took away is not the daemon's fault, but must be told.
func (n *node) checkRunning(s *sandbox) {
	n.mu.Lock()
	theft, robbed := n.thefts[s.addr]
	robbed = s.stale || robbed && theft.After(s.since)
	n.mu.Unlock()
	problem := n.atEC2(s.addr)
	switch {
	case problem != "" && !robbed:
		n.fault("ours at EC2", "sandbox %s lost %s: %s", s, s.addr, problem)
	case problem == "" && !robbed && !n.host.confirmed(s.addr, n.holder(s.addr)) && !n.host.flushed(time.Now()):
		n.fault("kernel keeps", "the kernel lost %s of sandbox %s", s.addr, s)
	}
	if s.lost {
		n.mu.Lock()
		reported := n.life.reported
		s.found = s.found || !reported.IsZero() && time.Since(reported) > 10*time.Second && time.Now().After(n.trouble)
		n.mu.Unlock()
		return // nobody knows of it but the kernel
	}
	l := n.life
	lease, err := l.loop.Check(context.Background(), s.key)
	switch {
	case errors.Is(err, reconcile.ErrStopped) && l.dead():
	case errors.Is(err, reconcile.ErrSuperseded) && s.pod.current != s, errors.Is(err, reconcile.ErrSuperseded) && n.named(s) > 1:
	case err != nil || lease.Assignment.Addr != s.addr || !lease.Assignment.Done:
		n.fault("remembered", "sandbox %s runs with %s, the daemon says %+v, %v", s, s.addr, lease.Assignment, err)
	}
	n.mu.Lock()
	flagged := l.flagged[s.key.Sandbox]
	known := n.readSince(latest(theft, l.began), time.Now())
	n.mu.Unlock()
	if problem == notOurs && robbed && known && !flagged && !l.dead() {
		n.fault("flagged", "%s of running %s is not ours since %s, and the log says nothing", s.addr, s, theft.Sub(epoch()))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *life) dead() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// named counts the sandboxes of a pod's name that may hold an address: some outlive their end a little.
func (n *node) named(s *sandbox) int {
	count := 0
	for _, o := range n.sandboxes {
		if o.pod.Name == s.pod.Name && !o.dead && (o.holds || !o.ended || time.Since(o.until) < 2*time.Minute) {
			count++
		}
	}
	return count
}

// atEC2 tells what keeps an address from working; "" when it is a secondary address of an ENI of this instance.
func (n *node) atEC2(addr netip.Addr) string {
	for _, e := range n.cloud.own() {
		if e.Primary == addr {
			return "it is the primary address of " + e.ID
		}
		if e.Holds(addr) {
			if e.Attachment != nil && e.Attachment.Device > 0 && e.Tags[instanceTag] == "" {
				return notOurs // a stranger's
			}
			if e.Attachment == nil || e.Attachment.Status == vpc.Detaching {
				return "its ENI " + e.ID + " is not attached"
			}
			return ""
		}
	}
	return notOurs
}

const notOurs = "EC2 does not say that it is ours"

func (n *node) holder(addr netip.Addr) string {
	for _, e := range n.cloud.own() {
		if e.Holds(addr) {
			return e.ID
		}
	}
	return ""
}

// count notes how many addresses are used, for the law of hysteresis.
func (n *node) count() {
	n.mu.Lock()
	defer n.mu.Unlock()
	used := 0
	for _, s := range n.sandboxes {
		if s.holds && (s.veth || !s.built) && n.atEC2(s.addr) == "" {
			used++
		}
	}
	n.used = append(n.used, usage{time.Now(), used})
}

// peak is the most addresses that were used at once within a time.
func (n *node) peak(within time.Duration) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	from, most := time.Now().Add(-within), 0
	for _, u := range slices.Backward(n.used) {
		most = max(most, u.used)
		if u.at.Before(from) { // what was true when the time began
			break
		}
	}
	return most
}

// checkGivingBack: nothing that a sandbox holds is given back, and nothing that would have been missed within the last
// minutes: a pod's replacement must cost no calls.
func (n *node) checkGivingBack(action pool.Action) {
	var gone []netip.Addr
	switch act := action.(type) {
	case pool.UnassignAddresses:
		gone = act.Addresses.List()
	case pool.DetachENI:
		e, _ := n.cloud.v.ENI(act.ENI)
		gone = e.Secondary
		if e.Attachment == nil || e.Attachment.Status != vpc.Attached || !e.Attachment.Link {
			return // its link never came, or somebody was faster
		}
	case pool.DeleteENI:
		e, _ := n.cloud.v.ENI(act.ENI)
		gone = e.Secondary
	default:
		return
	}
	n.cloud.gaveBack = time.Now()
	for _, s := range n.sandboxes {
		if s.holds && s.veth && slices.Contains(gone, s.addr) && !s.lost {
			n.fault("in use", "%s is given back while %s has it", s.addr, s)
		}
	}
	robbed := slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.holds && n.atEC2(s.addr) != "" })
	if _, deletes := action.(pool.DeleteENI); deletes || n.isTroubled() || n.recentTheft() || robbed {
		return
	}
	per, total := n.kind.IPv4-1, 0
	for _, e := range n.cloud.own() {
		if e.Attachment != nil && e.Attachment.Status != vpc.Detaching {
			total += len(e.Secondary)
		}
	}
	left := total - len(gone)
	s := n.settings
	want := max(1, s.WarmENI*per)
	if s.WarmIP > 0 || s.MinimumIP > 0 {
		want = s.WarmIP
	}
	if peak := n.peak(pool.DefaultSurplusAge); left < max(peak+want, s.MinimumIP) {
		n.fault("hysteresis", "%s leaves %d addresses, %d were used within %s and %d are to be warm", action, left, peak, pool.DefaultSurplusAge, want)
	}
}

func (n *node) recentTheft() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range n.thefts {
		if time.Since(at) < 5*time.Minute {
			return true
		}
	}
	return false
}

// checkCleared: an address that another pod's annotation names is given out only where there is no other, or the clear had
// its time.
func (n *node) checkCleared(s *sandbox, a pool.Assignment) {
	name := n.api.names(a.Addr.String(), s.pod.Pod)
	if name == "" || n.isTroubled() {
		return
	}
	n.mu.Lock()
	r := n.released[a.Addr]
	n.mu.Unlock()
	if r.at.IsZero() || a.Since.Sub(r.at) >= 10*time.Minute || time.Since(n.cloud.gaveBack) < time.Minute || time.Since(n.life.began) < time.Minute {
		return
	}
	if better, ok := n.better(func(addr netip.Addr) bool { return addr == a.Addr || n.life.annotator.unanswered(addr) }); ok {
		n.fault("cleared first", "%s given to %s although %s is still annotated with it and %s is free", a.Addr, s, name, better)
	}
}

// better gives an address that is free beyond all doubt, and passes no test of the caller's.
func (n *node) better(not func(netip.Addr) bool) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.cloud.own() {
		if e.Attachment == nil || e.Attachment.Status != vpc.Attached || e.Attachment.Device > 0 && e.Tags[instanceTag] == "" {
			continue
		}
		for _, addr := range e.Secondary {
			held := slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.holds && s.addr == addr })
			switch {
			case not(addr), held, time.Since(n.rested[addr]) < n.settings.Cooldown+150*time.Second, !n.thefts[addr].IsZero():
			case !n.host.confirmed(addr, e.ID), n.api.names(addr.String(), pool.Pod{}) != "":
			default:
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

// checkServed: an ADD is not refused while addresses lie idle and no fault is near.
func (n *node) checkServed(l *life, err error, began time.Time) {
	var none *reconcile.NoAddressError
	if !errors.As(err, &none) || n.isTroubled() || began.Sub(l.began) < time.Minute || l.dead() || n.recentTheft() || n.host.flushed(time.Now()) {
		return
	}
	if time.Since(n.cloud.gaveBack) < time.Minute {
		return
	}
	if addr, ok := n.better(func(netip.Addr) bool { return false }); ok {
		n.fault("served", "ADD refused (%v) while %s is free", err, addr)
	}
}

// keptLaw is what must become of an allocation without done that a life finds: kept if its route stands, else cooled.
type keptLaw struct {
	pool.Assignment
}

func (n *node) expectKept(l *life) {
	copied := store.NewMemory() // Load may put the file aside
	data, err := n.disk.ReadFile(statePath)
	if err != nil || copied.WriteFile(statePath, data, 0) != nil {
		return
	}
	snap, found, err := store.New(copied, statePath).Load()
	if err != nil || !found || snap.BootID != n.settings.BootID {
		return
	}
	for _, a := range snap.Assignments {
		if !a.Done {
			l.kept = append(l.kept, keptLaw{a})
		}
	}
}

// checkKept looks when the kernel has been read for the first time. A sandbox that was ended since is none of the law's.
func (n *node) checkKept(l *life) {
	for _, k := range l.kept {
		at := slices.IndexFunc(n.sandboxes, func(s *sandbox) bool { return s.key == k.Key })
		if at < 0 || n.sandboxes[at].ended || n.sandboxes[at].dead {
			continue
		}
		s := n.sandboxes[at]
		routed := slices.ContainsFunc(n.host.report.Pods, func(r pool.PodRoute) bool { return r.Addr == k.Addr })
		var lease reconcile.Lease
		var err error
		n.ask(l.name("kept"), func() { lease, err = l.loop.Check(context.Background(), k.Key) })
		switch {
		case errors.Is(err, reconcile.ErrStopped):
		case routed && s.veth && !errors.Is(err, reconcile.ErrSuperseded):
			n.covered("kept at restart")
			if err != nil || !lease.Assignment.Done || lease.Assignment.Addr != k.Addr {
				n.fault("kept", "%s stands on %s without done and is not kept: %+v %v", s, k.Addr, lease.Assignment, err)
			}
		case !routed:
			n.covered("cooled at restart")
			n.checkCooled(l, s, k)
		}
	}
}

func (n *node) checkCooled(l *life, s *sandbox, k keptLaw) {
	var status reconcile.Status
	var err error
	n.ask(l.name("kept"), func() { status, err = l.loop.Status(context.Background()) })
	if err != nil {
		return
	}
	for _, a := range status.Pool.Addresses {
		switch {
		case a.Addr != k.Addr:
		case a.Assignment != nil && a.Assignment.Key == k.Key && !a.Assignment.Since.After(l.began):
			n.fault("kept", "%s never was done and has no veth, and still holds %s", s, k.Addr)
		case a.Assignment == nil && time.Until(a.Until) < 25*time.Second && a.ENI != "":
			n.fault("kept", "%s of the interrupted %s rests only until %s", k.Addr, s, a.Until.Sub(epoch()))
		}
	}
}
