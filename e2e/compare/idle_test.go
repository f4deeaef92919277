package compare_test

import (
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/proc"
)

const (
	idlePairs  = 3
	idleMinute = time.Minute
	looks      = 6
)

// BenchmarkIdle looks at daemons that have nothing to do, with pods on their nodes.
func BenchmarkIdle(b *testing.B) {
	record := figures.Record(b, "idle")
	w := boot(b, shape{pairs: idlePairs, instanceType: smallType, quick: true})
	w.start()
	w.fill(figures.SomePods)
	pause(b, settle)
	quiet(b)
	before := map[*node]time.Duration{}
	for _, n := range w.all() {
		before[n] = daemonCPU(n)
	}
	for look := range looks {
		pause(b, idleMinute/looks)
		for i, n := range w.all() {
			mib, err := proc.AnonymousPages(n.PID())
			check(b, err)
			record.Add(figures.By(n.side, figures.IdleAnon), look*idlePairs+i/len(figures.Sides()), mib)
		}
	}
	for i, n := range w.all() {
		share := (daemonCPU(n) - before[n]).Seconds() / idleMinute.Seconds()
		record.Add(figures.By(n.side, figures.IdleCPU), i/len(figures.Sides()), 100*share)
	}
}
