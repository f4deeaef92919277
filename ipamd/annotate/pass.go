package annotate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// A pass is a visit to many pods that nobody waits for: all of them at the daemon's start, which is when the knob, the keys or
// their form may have changed. Each is visited once, at a bounded rate, after what is fresh; who is as wished costs no request.
// What a visit leaves unfinished is tried again like everything else.

const (
	// overdueAfter is how old a clear is when the pool no longer holds its address back for it (contract: ten minutes).
	overdueAfter = 10 * time.Minute
	// overdueEvery is the pace of looking for such.
	overdueEvery = time.Minute
)

// Progress is how far the present pass is, or the last one was when it ended.
type Progress struct {
	Total, Visited int
	Began          time.Time `json:",omitzero"`
	Ended          time.Time `json:",omitzero"`
}

// Progress tells how far the pass over the node's pods is.
func (w *Writer) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress
}

// nextInPass gives the time at which one more pod may be visited.
func (w *Writer) nextInPass(now time.Time) time.Time {
	return now.Add(w.pass.ReserveN(now, 1).DelayFrom(now))
}

// toVisit adds a record to the pass; the one that comes after a finished pass begins the next.
func (w *Writer) toVisit(e *entry, now time.Time) {
	if w.progress.Visited == w.progress.Total {
		w.progress = Progress{Began: now}
	}
	w.progress.Total++
	e.visit = true
}

// visited takes a record off the pass's list.
func (w *Writer) visited(e *entry) {
	if !e.visit {
		return
	}
	e.visit = false
	if w.progress.Visited++; w.progress.Visited == w.progress.Total {
		w.progress.Ended = w.now()
	}
}

// heldBack is a record that waits for the watch.
type heldBack struct {
	name  podName
	entry *entry
}

func (w *Writer) heldBack() []heldBack {
	var list []heldBack
	for name, p := range w.known {
		for _, e := range p.entries {
			if e.held {
				list = append(list, heldBack{name, e})
			}
		}
	}
	slices.SortFunc(list, func(a, b heldBack) int { return int(a.entry.order) - int(b.entry.order) })
	return list
}

// Oldest gives the age of the oldest wish that is not answered yet, 0 if there is none.
func (w *Writer) Oldest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	var age time.Duration
	for _, p := range w.known {
		for _, e := range p.entries {
			if !e.resting() && !e.answered {
				age = max(age, now.Sub(e.entered))
			}
		}
	}
	return age
}

// Overdue counts the clears that are not done after ten minutes and gives the oldest of them: their addresses may be other
// pods' now.
func (w *Writer) Overdue() (count int, oldest pool.Annotation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for _, p := range w.known {
		for _, e := range p.entries {
			if e.record.Wish != pool.WishEmpty || e.resting() || now.Sub(e.record.Since) < overdueAfter {
				continue
			}
			if count++; count == 1 || e.record.Since.Before(oldest.Since) {
				oldest = e.record
			}
		}
	}
	return count, oldest
}

// lookForOverdue tells people of clears that are overdue.
func (w *Writer) lookForOverdue(ctx context.Context) {
	tick := time.NewTicker(overdueEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if count, oldest := w.Overdue(); count > 0 {
			w.report.overdue(count, oldest, fmt.Sprint(w.now().Sub(oldest.Since).Round(time.Minute)))
		}
	}
}
