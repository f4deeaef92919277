package bench_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// How much is measured: enough blocks for narrow intervals, each long against the clock and short against the machine's moods.
const (
	addBlocks      = 25
	podsInBlock    = 10
	parallelRounds = 9
)

// BenchmarkADD sets ADD and DEL beside a Go program that does nothing: one after the other, and 110 at once.
func BenchmarkADD(b *testing.B) {
	record := figures.Record(b, "add")
	w := boot(b, 1, 4*figures.Parallel) // of which a second's work cools down
	name := w.Info().Nodes[0].Name
	n := w.node(name)
	daemon, err := w.DaemonPID(name)
	check(b, err)
	quiet(b)
	for block := range addBlocks {
		pods := n.make(podsInBlock)
		for _, verb := range []figures.Series{figures.ADD, figures.DEL} {
			for _, p := range pods {
				record.Times(figures.EmptyBeside(verb), block, n.timed(n.instead(w.empty, p)))
				record.Times(verb, block, n.timed(n.command(verb.Name, p)))
			}
		}
		n.release(pods)
	}
	for round := range parallelRounds {
		pods := n.make(figures.Parallel)
		var empty, add, del []*exec.Cmd
		for _, p := range pods {
			empty, add, del = append(empty, n.instead(w.empty, p)), append(add, n.command("ADD", p)), append(del, n.command("DEL", p))
		}
		total, processor := n.atOnce(empty)
		record.Times(figures.ParallelTotal("empty program"), round, total)
		record.Times(figures.ParallelCPU("empty program"), round, processor/figures.Parallel)
		for _, verb := range []struct {
			name     string
			commands []*exec.Cmd
		}{{"ADD", add}, {"DEL", del}} {
			before := cpu(b, daemon)
			total, processor := n.atOnce(verb.commands)
			record.Times(figures.ParallelTotal(verb.name), round, total)
			record.Times(figures.ParallelCPU(verb.name), round, processor/figures.Parallel)
			record.Times(figures.DaemonCPU(figures.ParallelTotal(verb.name)), round, (cpu(b, daemon)-before)/figures.Parallel)
		}
		n.release(pods)
		pause(b, cooldown)
	}
}

// cooldown is that of boot, and a little: released addresses must be there again, else ADDs would wait for them.
const cooldown = 1200 * time.Millisecond

// pause lets time go by that belongs to no measurement.
func pause(b *testing.B, d time.Duration) {
	b.Helper()
	select {
	case <-time.After(d):
	case <-b.Context().Done():
		check(b, b.Context().Err())
	}
}
