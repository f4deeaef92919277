package compare_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// A node is cold only once, so each round has its own pair, three in a world.
const (
	coldWorlds = 2
	coldPairs  = 3
	// coldType has 8 ENIs of 30 addresses: 29 for pods on the first, 110 on four.
	coldType    = "m5.4xlarge"
	coldTimeout = 5 * time.Minute
)

// BenchmarkCold starts 110 pods at once on nodes that hold what a daemon at rest holds.
func BenchmarkCold(b *testing.B) {
	record := figures.Record(b, "cold")
	for world := range coldWorlds {
		if !b.Run("", func(b *testing.B) { cold(b, record, world*coldPairs) }) {
			b.FailNow()
		}
	}
}

func cold(b *testing.B, record *figures.Recorder, first int) {
	w := boot(b, shape{pairs: coldPairs, first: first, instanceType: coldType})
	for i, p := range w.pairs {
		for _, n := range p.inTurn(i) {
			n.start()
			pause(b, settle)
			quiet(b)
			mark := w.mark()
			took, failed := n.burst(figures.Parallel)
			record.Times(figures.By(n.side, figures.ColdAll), first+i, took)
			record.Add(figures.By(n.side, figures.ColdFailed), first+i, float64(failed))
			recordCalls(record, figures.ColdBurst, n, first+i, w.calls(n, mark))
			check(b, n.Stop()) // what its pool does from now on is nobody's
		}
	}
}

// burst starts pods at once, each as kubelet does: what failed is taken back, and tried again with a new sandbox after a pause.
func (n *node) burst(count int) (took time.Duration, failed int) {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(n.tb.Context(), coldTimeout)
	defer cancel()
	pods := n.make(count)
	errs, failures := make([]error, count), make([]int, count)
	var done sync.WaitGroup
	began := time.Now()
	for i := range pods {
		done.Go(func() {
			var c call
			c, failures[i] = n.insist(ctx, &pods[i])
			errs[i] = c.err
		})
	}
	done.Wait()
	took = time.Since(began)
	check(n.tb, errors.Join(errs...))
	for _, f := range failures {
		failed += f
	}
	return took, failed
}

// The pauses of e2e/sandbox, which is kinder than kubelet: that waits for about ten seconds from the first time on.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

// insist adds a pod until that succeeds, and says how often it did not.
func (n *node) insist(ctx context.Context, p *pod) (c call, failed int) {
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		c = n.add(ctx, *p)
		if c.err == nil {
			return c, failed
		}
		failed++
		if err := n.del(ctx, *p).err; err != nil {
			c.err = errors.Join(c.err, err)
			return c, failed
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			c.err = errors.Join(ctx.Err(), c.err)
			return c, failed
		}
		p.id = n.id()
	}
}
