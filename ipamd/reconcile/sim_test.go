package reconcile_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// outcome is what became of one seed.
type outcome struct {
	seed   uint64
	ops    []op
	trace  []string
	faults []breach
	cover  map[string]int
}

// hash names the trace.
func (o outcome) hash() string {
	h := sha256.New()
	for _, l := range o.trace {
		fmt.Fprintln(h, l)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// task is what is simulated: a seed's operations. With a limit it ends then, and does not wait for everything to come to rest.
type task struct {
	seed   uint64
	ops    []op
	limit  time.Duration
	shaken bool // see sim_time_test.go
}

// whole is a seed's task as it is.
func whole(seed uint64) task { return task{seed: seed, ops: plan(seed)} }

// simulate runs operations of a seed against the loop and the pool, in virtual time, until a law is broken or all is over.
func simulate(t *testing.T, do task) outcome {
	out := outcome{seed: do.seed, ops: do.ops}
	synctest.Test(t, func(*testing.T) {
		n := newNode(do.seed)
		n.agenda.shaken = do.shaken || os.Getenv("SIM_SHAKE") != ""
		ctx, cancel := context.WithCancel(context.Background())
		n.all.Go(func() { n.cloud.drive(ctx, n.agenda, n.host) })
		n.start()
		if end := cmp.Or(do.limit, hour); n.run(do.ops, end) && do.limit == 0 {
			n.quiet()
		}
		n.over = true
		n.life.cancel()
		cancel()
		n.all.Wait()
		n.agenda.stop()
		out.trace, out.faults, out.cover = canonical(n.log), n.faults, n.cover
	})
	return out
}

// run carries the operations out, each at its time, and checks the laws after each and once a minute between.
func (n *node) run(ops []op, end time.Duration) bool {
	do := map[string]func(*node, op, *rand.Rand){}
	for _, k := range kinds() {
		do[k.name] = k.do
	}
	until := func(at time.Duration) bool {
		for {
			next := min(at, now().Truncate(time.Minute)+time.Minute)
			n.wait(next)
			if n.check() {
				return false
			}
			if next >= at {
				return true
			}
		}
	}
	for _, o := range ops {
		if o.At > end {
			break
		}
		if !until(o.At) {
			return false
		}
		n.covered("op " + o.Kind)
		do[o.Kind](n, o, o.rng())
	}
	return until(end)
}

// wait lets the driver wait for a turn at that time.
func (n *node) wait(at time.Duration) { _ = n.agenda.wait(context.Background(), at, driver) }

// driver is the name of the goroutine that carries out operations and checks laws.
const driver = "driver"

// canonical is the trace's one form: lines in the order of virtual time, those of one nanosecond in the order of their text.
// At one instant one cause is at work, so that its lines belong together (a crash that ends three effects, say) and have no
// order among themselves that would mean anything.
func canonical(log []line) []string {
	slices.SortStableFunc(log, func(a, b line) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text)) })
	out := make([]string, len(log))
	for i, l := range log {
		out[i] = fmt.Sprintf("%16s  %s", l.at, strings.ReplaceAll(l.text, "\n", " "))
	}
	return out
}
