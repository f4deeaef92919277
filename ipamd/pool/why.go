package pool

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Why says in one sentence why no address can be given out at this moment, and what would have to happen.
func (p *Pool) Why(now time.Time) string {
	switch {
	case !p.observed:
		return "no free address: EC2 has not been read yet" + p.first(now, "Observe")
	case !p.hostSeen:
		return "no free address: the kernel's state has not been confirmed yet"
	}
	t := p.tally(now)
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(t.InUse+t.Occupied, "in use")
	add(t.Cooling, "cooling down")
	add(t.Clearing, "still named by an annotation")
	add(t.Coming, "not yet confirmed by the kernel")
	text := fmt.Sprintf("no free address among %d", t.Total)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text + "; " + p.whyNoGrowth(now)
}

// whyNoGrowth says why there are no more addresses.
func (p *Pool) whyNoGrowth(now time.Time) string {
	t := p.tally(now)
	waits := p.waits(now)
	switch {
	case p.unsure != "":
		return "EC2 must be read first: " + p.unsure + p.first(now, "Observe")
	case p.perENI() == 0:
		return "the limits of instance type " + p.instance.Type + " are not known"
	case len(waits) > 0:
		return strings.Join(waits, "; ")
	case p.set.fixed() && t.Total >= p.set.MinimumIP:
		return fmt.Sprintf("MINIMUM_IP_TARGET=%d without WARM_IP_TARGET makes a pool of fixed size", p.set.MinimumIP)
	case t.Coming > 0:
		return "waiting for the kernel to confirm new addresses"
	case p.room(now) == 0 && t.ENIs >= p.maxENIs(now):
		return fmt.Sprintf("all %d ENIs that are allowed (instance type %s, MAX_ENI) are full", p.maxENIs(now), p.instance.Type)
	case slices.ContainsFunc(p.order, func(e *eni) bool { return e.overdue(now) }):
		return "the link of an attached ENI has not appeared"
	}
	return "more are being requested from EC2"
}

// room counts the addresses that attached ENIs could still take.
func (p *Pool) room(now time.Time) int {
	n := 0
	for _, e := range p.order {
		if e.managed() && e.attached() && !e.overdue(now) {
			n += max(0, p.perENI()-e.places())
		}
	}
	return n
}

// waits lists what must not be tried yet.
func (p *Pool) waits(now time.Time) []string {
	var list []string
	for _, key := range slices.SortedFunc(maps.Keys(p.blocks), compareBlocks) {
		if b := p.blocks[key]; b.until.After(now) {
			list = append(list, fmt.Sprintf("%s (next try in %s)", b.why, b.until.Sub(now).Round(100*time.Millisecond)))
		}
	}
	return list
}

// first gives the reason of a block, as an appendix.
func (p *Pool) first(now time.Time, what string) string {
	if b, ok := p.blocked(now, what, ""); ok {
		return " (" + b.why + ")"
	}
	return ""
}

func compareBlocks(a, b blockKey) int {
	return strings.Compare(a.what+"\x00"+a.target, b.what+"\x00"+b.target)
}

// NextWake gives the next moment at which time alone changes what Plan or Assign would say.
func (p *Pool) NextWake(now time.Time) (time.Time, bool) {
	var next time.Time
	at := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, b := range p.blocks {
		at(b.until)
	}
	for _, a := range p.inOrder() {
		if a.holder == nil && !a.until.IsZero() {
			at(a.until)
		}
	}
	for _, rec := range p.records {
		if rec.Wish != WishPresent {
			at(rec.Since.Add(clearPatience))
		}
	}
	for _, e := range p.order {
		if !e.absent.IsZero() {
			at(e.absent.Add(linkPatience))
		}
	}
	for _, d := range p.departed {
		at(d.next)
	}
	if !p.surplus.since.IsZero() {
		at(p.surplus.since.Add(p.set.SurplusAge))
	}
	return next, !next.IsZero()
}
