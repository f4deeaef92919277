package reconcile_test

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// One seed is one run, whatever Go's scheduler does, by one law: at one instant of virtual time one cause is at work. Time
// stands still until all goroutines of the bubble wait, so that what a cause leads to has happened before the next one.
// Everything that waits in the simulated world therefore waits for a turn of the agenda, which gives one turn an instant, in
// an order that does not depend on who asked first. From that follows what each part must do:
//
//   - Who was woken by somebody else (an answer of the daemon, say, of which one save may give several) takes a turn before it
//     touches the world.
//   - Who calls the daemon takes a turn before (see ask), and so does who kills it: else the loop would find two things ready
//     at once and choose one by chance.
//   - Notices (the kernel's to the daemon, a record to the annotator) are given in turns of their own (see once).
//   - The daemon's timer is on the agenda too. Deadlines are not: they are whole seconds away from the turn in which they
//     began, and so can fall on no turn, and on no other deadline.
//
// Simulations can be shaken: goroutines are then held up by chance wherever they pass. TestSimulationRepeats does that.

// grid is the distance of two turns: a prime, so that no number of whole seconds below a thousand leads from one to another.
const grid = 1009 * time.Nanosecond

// agenda gives turns, the earlier ones first; those that are due at once go by name, one after the other.
type agenda struct {
	shaken bool

	mu      sync.Mutex
	list    turns
	timer   *time.Timer
	last    time.Duration // the last turn's instant
	count   uint64
	pending map[string]bool // notices that are due
}

// turn is one entry of the agenda. Entries of one name and one instant go in the order of their making: one goroutine must
// have made them.
type turn struct {
	at    time.Duration
	name  string
	no    uint64
	do    func() // must not wait
	index int    // in the heap; -1 when it is over
}

// newAgenda makes an agenda in the bubble of the caller.
func newAgenda() *agenda {
	a := &agenda{pending: map[string]bool{}}
	a.timer = time.AfterFunc(24*time.Hour, a.serve)
	return a
}

// now is the virtual time since the bubble began.
func now() time.Duration { return time.Since(epoch()) }

// enter puts something on the agenda: at a moment, or in the next turn if that is over.
func (a *agenda) enter(at time.Duration, name string, do func()) *turn {
	a.shake()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.add(at, name, do)
}

func (a *agenda) add(at time.Duration, name string, do func()) *turn {
	at = max(at, now()+1)
	a.count++
	t := &turn{at: (at + grid - 1) / grid * grid, name: name, no: a.count, do: do}
	heap.Push(&a.list, t)
	if a.list[0] == t {
		a.arm()
	}
	return t
}

// leave takes something off the agenda, if it is still there.
func (a *agenda) leave(t *turn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t != nil && t.index >= 0 {
		heap.Remove(&a.list, t.index)
	}
}

// once gives a notice in the next turn. A notice that is due already covers it.
func (a *agenda) once(name string, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending[name] {
		return
	}
	a.pending[name] = true
	a.add(0, name, func() {
		a.mu.Lock()
		delete(a.pending, name)
		a.mu.Unlock()
		do()
	})
}

// arm sets the timer for the first turn. The caller holds the lock.
func (a *agenda) arm() {
	if len(a.list) > 0 {
		a.timer.Reset(max(a.list[0].at, a.last+grid) - now())
	}
}

// serve gives the one turn of this instant.
func (a *agenda) serve() {
	a.mu.Lock()
	var t *turn
	if at := now(); len(a.list) > 0 && a.list[0].at <= at && a.last < at {
		t, _ = heap.Pop(&a.list).(*turn)
		a.last = at
	}
	a.arm()
	a.mu.Unlock()
	if t != nil {
		t.do()
	}
}

// stop ends the agenda, on which nobody waits any more.
func (a *agenda) stop() { a.timer.Stop() }

// wait waits for a turn.
func (a *agenda) wait(ctx context.Context, at time.Duration, name string) error {
	_, err := a.waitOr(ctx, at, name, nil)
	return err
}

