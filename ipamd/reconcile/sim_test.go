package reconcile_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
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

// simulate runs operations of a seed against the loop and the pool, in virtual time, until a law is broken or all is over.
// With a limit it ends then, and does not wait for everything to come to rest.
func simulate(t *testing.T, seed uint64, ops []op, limit time.Duration) outcome {
	out := outcome{seed: seed, ops: ops}
	synctest.Test(t, func(*testing.T) {
		n := newNode(seed)
		ctx, cancel := context.WithCancel(context.Background())
		n.all.Go(func() { n.cloud.drive(ctx, n.host) })
		n.start()
		if end := cmp.Or(limit, hour); n.run(ops, end) && limit == 0 {
			n.quiet()
		}
		n.over = true
		n.life.cancel()
		cancel()
		n.all.Wait()
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
			now := time.Since(epoch())
			next := min(at, now.Truncate(time.Minute)+time.Minute)
			n.mu.Lock()
			next = n.free(next)
			n.mu.Unlock()
			pass(next - now)
			synctest.Wait()
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
		synctest.Wait()
	}
	return until(end)
}

// canonical is the trace's one form: lines in the order of virtual time, those of one nanosecond in the order of their text.
// Effects of the daemon all end at nanoseconds of their own, so that lines of one nanosecond belong to one cause (a crash
// that ends three ADDs, say) and have no order among themselves that would mean anything.
func canonical(log []line) []string {
	slices.SortStableFunc(log, func(a, b line) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text)) })
	out := make([]string, len(log))
	for i, l := range log {
		out[i] = fmt.Sprintf("%16s  %s", l.at, strings.ReplaceAll(l.text, "\n", " "))
	}
	return out
}
