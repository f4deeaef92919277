package compare_test

import (
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

const (
	restarts = 7
	// tryEvery is how soon the runtime tries a refused ADD again: often against what is measured, seldom enough to leave the
	// starting daemon the processors.
	tryEvery = 10 * time.Millisecond
	// restsAfter lets a start's work come to its end.
	restsAfter = 2 * time.Second
)

// BenchmarkStart restarts the daemons in turns, on nodes that hold addresses, and takes the time until a pod has its network.
func BenchmarkStart(b *testing.B) {
	record := figures.Record(b, "start")
	w := boot(b, shape{pairs: 1, instanceType: "m5.4xlarge", quick: true})
	w.start()
	pause(b, settle)
	for block := range restarts {
		for _, n := range w.pairs[0].inTurn(block) {
			check(b, n.Stop())
			pods := n.make(1)
			quiet(b)
			began := time.Now()
			check(b, n.Launch())
			for n.add(b.Context(), pods[0]).err != nil {
				pause(b, tryEvery)
				if time.Since(began) > startTimeout {
					b.Fatalf("%s: no ADD within %s of the daemon's start", n.machine, startTimeout)
				}
			}
			record.Times(figures.By(n.side, figures.Restart), block, time.Since(began))
			n.each((*node).del, pods)
			n.remove(pods)
			pause(b, restsAfter)
		}
	}
}