// waitOr waits for a turn or for something else, and tells whether it was the turn.
func (a *agenda) waitOr(ctx context.Context, at time.Duration, name string, other <-chan struct{}) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	due := make(chan struct{})
	t := a.enter(at, name, func() { close(due) })
	defer a.shake()
	select {
	case <-ctx.Done():
		a.leave(t)
		return false, ctx.Err()
	case <-other:
		a.leave(t)
		return false, nil
	case <-due:
		return true, nil
	}
}

// alarm is a timer of the daemon's: each call sets it anew. The second function ends it.
func (a *agenda) alarm(name string) (set func(time.Duration) <-chan time.Time, end func()) {
	var t *turn
	return func(d time.Duration) <-chan time.Time {
		a.leave(t)
		due := make(chan time.Time, 1)
		t = a.enter(now()+d, name, func() { due <- time.Now() })
		return due
	}, func() { a.leave(t) }
}

// shake holds a goroutine up for a while that nobody foresees.
func (a *agenda) shake() {
	if !a.shaken {
		return
	}
	switch rand.IntN(4) {
	case 0:
		runtime.Gosched()
	case 1:
		for range rand.IntN(5) {
			runtime.Gosched()
		}
	case 2:
		runtime.KeepAlive(spin(rand.IntN(40000)))
	}
}

func spin(rounds int) (x int) {
	for k := range rounds {
		x ^= k
	}
	return x
}

// turns is a heap: see container/heap.
type turns []*turn

func (l turns) Len() int { return len(l) }
func (l turns) Less(i, j int) bool {
	switch a, b := l[i], l[j]; {
	case a.at != b.at:
		return a.at < b.at
	case a.name != b.name:
		return a.name < b.name
	default:
		return a.no < b.no
	}
}
func (l turns) Swap(i, j int) { l[i], l[j] = l[j], l[i]; l[i].index, l[j].index = i, j }
func (l *turns) Push(x any) {
	t, _ := x.(*turn)
	t.index = len(*l)
	*l = append(*l, t)
}
func (l *turns) Pop() any {
	t := (*l)[len(*l)-1]
	*l, t.index = (*l)[:len(*l)-1], -1
	return t
}

// period is how far a difference in the order of effects reaches: after it, equal effects draw equal times again, so that
// a shortened list of operations still leads to the same trouble.
const period = 20 * time.Second

// longest is the longest that an effect takes, in nanoseconds, before and again after it is carried out.
var longest = map[string]int64{
	"cloud": 1_500_000_000, "host": 40_000_000, "save": 20_000_000, "annotate": 1000, "patch": 200_000_000,
}

// pause lets an effect take its own time: drawn from the seed, the effect's name and its number.
func (n *node) pause(ctx context.Context, name string) error {
	span := longest[name]
	if span == 0 {
		span = 300_000_000
	}
	return n.pauseUpTo(ctx, name, span)
}

func (n *node) pauseUpTo(ctx context.Context, name string, span int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return n.agenda.wait(ctx, n.slot(name, span), name)
}

// slot draws the moment, up to span nanoseconds from now, at which a pause ends.
func (n *node) slot(name string, span int64) time.Duration {
	at := now()
	n.mu.Lock()
	defer n.mu.Unlock()
	id := fmt.Sprintf("%s/%d", name, at/period)
	n.counts[id]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", n.seed, id, n.counts[id])
	return at + 1 + time.Duration(h.Sum64()%uint64(span))
}

// turn waits for the next turn: from there on nobody else is at work.
func (n *node) turn(name string) { _ = n.agenda.wait(context.Background(), 0, name) }

// ask calls the daemon. The caller waits for nothing else under that name.
func (n *node) ask(name string, call func()) {
	n.turn(name)
	call()
	n.agenda.shake()
	n.turn(name)
}

// after does something later, unless the run is over by then.
func (n *node) after(d time.Duration, f func()) {
	due := make(chan struct{})
	n.agenda.enter(now()+d, "after", func() { close(due) })
	n.all.Go(func() {
		<-due
		if !n.over {
			f()
		}
	})
}
