package compare_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/proc"
)

// How much is measured: within a block both sides have ten pods in turns, ten times.
const (
	serveBlocks    = 7
	turnsInBlock   = 10
	podsInTurn     = 10
	parallelRounds = 7
	held           = 300 // addresses: two rounds' and more
)

// roomy are settings with which no ADD waits for EC2 or for a cooldown.
func roomy() map[string]string {
	return map[string]string{"MINIMUM_IP_TARGET": "300", "WARM_IP_TARGET": "1", "IP_COOLDOWN_PERIOD": "1"}
}

// largeType has 15 ENIs of 50 addresses, the most that one network card takes.
const largeType = "m5.24xlarge"

// BenchmarkServe sets ADD and DEL of both sides beside each other: one after the other, and 110 at once.
func BenchmarkServe(b *testing.B) {
	record := figures.Record(b, "serve")
	w := boot(b, shape{pairs: 1, instanceType: largeType, settings: roomy(), quick: true})
	w.start()
	sides := w.pairs[0]
	w.awaitAddresses(map[*node]int{sides[figures.Ours]: held, sides[figures.Incumbent]: held})
	for _, n := range w.all() {
		turn(n, 1) // caches
	}
	quiet(b)
	for block := range serveBlocks {
		adds, dels := map[*node][]time.Duration{}, map[*node][]time.Duration{}
		for t := range turnsInBlock {
			for _, n := range sides.inTurn(block + t) {
				add, del, end := turn(n, podsInTurn)
				adds[n], dels[n] = append(adds[n], add...), append(dels[n], del...)
				record.Times(figures.By(n.side, figures.End), block, end)
			}
		}
		for _, n := range w.all() {
			for _, x := range []struct {
				series figures.Series
				times  []time.Duration
			}{{figures.ADD, adds[n]}, {figures.DEL, dels[n]}} {
				record.Times(figures.By(n.side, x.series), block, x.times...)
				record.Times(figures.By(n.side, figures.P99(x.series)), block, p99(x.times))
			}
		}
	}
	for round := range parallelRounds {
		for _, n := range sides.inTurn(round) {
			parallel(n, record, round)
		}
	}
}

// turn makes pods, one after the other, and takes them away again. End is what it takes to be rid of one: DEL, and its namespace let
// go, until its link is gone from the machine.
func turn(n *node, count int) (adds, dels []time.Duration, end time.Duration) {
	n.tb.Helper()
	pods := n.make(count)
	for _, c := range n.each((*node).add, pods) {
		adds = append(adds, c.took)
	}
	began := time.Now()
	for _, c := range n.each((*node).del, pods) {
		dels = append(dels, c.took)
	}
	n.remove(pods)
	return adds, dels, time.Since(began) / time.Duration(count)
}

// parallel makes 110 pods at once.
func parallel(n *node, record *figures.Recorder, round int) {
	n.tb.Helper()
	pods := n.make(figures.Parallel)
	quiet(n.tb)
	before := daemonCPU(n)
	calls, total := n.atOnce((*node).add, pods)
	daemon := daemonCPU(n) - before
	var plugins time.Duration
	for _, c := range calls {
		plugins += c.cpu
	}
	series := figures.ParallelTotal("ADD")
	record.Times(figures.By(n.side, series), round, total)
	record.Times(figures.By(n.side, figures.ParallelCPU("ADD")), round, plugins/figures.Parallel)
	record.Times(figures.By(n.side, figures.DaemonCPU(series)), round, daemon/figures.Parallel)
	n.atOnce((*node).del, pods)
	n.remove(pods)
}

// daemonCPU is the processor time of the daemon so far: its own threads', and of children that have ended (the incumbent calls
// iptables).
func daemonCPU(n *node) time.Duration {
	n.tb.Helper()
	own, err := proc.Ran(n.PID())
	check(n.tb, err)
	_, children, err := proc.CPU(n.PID())
	check(n.tb, err)
	return own + children
}

// p99 is the time that at most one of a hundred exceeds.
func p99(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[int(math.Ceil(0.99*float64(len(sorted))))-1]
}
