package annotate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// holdLimit is how long passes wait for the watch to have seen all pods: with it, a pod that is as it should be costs no
// request. A server that does not let us watch must not keep us from writing.
const holdLimit = 5 * time.Second

const (
	// repairLimit is the longest that a value which somebody else keeps changing is left as it is.
	repairLimit = 5 * time.Minute
	// repairMemory is how long a repair counts against the next.
	repairMemory = 10 * time.Minute
	// contestedAt is how many repairs in a row are no accident any more.
	contestedAt = 3
)

// Changed takes news of the watch: a pod as it was (nil: it is new) and as it is (nil: it was deleted). It never blocks.
func (w *Writer) Changed(was, is *corev1.Pod) {
	if was != nil && (is == nil || was.UID != is.UID) { // the latter: the deletion between was not seen
		w.deleted(was)
	}
	if is != nil {
		w.seen(is)
	}
}

// deleted notes that an API object is gone for good: its UID does not come back. Only a static pod's mirror may be made anew.
func (w *Writer) deleted(object *corev1.Pod) {
	w.about(object, func(_ *pod, e *entry) {
		switch uid := string(object.UID); {
		case staticUID(e.record.Pod.UID):
			if e.uid == uid {
				e.uid = ""
			}
		case e.record.Pod.UID == uid || e.uid == uid:
			e.gone = true
			if !e.resting() {
				e.due, e.held = w.now(), false
			}
		}
	})
}

// seen compares news of a pod with what is wanted of it.
func (w *Writer) seen(object *corev1.Pod) {
	w.about(object, func(p *pod, e *entry) {
		if !isPodOf(e.record, e.uid, object) || version(object) < p.floor {
			return
		}
		right := shows(object, w.wanted(e.record, e.record.Keys))
		if right && w.countsAsNew(e) {
			e.visible = true
			w.metrics.Visible(w.now().Sub(e.record.Since))
		}
		switch {
		case e.unblockedBy(object):
			e.due, e.blocked = w.now(), ""
		case !right && e.restsAsWritten() && !finished(object):
			w.repair(e)
		}
	})
}

// countsAsNew tells a value that was first written in this life, and that the watch has not shown yet: only that says how long
// readers wait.
func (w *Writer) countsAsNew(e *entry) bool {
	return e.fresh && !e.visible && e.record.Wish == pool.WishPresent && !e.record.Since.Before(w.started)
}

// about calls f for each record of the object's name, with the lock held, and looks when the pod is due then.
func (w *Writer) about(object *corev1.Pod, f func(*pod, *entry)) {
	name := podName{object.Namespace, object.Name}
	w.mu.Lock()
	p := w.known[name]
	if p != nil {
		for _, e := range p.ordered() {
			f(p, e)
		}
		if version(object) >= p.floor {
			p.floor = 0
		}
	}
	w.mu.Unlock()
	if p != nil {
		w.again(name)
	}
}

// reachPatience is how long the watch may take to show what an answer has shown. It takes milliseconds.
const reachPatience = 10 * time.Minute

// raise notes the resource version of an answer. The pod is remembered until the watch has reached it, whatever becomes of its
// records: the next sandbox of the pod must not believe what the watch still shows.
func (w *Writer) raise(p *pod, of pool.Pod, newest uint64) {
	if newest <= p.floor || w.pods == (noPods{}) {
		return
	}
	p.floor, p.reach = newest, w.now().Add(reachPatience)
	if shown := w.pods.Pod(of.Namespace, of.Name); shown != nil && version(shown) >= newest {
		p.floor = 0 // the watch was faster than the answer
	}
}

// reached tells whether the watch has nothing left to catch up with.
func (p *pod) reached(now time.Time) bool { return p.floor == 0 || !p.reach.After(now) }

// unblockedBy tells whether what a record waited for is there now.
func (e *entry) unblockedBy(object *corev1.Pod) bool {
	switch e.blocked {
	case reasonMirror:
		return true
	case reasonNoStatus:
		return notYet(object) == nil
	}
	return false
}

// restsAsWritten tells a record whose value was written and is not being worked on, nor a later sandbox's business.
func (e *entry) restsAsWritten() bool {
	return e.record.Wish == pool.WishPresent && e.resting() && e.answered && !e.outlived
}

// finished tells a pod whose containers have ended for good: nobody needs its address, and its DEL comes.
func finished(object *corev1.Pod) bool {
	return object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
}

// repair lets a value that somebody else has changed be written again: at once, and ever more slowly should it be changed
// again and again.
func (w *Writer) repair(e *entry) {
	now := w.now()
	if now.Sub(e.repaired) > repairMemory {
		e.repairs = 0
	}
	e.due = w.nextInPass(now)
	if e.repairs > 0 {
		e.due = later(e.due, now.Add(min(time.Second<<min(e.repairs, 10), repairLimit)))
	}
	e.drifted, e.repaired = true, now
	if e.repairs++; e.repairs >= contestedAt {
		w.report.trouble(e.record, reply{class: refused, reason: reasonContested}, e.repairs)
	}
}

// awaitWatch begins the passes that wait for the watch.
func (w *Writer) awaitWatch(ctx context.Context) {
	limit := time.NewTimer(holdLimit)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return
	case <-w.pods.Synced():
	case <-limit.C:
	}
	for _, name := range w.release() {
		w.again(name)
	}
}

// release spreads what was held back, in the order of its submission, and gives the pods.
func (w *Writer) release() []podName {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = false
	now := w.now()
	var names []podName
	for _, h := range w.heldBack() {
		h.entry.held, h.entry.due = false, now
		if !h.entry.fresh { // else the last daemon ended before it could write
			h.entry.due = w.nextInPass(now)
		}
		names = append(names, h.name)
	}
	return names
}
