package bench_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/pingready"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

const (
	reachBlocks    = 6  // the fewest that give an interval
	reachCooldown  = 10 // s; a node has its next round after about twenty
	reachAddresses = 4 * figures.Parallel
	reachWait      = time.Second
)

// BenchmarkReach is the demo's comparison for a full node at once, and with the API server near and far.
func BenchmarkReach(b *testing.B) {
	record := figures.Record(b, "reach")
	options := netns.Options{
		Logs: filepath.Join(b.TempDir(), "logs"), Nodes: len(figures.Delays()), InstanceType: instanceType, Out: b.Output(),
		Settings: map[string]string{"MINIMUM_IP_TARGET": strconv.Itoa(reachAddresses), "IP_COOLDOWN_PERIOD": strconv.Itoa(reachCooldown)},
		Policy:   cluster.Policy{Annotation: true, DefaultDeny: true},
	}
	for _, delay := range figures.Delays() {
		options.Away = append(options.Away, time.Duration(delay)*time.Millisecond)
	}
	c, err := netns.Start(b.Context(), options)
	check(b, err)
	b.Cleanup(func() { check(b, c.Stop(context.Background())) })
	r := &reach{b: b, c: c, record: record}
	for block := range reachBlocks {
		for i := range figures.Delays() {
			for j := range figures.Modes() {
				r.plan((i+block)%len(figures.Delays()), (j+block)%len(figures.Modes()), block)
			}
		}
	}
	report, err := pingready.Run(b.Context(), c, pingready.Options{
		Pods: figures.Parallel, Plans: r.plans, Key: awsPodIPs, Cooldown: reachCooldown * time.Second, Seed: 1, Out: b.Output(), Around: r.around,
	})
	check(b, err)
	for i, round := range report.Rounds {
		r.take(r.series[i], round)
	}
}

// reach is that benchmark under way.
type reach struct {
	b      *testing.B
	c      *netns.Cluster
	record *figures.Recorder
	plans  []pingready.Plan
	series []reachSeries // by plan
	next   int
}

// reachSeries is what a round counts for.
type reachSeries struct {
	mode         string
	delay, block int
}

func (s reachSeries) of(what, unit string) figures.Series {
	return figures.Reached(what, unit, s.mode, s.delay)
}

func (r *reach) plan(place, mode, block int) {
	plan := pingready.Plan{Knob: pingready.On, Node: r.c.Info().Nodes[place].Name}
	switch figures.Modes()[mode] {
	case figures.ReachOff:
		plan.Knob = pingready.Off
	case figures.ReachWait:
		plan.Wait = reachWait
	}
	r.plans = append(r.plans, plan)
	r.series = append(r.series, reachSeries{figures.Modes()[mode], figures.Delays()[place], block})
}

// around measures a round's daemon, which was just restarted.
func (r *reach) around(plan pingready.Plan, measure func() error) error {
	s := r.series[r.next]
	r.next++
	pid, err := r.c.DaemonPID(plan.Node)
	check(r.b, err)
	before, callsBefore, dropsBefore := ran(r.b, pid), r.calls(plan.Node), r.drops(plan.Node)
	if err := measure(); err != nil {
		return err
	}
	r.record.Times(s.of(figures.ReachCPU, "ms"), s.block, (ran(r.b, pid)-before)/figures.Parallel)
	r.record.Add(s.of(figures.ReachDropped, "packets"), s.block, (r.drops(plan.Node)-dropsBefore)/figures.Parallel)
	if s.mode != figures.ReachOff {
		r.record.Add(s.of(figures.ReachCalls, "calls"), s.block, (r.calls(plan.Node)-callsBefore)/figures.Parallel)
	}
	return nil
}

// drops is how many packets a node's policy agent has dropped: pings also fail where the harness is too busy to take the answers.
func (r *reach) drops(node string) float64 {
	r.b.Helper()
	places, err := r.c.Places(node)
	check(r.b, err)
	ns, err := netlab.Open(places.Namespace)
	check(r.b, err)
	drops, err := policygate.CountDrops(ns.FD())
	check(r.b, errors.Join(err, ns.Close()))
	return float64(drops)
}

// calls is how many requests about annotations a daemon has made.
func (r *reach) calls(node string) (sum float64) {
	r.b.Helper()
	page, err := r.c.Metrics(r.b.Context(), node)
	check(r.b, err)
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "vpccni_annotation_requests_total{"); ok {
			_, value, _ := cutLast(strings.TrimSpace(rest), " ")
			n, err := strconv.ParseFloat(value, 64)
			check(r.b, err)
			sum += n
		}
	}
	return sum
}

// take records a round's pods.
func (r *reach) take(s reachSeries, round pingready.Round) {
	var failed, reply []float64
	stages := map[string][]float64{}
	moments := func(p pingready.Pod) map[string]*float64 {
		return map[string]*float64{figures.ReachVisible: p.AnnotationVisible, figures.ReachProgrammed: p.PolicyProgrammed, figures.ReachStart: p.ContainerStart}
	}
	late := 0
	for _, p := range round.Pods {
		failed = append(failed, p.FailedPings())
		reply = append(reply, *p.PingReady())
		for stage, at := range moments(p) {
			if at != nil {
				stages[stage] = append(stages[stage], *at)
			}
		}
		if *p.PolicyProgrammed > *p.ContainerStart {
			late++
		}
	}
	add := func(what, unit string, value float64) { r.record.Add(s.of(what, unit), s.block, value) }
	add(figures.ReachFailed50, "pings", pingready.Quantile(failed, 0.5))
	add(figures.ReachFailed99, "pings", pingready.Quantile(failed, 0.99))
	add(figures.ReachReply50, "ms", pingready.Quantile(reply, 0.5))
	add(figures.ReachReply99, "ms", pingready.Quantile(reply, 0.99))
	add(figures.ReachLate, "%", 100*float64(late)/float64(len(round.Pods)))
	for stage, times := range stages {
		add(stage, "ms", pingready.Quantile(times, 0.99))
	}
}
