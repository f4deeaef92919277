package compare_test

import (
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// Six nodes at once: calls do not depend on how busy the machine is, and waiting is all that costs time.
const (
	callPairs = 3
	// smallType has 4 ENIs of 15 addresses: 30 pods take three, and a free one is to be had.
	smallType = "m5.xlarge"
	// afterChange is how long a pool has to follow: both use an address again after 30 s, the incumbent lets an ENI of a minute's
	// age go and looks every 30 s.
	afterChange = 70 * time.Second
	afterRoll   = 30 * time.Second
)

// BenchmarkCalls counts EC2 calls while pods come, go and come again, and over a restart of the daemon.
func BenchmarkCalls(b *testing.B) {
	record := figures.Record(b, "calls")
	w := boot(b, shape{pairs: callPairs, instanceType: smallType})
	w.start()
	pause(b, afterRoll)
	mark := w.mark()
	pods := w.fill(figures.SomePods)
	pause(b, afterChange)
	w.empty(pods)
	pause(b, afterChange)
	w.fill(figures.SomePods)
	pause(b, afterChange)
	w.count(record, figures.ThereAndBack, mark)

	mark = w.mark()
	w.onAll(func(n *node) error { return n.Stop() })
	w.onAll(func(n *node) error { return n.Start(b.Context()) })
	pause(b, afterRoll)
	w.count(record, figures.Roll, mark)
}

// fill gives every node pods, all nodes at once and a node's pods one after the other, each tried until it succeeds.
func (w *world) fill(count int) map[*node][]pod {
	w.tb.Helper()
	all := map[*node][]pod{}
	for _, n := range w.all() {
		all[n] = n.make(count)
	}
	w.onAll(func(n *node) error {
		pods := all[n]
		for i := range pods {
			if c, _ := n.insist(w.tb.Context(), &pods[i]); c.err != nil {
				return c.err
			}
		}
		return nil
	})
	return all
}

// empty takes the pods away again.
func (w *world) empty(all map[*node][]pod) {
	w.tb.Helper()
	for n, pods := range all {
		n.each((*node).del, pods)
		n.remove(pods)
	}
}

// count records the calls of all nodes since a mark.
func (w *world) count(record *figures.Recorder, span string, mark uint64) {
	w.tb.Helper()
	for block, p := range w.pairs {
		for _, n := range p {
			counts := w.calls(n, mark)
			recordCalls(record, span, n, block, counts)
			w.tb.Logf("%s, %s: %v", span, n.machine, counts)
		}
	}
}
