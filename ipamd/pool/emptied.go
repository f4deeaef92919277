package pool

import (
	"cmp"
	"slices"
	"time"
)

const (
	// emptiedMemory is how long it is remembered which keys of a pod were set to "". Its next sandbox follows within minutes,
	// unless the node was switched off in between.
	emptiedMemory = 24 * time.Hour
	// emptiedLimit is of how many pods: more than twice kubelet's default maximum (110). The oldest go first.
	emptiedLimit = 256
)

// Emptied says which keys of a pod were set to "" when a sandbox of it ended. Should the pod get another one, under other keys
// or with the knob off, these keys must go: "" would tell readers for ever that the network of a pod that runs is gone.
type Emptied struct {
	Pod   Pod
	Keys  []string
	Since time.Time
}

// remember notes that keys of a pod were emptied. A pod without a UID is not remembered: a name may be another pod's.
func (p *Pool) remember(rec *Annotation, keys []string) {
	if rec.Pod.UID == "" {
		return
	}
	was := p.emptied[rec.Pod]
	p.emptied[rec.Pod] = Emptied{Pod: rec.Pod, Keys: union(was.Keys, keys), Since: later(was.Since, rec.Since)}
	if list := p.sortedEmptied(); len(list) > emptiedLimit {
		delete(p.emptied, list[0].Pod)
	}
}

// ended takes that a clear is done. Its pod may have another sandbox by now.
func (p *Pool) ended(rec *Annotation, keys []string, verdict Verdict) {
	if rec.Wish != WishEmpty || verdict != VerdictDone {
		return
	}
	p.remember(rec, keys)
	for _, h := range p.holdings() {
		if samePod(h.holder.Pod, rec.Pod) {
			p.unempty(h.holder, rec.Since)
		}
	}
}

// mayBeEmpty gives the record's keys that a clear may have emptied.
func (rec *Annotation) mayBeEmpty() []string {
	if rec.Wish == WishEmpty {
		return union(union(rec.Emptied, rec.Keys), rec.Stale)
	}
	return rec.Emptied
}

// revive gives the keys of a pod's earlier sandboxes that were emptied, and forgets them: a record must take them over.
func (p *Pool) revive(pod Pod, now time.Time) []string {
	keys := p.emptied[pod].Keys
	delete(p.emptied, pod)
	for other, e := range p.emptied {
		if e.Since.Add(emptiedMemory).Before(now) {
			delete(p.emptied, other)
		}
	}
	return keys
}

// unempty lets the record of a sandbox take its pod's emptied keys over, so that they are removed.
func (p *Pool) unempty(h *holding, now time.Time) {
	keys := p.revive(h.Pod, now)
	if p.set.Annotate {
		keys = without(keys, p.set.Keys)
	}
	if len(keys) == 0 {
		return
	}
	rec := p.records[h.owner()]
	if rec == nil {
		rec = &Annotation{Owner: h.owner(), Wish: WishAbsent, Since: now}
	}
	if rec.Wish == WishPresent {
		rec.Stale = without(union(rec.Stale, keys), rec.Keys)
	} else {
		rec.Keys = union(rec.Keys, keys)
	}
	rec.Emptied = union(rec.Emptied, keys)
	p.put(rec)
}

// sortedEmptied gives what is remembered, oldest first.
func (p *Pool) sortedEmptied() []Emptied {
	var list []Emptied
	for _, e := range p.emptied {
		e.Keys = slices.Clone(e.Keys)
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Emptied) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod.UID, b.Pod.UID), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return list
}

// restoreEmptied takes what an earlier life remembered, as far as it is not too old. A clock that was set back makes nothing
// young for longer than from now on.
func (p *Pool) restoreEmptied(list []Emptied, now time.Time) {
	for _, e := range list {
		if e.Pod.UID == "" || len(e.Keys) == 0 || e.Since.Add(emptiedMemory).Before(now) {
			continue
		}
		if e.Since.After(now) {
			e.Since = now
		}
		e.Keys = slices.Clone(e.Keys)
		p.emptied[e.Pod] = e
	}
}
