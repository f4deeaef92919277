package pool

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// untilSeenGone is the end of a cooldown that has not begun: a pod of which no allocation speaks is on the address. Should it
// end while no daemon runs, nothing but this tells the next one that the address was in use a moment ago. An earlier release
// that reads it makes it a cooldown from its start.
var untilSeenGone = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Snapshot gives what must survive a restart, in a fixed order. A cooldown that is over stays listed while the address is
// not given out again: it says whose the address was.
func (p *Pool) Snapshot() Snapshot {
	snap := Snapshot{BootID: p.set.BootID, Assignments: slices.Grow([]Assignment(nil), len(p.held))}
	for _, a := range p.inOrder() {
		if a.holder != nil {
			snap.Assignments = append(snap.Assignments, a.holder.Assignment)
		} else if a.occupied {
			snap.Cooling = append(snap.Cooling, Cooling{Addr: a.addr, Pod: a.last, Until: untilSeenGone})
		} else if left := p.left(a); a.until.Before(left) {
			snap.Cooling = append(snap.Cooling, Cooling{Addr: a.addr, Until: left})
		} else if !a.until.IsZero() {
			snap.Cooling = append(snap.Cooling, Cooling{Addr: a.addr, Pod: a.last, Until: a.until})
		}
	}
	if p.entomb(&snap) {
		slices.SortFunc(snap.Cooling, func(a, b Cooling) int { return a.Addr.Compare(b.Addr) })
	}
	snap.Annotations, snap.Emptied = p.sortedRecords(), p.sortedEmptied()
	return snap
}

// left is until when a reading may show an address that is given back, or was with its ENI, as if nothing had happened; zero
// for one that stays.
func (p *Pool) left(a *address) time.Time {
	if a.eni == nil {
		if len(p.buried) == 0 {
			return time.Time{}
		}
		return p.buried[a.addr.String()]
	}
	at := later(a.leaving, a.eni.leaving)
	if a.eni.State == Detaching {
		at = later(at, a.eni.changed)
	}
	if at.IsZero() {
		return at
	}
	return at.Add(4 * settle)
}

// entomb adds the addresses that were given back and of which nothing else is known; it tells whether there are any.
func (p *Pool) entomb(snap *Snapshot) bool {
	found := false
	for name, until := range p.buried {
		if addr, err := netip.ParseAddr(name); err == nil && p.addrs[addr] == nil {
			snap.Cooling = append(snap.Cooling, Cooling{Addr: addr, Until: until})
			found = true
		}
	}
	return found
}

// Restore takes the state of an earlier life, before anything else is folded in. Assignments of another boot are gone with
// their sandboxes; their annotations are still cleared. Records follow the present settings: see rewish.
func (p *Pool) Restore(snap Snapshot, now time.Time) {
	p.restoreCooling(snap, now)
	if snap.BootID == p.set.BootID {
		p.restoreAssignments(snap, now)
	}
	p.restoreEmptied(snap.Emptied, now)
	for _, saved := range slices.SortedFunc(slices.Values(snap.Annotations), func(a, b Annotation) int { return compareRecords(&a, &b) }) {
		rec := saved.clone()
		if old := p.records[rec.Owner]; old != nil || !rec.Addr.IsValid() {
			continue
		}
		p.records[rec.Owner] = &rec
		p.byAddr[rec.Addr] = append(p.byAddr[rec.Addr], rec.Owner)
		p.rewish(&rec, now)
	}
	for _, a := range p.holdings() {
		if a.holder.Done && p.records[a.holder.owner()] == nil && p.set.Annotate {
			p.announce(a.holder, a.holder.Since) // backfill: the pod began while the knob was off; its age tells that it is no news
		}
	}
	p.revision++
}

func (p *Pool) restoreCooling(snap Snapshot, now time.Time) {
	// In the order of release, so that a pod's last address is the one that is remembered.
	byEnd := func(a, b Cooling) int { return a.Until.Compare(b.Until) }
	for _, c := range slices.SortedStableFunc(slices.Values(snap.Cooling), byEnd) {
		if !c.Addr.IsValid() {
			continue
		}
		a := p.at(c.Addr)
		a.last = c.Pod
		if c.Until.Equal(untilSeenGone) {
			a.occupied = snap.BootID == p.set.BootID // until the kernel is seen without its pod
			continue
		}
		// A clock that was set back must not make a cooldown last for days, nor one that will be: counted from now.
		a.until = now.Add(min(c.Until.Sub(now), max(p.set.Cooldown, interruptedRest)))
		if c.Pod.UID != "" {
			p.previous[c.Pod.UID] = c.Addr
		}
	}
	if snap.BootID != p.set.BootID {
		for _, saved := range snap.Assignments {
			a := p.at(saved.Addr)
			a.last, a.until = saved.Pod, now // no sandbox is left that could use it; the same pod may have it again
			if saved.Pod.UID != "" {
				p.previous[saved.Pod.UID] = saved.Addr
			}
		}
	}
}

func (p *Pool) restoreAssignments(snap Snapshot, now time.Time) {
	// In the order of arrival, so that rivals are known as older and newer; those without a number are of an earlier release.
	byAge := func(a, b Assignment) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.Since.Compare(b.Since)) }
	for _, saved := range slices.SortedStableFunc(slices.Values(snap.Assignments), byAge) {
		p.seq = max(p.seq+1, saved.Seq)
		saved.Seq = p.seq
		if !saved.Addr.IsValid() || p.held[saved.Key] != nil {
			continue
		}
		a := p.at(saved.Addr)
		if a.holder != nil {
			continue
		}
		a.holder = &holding{Assignment: saved, unproven: !saved.Done}
		if saved.Done {
			a.holder.done = now
		}
		a.last, a.until = Pod{}, time.Time{}
		p.held[saved.Key] = a
		p.enter(a.holder)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
