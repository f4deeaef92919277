package pool

import (
	"net/netip"
	"slices"
	"time"
)

// HostState is the kernel state that belongs to the present model: every ENI of ours that is attached to stay, with the
// addresses whose pods leave by it. An address that EC2 took away stays listed while a sandbox holds it: the kernel is not
// where that error should show, and EC2's reading may be the stale one.
func (p *Pool) HostState() HostState {
	want := HostState{VPCCIDRs: p.cidrs}
	lost := map[string][]netip.Addr{}
	for _, a := range p.held {
		if a.lost() {
			lost[a.holder.ENI] = append(lost[a.holder.ENI], a.addr)
		}
	}
	for _, e := range p.order {
		if !e.managed() || !e.attached() {
			continue
		}
		h := HostENI{ID: e.ID, MAC: e.MAC, Device: e.Device, SubnetCIDR: e.SubnetCIDR, Primary: e.Primary}
		for _, a := range e.addresses {
			h.Addresses = append(h.Addresses, a.addr)
		}
		if more := lost[e.ID]; len(more) > 0 {
			h.Addresses = append(h.Addresses, more...)
			slices.SortFunc(h.Addresses, netip.Addr.Compare)
		}
		want.ENIs = append(want.ENIs, h)
	}
	for _, a := range p.holdings() {
		if h := a.holder; h.Done && !p.disputed(h) {
			want.Pods = append(want.Pods, HostPod{Key: h.Key, Pod: h.Pod, Addr: a.addr})
		}
	}
	return want
}

// disputed tells whether another sandbox holds, or was given, the same pod's interface: whose the host veth is cannot be
// told by its name then.
func (p *Pool) disputed(h *holding) bool {
	s, ok := slotOf(h.Key, h.Pod)
	return h.stale || ok && len(p.rivals[s]) > 1
}

// HostReading says when a report was made, and whether it counts as an audit: only audits count towards the evidence that
// a pod is gone.
type HostReading struct {
	Began, Now time.Time // when HostState was asked for; when the report arrived
	Audit      bool
}

// Evidence is why an allocation ended without a word from the runtime.
type Evidence string

// Kinds of evidence.
const (
	Interrupted Evidence = "interrupted" // restored, never done, and neither route nor veth
	Vanished    Evidence = "vanished"    // two audits in a row saw neither its route nor its veth
	Replaced    Evidence = "replaced"    // the pod name has a newer sandbox, done, and its own route and veth are gone
)

// Ended is an allocation that evidence has ended.
type Ended struct {
	Assignment
	Evidence Evidence
}

// FoldHost takes what the kernel was seen to hold, and gives the allocations that this ends, by address.
func (p *Pool) FoldHost(report HostReport, at HostReading) []Ended {
	p.foldReported(report, at)
	routes := make(map[netip.Addr]string, len(report.Pods))
	for _, pod := range report.Pods {
		routes[pod.Addr] = pod.Link
	}
	var ended []Ended
	for _, a := range p.holdings() {
		_, route := routes[a.addr]
		why := p.evidence(a, route, at)
		if why == "" {
			continue
		}
		ended = append(ended, Ended{a.holder.Assignment, why})
		p.release(a, at.Now)
		a.ended = time.Time{} // this report is the proof
		if floor := at.Now.Add(interruptedRest); why == Interrupted && a.until.Before(floor) {
			a.until = floor
		}
	}
	p.foldOccupied(routes, at)
	p.foldDeparted(at)
	p.hostSeen = true
	return ended
}

func (p *Pool) foldReported(report HostReport, at HostReading) {
	ids := make(map[string]bool, len(report.ENIs))
	for _, id := range report.ENIs {
		ids[id] = true
	}
	confirmed := make(map[netip.Addr]bool, len(report.Addresses))
	for _, addr := range report.Addresses {
		confirmed[addr] = true
	}
	for _, e := range p.order {
		switch up := ids[e.ID] && (e.State == Attached || e.State == Attaching); {
		case up:
			// A link in the guest is all that is waited for: EC2 need not be asked whether it is attached yet.
			e.State, e.reported, e.absent = Attached, true, time.Time{}
		case e.reported:
			e.reported = false
			p.attachment(e, at.Now)
		}
		for _, a := range e.addresses {
			// A report that was asked for before the address came to this ENI says nothing about it.
			a.confirm = confirmed[a.addr] && !a.gained.After(at.Began)
		}
	}
}

// evidence tells why the allocation has ended; "" when it has not.
func (p *Pool) evidence(a *address, route bool, at HostReading) Evidence {
	h := a.holder
	if h.unproven {
		h.unproven = false
		if !route {
			return Interrupted
		}
		h.Done, h.done = true, at.Now
		if s, ok := slotOf(h.Key, h.Pod); ok && !p.newer(s, h.Seq) {
			h.stale = false // its route stands and nobody newer holds the slot: it is the pod's sandbox after all
		}
		p.revision++
		p.announce(h, at.Now)
		return ""
	}
	if route || !h.Done || h.done.After(at.Began) {
		h.misses = 0
		return ""
	}
	if at.Audit {
		h.misses++
	}
	switch {
	case h.misses >= 2:
		return Vanished
	case p.replaced(h, at.Began):
		return Replaced
	}
	return ""
}

// replaced tells whether a newer sandbox of the same pod name was done before the moment.
func (p *Pool) replaced(h *holding, before time.Time) bool {
	s, ok := slotOf(h.Key, h.Pod)
	return ok && slices.ContainsFunc(p.rivals[s], func(o *holding) bool {
		return o.Done && o.Seq > h.Seq && o.done.Before(before)
	})
}

// foldOccupied marks the addresses on which a pod is seen that no allocation speaks of (a lost state file). When such a pod
// goes, its address rests like any other. A report that began before an address was released says nothing about it.
func (p *Pool) foldOccupied(routes map[netip.Addr]string, at HostReading) {
	for addr := range routes {
		p.at(addr)
	}
	for addr, a := range p.addrs {
		if a.holder == nil && at.Began.Before(a.ended) {
			continue
		}
		link, route := routes[addr]
		seen := route && a.holder == nil
		if a.occupied && !seen && a.holder == nil {
			p.rest(a, a.last, at.Now)
		}
		if a.occupied != seen {
			p.revision++
		}
		a.occupied, a.link, a.ended = seen, link, time.Time{}
	}
}

// NeedHost tells whether an address waits for nothing but the kernel to be read again: one that was released since the last
// report began is not given out before a report has not seen its route. During its cooldown the next audit is early enough.
// And whether a sandbox without a record has departed.
func (p *Pool) NeedHost(now time.Time) bool {
	for _, d := range p.departed {
		if !d.next.After(now) {
			return true
		}
	}
	for _, a := range p.inOrder() {
		if a.holder == nil && !a.ended.IsZero() && !a.until.After(now) {
			return true
		}
	}
	return false
}

// holdings gives the held addresses in ascending order.
func (p *Pool) holdings() []*address {
	list := make([]*address, 0, len(p.held))
	for _, a := range p.inOrder() {
		if a.holder != nil {
			list = append(list, a)
		}
	}
	return list
}
