package bench_test

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/pingready"
)

const burstRounds = 7

// BenchmarkBurst creates 110 pods at once on one node, as the demo does with thirty on two: kubelet, policy agent and all.
func BenchmarkBurst(b *testing.B) {
	record := figures.Record(b, "burst")
	c, err := netns.Start(b.Context(), netns.Options{
		Logs: filepath.Join(b.TempDir(), "logs"), Nodes: 2, InstanceType: instanceType, Out: b.Output(),
		Settings: map[string]string{
			"MINIMUM_IP_TARGET": strconv.Itoa(capacity), // the addresses of three rounds cool down while the next one starts
		},
		Policy: cluster.Policy{Annotation: true, DefaultDeny: true},
	})
	check(b, err)
	b.Cleanup(func() { check(b, c.Stop(context.Background())) })
	report, err := pingready.Run(b.Context(), c, pingready.Options{
		Pods: figures.Parallel, Node: c.Info().Nodes[0].Name, Rounds: slices.Repeat([]pingready.Knob{pingready.On}, burstRounds),
		Key: awsPodIPs, Cooldown: 30 * time.Second, Seed: 1, Out: b.Output(),
	})
	check(b, err)
	for i, round := range report.Rounds {
		var failed float64
		for _, p := range round.Pods {
			failed += p.FailedPings()
		}
		record.Add(figures.BurstADDs, i, *round.AllAdded/1000)
		record.Add(figures.BurstReady, i, *round.AllReady/1000)
		record.Add(figures.BurstFailedPings, i, failed)
	}
}
