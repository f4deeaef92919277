package annotate

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// podName is the unit of order: at most one request is in flight for each, whatever sandboxes and UIDs share the name.
type podName struct {
	namespace, name string
}

func nameOf(record pool.Annotation) podName {
	return podName{record.Pod.Namespace, record.Pod.Name}
}

// pod is what is known of one pod name.
type pod struct {
	entries map[pool.Owner]*entry
	doubts  []doubt
	floor   uint64             // resource version of the newest answer that the watch has not reached; what it shows of older ones is out of date
	reach   time.Time          // when it is not waited for any more
	sets    map[netip.Addr]int // how many sets of an address may have been carried out
}

func newPod() *pod {
	return &pod{entries: map[pool.Owner]*entry{}, sets: map[netip.Addr]int{}}
}

// drop forgets an entry.
func (p *pod) drop(e *entry) {
	delete(p.entries, e.record.Owner)
	for owner := range p.entries {
		if owner.Addr == e.record.Addr {
			return
		}
	}
	for _, d := range p.doubts {
		if d.owner.Addr == e.record.Addr {
			return
		}
	}
	delete(p.sets, e.record.Addr)
}

// inherit forgets earlier sandboxes whose address a new one has. An address has one holder, so they are gone, and the pool
// may have dropped their records with no clear to come: the value is the new sandbox's now.
func (p *pod) inherit(heir *entry) {
	for owner, e := range p.entries {
		if e != heir && owner.Addr == heir.record.Addr && e.record.Wish == pool.WishPresent {
			delete(p.entries, owner)
		}
	}
}

// entry is the state of one owner's record. Records whose value is written stay, at rest: a later clear by an older sandbox
// must know them.
type entry struct {
	record   pool.Annotation
	version  uint64 // grows with every submission
	fresh    bool   // submitted when its wish was new
	order    uint64 // of the first submission
	uid      string // of the API object, once read
	written  bool   // the answer Done for Keys was given; only Stale is left
	answered bool   // the record is done; being looked at because of a doubt
	outlived bool   // a later sandbox of the pod is to be present
	failures int    // in a row
	due      time.Time
	turn     time.Time       // after a refusal: when it is due by its own pace
	hurried  bool            // was brought forward since its last turn
	refused  bool            // a clear that was answered as refused
	told     map[string]bool // reasons of Pending

	entered  time.Time // when the present wish came here
	blocked  string    // reason why no request was made: the watch shows when it ends
	gone     bool      // the watch has shown the API object's deletion
	visible  bool      // the watch has shown the value
	drifted  bool      // the watch has shown another value than the written one
	repairs  int       // how often it was written again, lately
	repaired time.Time
	held     bool // waits for the watch to begin
	visit    bool // not visited yet in the present pass
}

// resting tells whether nothing is to be done.
func (e *entry) resting() bool { return e.due.IsZero() }

// replace takes a newer record of the same owner.
func (e *entry) replace(record pool.Annotation, fresh bool, due time.Time) {
	if e.record.Wish != record.Wish || !e.record.Since.Equal(record.Since) {
		e.visible = false
	}
	e.record, e.fresh = record, fresh
	e.blocked, e.drifted = "", false
	e.version++
	e.written, e.answered = false, false
	e.failures = 0
	e.told = nil
	e.turn, e.hurried, e.refused = time.Time{}, false, false
	e.due = due
}

// sameWish tells whether a submission repeats what is being worked on.
func (e *entry) sameWish(record pool.Annotation) bool {
	return e.record.Wish == record.Wish && e.record.Since.Equal(record.Since) &&
		slices.Equal(e.record.Keys, record.Keys) && slices.Equal(e.record.Stale, record.Stale) && slices.Equal(e.record.Emptied, record.Emptied)
}

// newer tells whether e's sandbox came after o's.
func (e *entry) newer(o *entry) bool {
	if !e.record.Since.Equal(o.record.Since) {
		return e.record.Since.After(o.record.Since)
	}
	return e.order > o.order
}

// ordered gives the entries, those that write a value first: a starting pod waits for no clear.
func (p *pod) ordered() []*entry {
	return slices.SortedFunc(maps.Values(p.entries), func(a, b *entry) int {
		aSets, bSets := a.record.Wish == pool.WishPresent, b.record.Wish == pool.WishPresent
		switch {
		case aSets != bSets && aSets:
			return -1
		case aSets != bSets:
			return 1
		case a.order < b.order:
			return -1
		default:
			return 1
		}
	})
}

// next gives the entry to work on now, if any, and otherwise when to come again (zero: not).
func (p *pod) next(now time.Time) (*entry, time.Time) {
	var soonest time.Time
	for _, e := range p.ordered() {
		p.yield(e, now)
		switch {
		case e.resting():
		case !e.due.After(now):
			return e, time.Time{}
		case soonest.IsZero() || e.due.Before(soonest):
			soonest = e.due
		}
	}
	return nil, soonest
}

// yield puts a record that is to be present to rest while a later sandbox's is, too: the pod has one value, and it is the
// successor's. Should the successor go first, the value is written (again).
func (p *pod) yield(e *entry, now time.Time) {
	outlived := false
	for _, o := range p.entries {
		both := e.record.Wish == pool.WishPresent && o.record.Wish == pool.WishPresent
		outlived = outlived || both && o != e && o.newer(e)
	}
	switch {
	case outlived:
		e.due = time.Time{}
	case e.outlived && e.record.Wish == pool.WishPresent:
		e.answered, e.written = false, false
		e.due = now
	}
	e.outlived = outlived
}

// superseded tells whether a value that is to go is now a living sandbox's: one pod, two sandboxes, the same address again.
func (p *pod) superseded(e *entry) bool {
	if e.record.Wish == pool.WishPresent {
		return false
	}
	for _, o := range p.entries {
		if o != e && o.record.Wish == pool.WishPresent && o.record.Addr == e.record.Addr {
			return true
		}
	}
	return false
}

// task copies what a run needs.
func (p *pod) task(e *entry, now time.Time) task {
	t := task{
		record: e.record, version: e.version, uid: e.uid,
		written: e.written && !e.answered, look: e.answered && !e.drifted, superseded: p.superseded(e),
		floor: p.floor, gone: e.gone,
	}
	if p.expire(now); len(p.doubts) > 0 {
		t.doubted, t.look = true, e.answered
	}
	if t.uid == "" {
		t.uid = e.record.Pod.UID
	}
	if e.record.Wish != pool.WishPresent && e.failures > 0 {
		t.look = !p.doubtfulSet(e.record.Owner, now).IsZero()
	}
	return t
}
