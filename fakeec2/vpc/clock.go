package vpc

import (
	"container/heap"
	"time"
)

// step is a transition that takes time.
type step int

const (
	stepAttached   step = iota // attaching -> attached
	stepLink                   // the guest's link appears
	stepDetached               // detaching -> gone
	stepTerminated             // shutting-down -> terminated
	stepForgotten              // terminated -> no longer described
	stepRunning                // pending -> running
	stepRenamed                // the guest's link has the image's name
)

// timer is a step that is due. It names what it was made for and does nothing once that is gone or has moved on.
type timer struct {
	at   time.Time
	no   uint64 // order of making: breaks ties
	step step
	id   string // of the attachment or instance
}

type timers []timer

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool {
	if t[i].at.Equal(t[j].at) {
		return t[i].no < t[j].no
	}
	return t[i].at.Before(t[j].at)
}

func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}

// Advance carries out every transition that is due at now, in order. Every operation that takes a time does so too.
func (v *VPC) Advance(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.advance(now)
}

// Next says when the earliest transition is due; false when nothing is on its way. Whoever drives the model calls Advance
// then, and asks again after every operation (or after Changed).
func (v *VPC) Next() (time.Time, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.due) > 0 {
		if v.pending(v.due[0]) {
			return v.due[0].at, true
		}
		heap.Pop(&v.due)
	}
	return time.Time{}, false
}

// advance never goes back in time: with an earlier now it only carries out what is due already.
func (v *VPC) advance(now time.Time) {
	for len(v.due) > 0 && !v.due[0].at.After(now) {
		t := heap.Pop(&v.due).(timer)
		if !v.pending(t) {
			continue
		}
		if t.at.After(v.now) {
			v.now = t.at // events carry the moment of the transition, not of the call
		}
		v.fire(t)
	}
	if now.After(v.now) {
		v.now = now
	}
}

func (v *VPC) schedule(after time.Duration, s step, id string) {
	if after == Never {
		return
	}
	v.timerNo++
	heap.Push(&v.due, timer{at: v.now.Add(after), no: v.timerNo, step: s, id: id})
}

// pending tells whether a timer still has something to do.
func (v *VPC) pending(t timer) bool {
	switch i := v.instances[t.id]; t.step {
	case stepTerminated:
		return i != nil && i.State == ShuttingDown
	case stepForgotten:
		return i != nil && i.State == Terminated
	case stepRunning:
		return i != nil && i.State == Pending
	}
	e := v.enis[v.attachments[t.id]]
	if e == nil {
		return false
	}
	switch t.step {
	case stepAttached:
		return e.Attachment.Status == Attaching
	case stepLink:
		return !e.Attachment.Link && e.Attachment.Status != Detaching && v.instances[e.Attachment.InstanceID].State == Running
	case stepRenamed:
		return e.Attachment.Link && !e.Attachment.Named && e.Attachment.Status != Detaching
	default:
		return e.Attachment.Status == Detaching
	}
}

func (v *VPC) fire(t timer) {
	switch t.step {
	case stepAttached:
		v.becomeAttached(t.id)
	case stepLink:
		v.showLink(t.id)
	case stepRenamed:
		v.renameLink(t.id)
	case stepDetached:
		v.becomeDetached(t.id)
	case stepTerminated:
		v.becomeTerminated(t.id)
	case stepRunning:
		v.becomeRunning(t.id)
	case stepForgotten:
		delete(v.instances, t.id)
		v.emit(Event{Kind: InstanceForgotten, Instance: t.id})
	}
}
