package pool

import (
	"net/netip"
	"slices"
	"time"
)

// surplus watches how many addresses are too many. Only what has been too many without a break for a whole window is due to
// be given back.
type surplus struct {
	since time.Time // the present window's begin; zero when there is none
	least int       // the least excess in it
	due   int       // what a full window has shown; -1 before one is over. 0 still lets an ENI without addresses go
}

// watch takes the excess of this moment; none says that nothing may be given back. It gives what is due.
func (s *surplus) watch(excess int, none bool, now time.Time, window time.Duration) int {
	if none || excess < 0 {
		*s = surplus{due: -1}
		return s.due
	}
	if s.since.IsZero() {
		*s = surplus{since: now, least: excess, due: -1}
	}
	s.least, s.due = min(s.least, excess), min(s.due, excess)
	if now.Sub(s.since) >= window {
		s.due = max(s.due, s.least)
		s.since, s.least = now, excess
	}
	return s.due
}

// spend tells that n addresses are being given back. What was measured before counts them still: without this, cooldowns
// that end at the same moment would hide that they are gone, and the same surplus would be given back twice.
func (s *surplus) spend(n int) {
	if s.due >= 0 {
		s.due = max(0, s.due-n)
	}
	s.least -= n
}

// shrink gives back what has been too many for SurplusAge: a whole ENI where it can, else (when addresses are the target)
// prefixes or single addresses of one ENI. One step at a time, so that each is decided on fresh facts.
func (p *Pool) shrink(now time.Time, due int) []Action {
	if due < 0 {
		return nil
	}
	for _, e := range slices.Backward(p.order) {
		if _, wait := p.blocked(now, "DetachENI", e.ID); wait || !p.removable(e, now) {
			continue
		}
		if len(e.addresses) <= due || e.overdue(now) {
			return []Action{DetachENI{ENI: e.ID, AttachmentID: e.AttachmentID}}
		}
	}
	if !p.set.byAddress() || due == 0 {
		return nil
	}
	for _, e := range slices.Backward(p.order) {
		if _, wait := p.blocked(now, "UnassignAddresses", e.ID); wait || !e.managed() || !e.attached() {
			continue
		}
		if free := p.unusedBlocks(e, now, due); len(free) > 0 {
			if _, wait := p.blocked(now, "UnassignPrefixes", e.ID); !wait {
				return []Action{UnassignPrefixes{ENI: e.ID, Prefixes: NewPrefixes(free)}}
			}
		}
		if free := p.leastUseful(e, now, due); len(free) > 0 {
			return []Action{UnassignAddresses{ENI: e.ID, Addresses: NewAddrs(free)}}
		}
	}
	return nil
}

// removable tells whether the ENI may be detached: it is ours, not the primary one, and none of its addresses is anything
// but free (or on its way).
func (p *Pool) removable(e *eni, now time.Time) bool {
	if !e.spare() || !e.attached() || e.State != Attached && !e.overdue(now) || e.AttachmentID == "" {
		return false
	}
	for _, a := range e.addresses {
		if c := p.condition(a, now); c != Free && (c != Coming || !e.overdue(now)) {
			return false
		}
	}
	return true
}

// leastUseful gives up to n free secondary addresses of an ENI, those first that were used last.
func (p *Pool) leastUseful(e *eni, now time.Time, n int) []netip.Addr {
	var free []*address
	for _, a := range e.addresses {
		if !a.block.IsValid() && p.condition(a, now) == Free {
			free = append(free, a)
		}
	}
	slices.SortStableFunc(free, func(a, b *address) int { return b.until.Compare(a.until) })
	var out []netip.Addr
	for _, a := range free[:min(n, len(free))] {
		out = append(out, a.addr)
	}
	return out
}

// leftovers deals with ENIs of ours that are not attached, or attached to no purpose: one whose link never came is
// detached, one that is available is deleted unless it is needed (grow attaches it then) or its addresses are in use (then
// it is attached again).
func (p *Pool) leftovers(now time.Time, short int, planned []Action) []Action {
	var actions []Action
	again, _, _ := p.attachAll(now, 0)
	for _, a := range again {
		if act := a.(AttachENI); !touches(planned, act.ENI) && !attaches(planned) {
			actions = append(actions, act)
		}
	}
	for _, e := range p.order {
		if !e.Owned || touches(planned, e.ID) || touches(actions, e.ID) {
			continue
		}
		if e.overdue(now) && p.hostSeen && p.removable(e, now) {
			if _, wait := p.blocked(now, "DetachENI", e.ID); !wait {
				actions = append(actions, DetachENI{ENI: e.ID, AttachmentID: e.AttachmentID})
			}
		}
		if e.State == Available && p.deletable(e, now, short) {
			actions = append(actions, DeleteENI{ENI: e.ID})
		}
	}
	return actions
}

func attaches(actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { _, ok := a.(AttachENI); return ok })
}

func (p *Pool) deletable(e *eni, now time.Time, short int) bool {
	if _, wait := p.blocked(now, "DeleteENI", e.ID); wait {
		return false
	}
	if !e.broken && short > 0 && p.maxENIs(now) > p.attachments() {
		return false // about to be attached
	}
	for _, a := range e.addresses {
		if a.holder != nil || a.occupied || a.until.After(now) {
			return false
		}
	}
	return true
}
