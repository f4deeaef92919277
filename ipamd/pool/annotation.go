package pool

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// announce records that the sandbox's address is to be written on its pod, before anything can write it. With the knob off
// nothing is recorded.
func (p *Pool) announce(h *holding, now time.Time) {
	owner := h.owner()
	if !p.set.Annotate || len(p.set.Keys) == 0 {
		p.sparePod(h.Pod, now)
		p.unempty(h, now)
		return
	}
	rec := p.records[owner]
	var stale, emptied []string
	if rec == nil {
		rec = &Annotation{Owner: owner}
	} else {
		stale, emptied = union(rec.Keys, rec.Stale), rec.mayBeEmpty()
	}
	for _, other := range slices.Clone(p.byAddr[owner.Addr]) {
		// A clear of the pod's earlier sandbox would find its own uid and value, and wipe what the new sandbox writes: the new
		// record takes the ownership over.
		if other != owner && samePod(other.Pod, owner.Pod) && !p.live(other) {
			stale = append(stale, p.records[other].Keys...)
			stale = append(stale, p.records[other].Stale...)
			p.heirs[owner] = append(append(p.heirs[owner], p.heirs[other]...), other)
			emptied = append(emptied, p.records[other].mayBeEmpty()...)
			delete(p.heirs, other)
			p.forget(other)
		}
	}
	rec.Stale = without(stale, p.set.Keys)
	rec.Keys = slices.Clone(p.set.Keys)
	rec.Emptied = without(emptied, rec.Keys)
	rec.Wish, rec.Since = WishPresent, now
	p.put(rec)
	p.unempty(h, now)
}

// disown turns the record of a sandbox that has ended into a clear. A pod without a record gets none: what never had the
// key never gets "".
func (p *Pool) disown(h *holding, now time.Time) {
	if rec := p.records[h.owner()]; rec != nil {
		p.rewish(rec, now)
	}
	if p.runs(h.Pod) {
		return
	}
	// What was to be removed while a sandbox ran is to be emptied now: on a pod that is being deleted keys are not removed,
	// and its last DEL is the one to say that the network is gone.
	var spared []*Annotation
	for _, rec := range p.records {
		if rec.Wish == WishAbsent && samePod(rec.Pod, h.Pod) {
			spared = append(spared, rec)
		}
	}
	slices.SortFunc(spared, compareRecords)
	for _, rec := range spared {
		p.rewish(rec, now)
	}
}

// sparePod turns pending clears of the same pod's earlier sandboxes into removals: "" would tell readers that the network of
// a pod that runs again is gone.
func (p *Pool) sparePod(pod Pod, now time.Time) {
	for _, saved := range p.sortedRecords() {
		if rec := p.records[saved.Owner]; samePod(rec.Pod, pod) && rec.Wish == WishEmpty {
			p.rewish(rec, now)
		}
	}
}

// rewish sets what is wanted of a record by what is known of its sandbox.
func (p *Pool) rewish(rec *Annotation, now time.Time) {
	on := p.set.Annotate && len(p.set.Keys) > 0
	wish := WishEmpty
	switch {
	case p.live(rec.Owner) && on:
		wish = WishPresent
	case p.live(rec.Owner), !on && p.runs(rec.Pod):
		wish = WishAbsent
	}
	all := union(rec.Keys, rec.Stale)
	keys, stale := all, []string(nil)
	switch wish {
	case WishPresent:
		keys, stale = slices.Clone(p.set.Keys), without(all, p.set.Keys)
	case rec.Wish:
		keys, stale = rec.Keys, rec.Stale // what was refused stays so
	}
	switch wish {
	case WishPresent:
		rec.Emptied = without(rec.mayBeEmpty(), keys)
	case WishAbsent:
		rec.Emptied = rec.mayBeEmpty()
	}
	if wish != rec.Wish { // other keys are the same wish: a pass over running pods is no news
		rec.Since = now
	}
	rec.Wish, rec.Keys, rec.Stale = wish, keys, stale
	p.put(rec)
}

// Answer takes how a wish ended. An answer about an earlier wish says nothing about the present one. Done and Gone end a
// clear or removal; only Gone ends a write. A refusal ends none: see refused.
func (p *Pool) Answer(answer Answer) {
	rec := p.records[answer.Owner]
	if rec == nil || answer.Verdict == VerdictPending || answer.Wish != rec.Wish {
		return
	}
	keys := answer.Keys
	if len(keys) == 0 {
		keys = union(rec.Keys, rec.Stale)
	}
	switch {
	case answer.Verdict == VerdictRefused:
		p.refused(rec, keys)
	case rec.Wish != WishPresent:
		p.ended(rec, keys, answer.Verdict)
		rec.Keys, rec.Stale = without(rec.Keys, keys), without(rec.Stale, keys)
		if len(rec.Keys)+len(rec.Stale) == 0 {
			p.forget(rec.Owner)
		}
	case answer.Verdict == VerdictGone:
		p.forget(rec.Owner)
	default:
		rec.Stale = without(rec.Stale, keys)
	}
	p.revision++
}

// refused takes the API's refusal to clear or remove keys. For the address it is an answer: the keys hold it back no more.
// The record stays, because the value still stands on the pod and what the API refuses today (a role that was taken away, a
// policy) it may take tomorrow; the annotator says when it gives up. Keys that were refused are Stale until then.
func (p *Pool) refused(rec *Annotation, keys []string) {
	if rec.Wish == WishPresent || p.live(rec.Owner) {
		return // owned anyway: the sandbox's DEL tries again
	}
	left := without(rec.Keys, keys)
	rec.Stale = union(rec.Stale, without(rec.Keys, left))
	rec.Keys = left
}

// Submissions gives the records that changed since they were last asked for, oldest change first. They may be sent once the
// state that holds them is saved.
//
// A record that is to be present tells the annotator by itself that the pod's earlier sandboxes of the address are gone. One
// that has ended before it was ever sent does not (its save failed, and the ADD with it): then each record that it took over
// is given once more, to end as it does. Else the annotator would keep a value for a sandbox that nobody will ever clear.
func (p *Pool) Submissions() []Annotation {
	for _, owner := range p.handed { // and not put back: sent
		delete(p.heirs, owner)
	}
	p.handed = nil
	var list []Annotation
	for _, owner := range p.outbox {
		rec := p.records[owner]
		if rec == nil {
			continue
		}
		p.handed = append(p.handed, owner)
		if rec.Wish != WishPresent {
			for _, other := range p.heirs[owner] {
				ended := rec.clone()
				ended.Owner = other
				list = append(list, ended)
			}
		}
		list = append(list, rec.clone())
	}
	p.outbox = nil
	return list
}

// Resubmit puts records back that could not be sent.
func (p *Pool) Resubmit(records []Annotation) {
	p.handed = nil
	var again []Owner
	for _, rec := range records {
		if !slices.Contains(p.outbox, rec.Owner) {
			again = append(again, rec.Owner)
		}
	}
	p.outbox = append(again, p.outbox...)
}

// clearing tells whether an annotation may still name the address, and nobody has said yet that it stays so.
func (p *Pool) clearing(addr netip.Addr, now time.Time) bool {
	for _, owner := range p.byAddr[addr] {
		rec := p.records[owner]
		waits := rec.Wish != WishPresent && len(rec.Keys) > 0
		if waits && rec.Since.Add(clearPatience).After(now) && !p.live(owner) {
			return true
		}
	}
	return false
}

func (p *Pool) put(rec *Annotation) {
	if p.records[rec.Owner] == nil {
		p.records[rec.Owner] = rec
		p.byAddr[rec.Addr] = append(p.byAddr[rec.Addr], rec.Owner)
	}
	p.outbox = append(slices.DeleteFunc(p.outbox, func(o Owner) bool { return o == rec.Owner }), rec.Owner)
	p.revision++
}

func (p *Pool) forget(owner Owner) {
	delete(p.records, owner)
	left := slices.DeleteFunc(p.byAddr[owner.Addr], func(o Owner) bool { return o == owner })
	if len(left) == 0 {
		delete(p.byAddr, owner.Addr)
	} else {
		p.byAddr[owner.Addr] = left
	}
	p.revision++
}

// live tells whether the owner's sandbox still holds the address.
func (p *Pool) live(owner Owner) bool {
	a := p.addrs[owner.Addr]
	return a != nil && a.holder != nil && a.holder.owner() == owner
}

// runs tells whether any sandbox of the pod holds an address.
func (p *Pool) runs(pod Pod) bool {
	for _, a := range p.held {
		if samePod(a.holder.Pod, pod) {
			return true
		}
	}
	return false
}

func (h *holding) owner() Owner {
	return Owner{Pod: h.Pod, Sandbox: h.Key.Sandbox, Addr: h.Addr}
}

func (rec *Annotation) clone() Annotation {
	out := *rec
	out.More, out.Keys, out.Stale, out.Emptied = slices.Clone(rec.More), slices.Clone(rec.Keys), slices.Clone(rec.Stale), slices.Clone(rec.Emptied)
	return out
}

// samePod tells whether two names mean one API object. Without a UID the name is all there is.
func samePod(a, b Pod) bool { return a == b }

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// without gives the distinct elements of a that are not in b.
func without(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// sortedRecords gives copies of all records, oldest wish first.
func (p *Pool) sortedRecords() []Annotation {
	list := slices.Grow([]Annotation(nil), len(p.records))
	ordered := slices.SortedFunc(maps.Values(p.records), compareRecords)
	for _, rec := range ordered { // pointers are sorted: records are large
		list = append(list, rec.clone())
	}
	return list
}

func compareRecords(a, b *Annotation) int {
	if bySince := a.Since.Compare(b.Since); bySince != 0 { // nearly always: cmp.Or would compare everything
		return bySince
	}
	return cmp.Or(
		cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID),
		cmp.Compare(a.Sandbox, b.Sandbox), a.Addr.Compare(b.Addr),
	)
}
