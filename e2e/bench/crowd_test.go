package bench_test

import (
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// A block of the crowd: few pods, since the full node has 35 addresses beside its 700 pods, and a block's cool down for a
// second.
const (
	crowdBlocks      = 40
	podsInCrowdBlock = 5
)

// BenchmarkCrowd sets ADD and DEL on a node with 700 pods beside the same on one with 10. Every pod was made by the plugin:
// its assignment is in the daemon's state file, its veth and route in the kernel.
func BenchmarkCrowd(b *testing.B) {
	record := figures.Record(b, "crowd")
	w := boot(b, 2, capacity)
	crowds := []int{figures.FewPods, figures.ManyPods}
	var nodes []*node
	for i, pods := range crowds {
		n := w.node(w.Info().Nodes[i].Name)
		n.fill(b.Context(), pods)
		nodes = append(nodes, n)
	}
	quiet(b)
	for block := range crowdBlocks {
		for i := range nodes {
			i = (i + block) % len(nodes) // neither is always first
			n, crowd := nodes[i], crowds[i]
			pods := n.make(podsInCrowdBlock)
			for _, verb := range []figures.Series{figures.ADD, figures.DEL} {
				before := ran(b, w.pid(n))
				record.Times(figures.Crowded(verb, crowd), block, n.each(verb.Name, pods)...)
				record.Times(figures.DaemonCPU(figures.Crowded(verb, crowd)), block, (ran(b, w.pid(n))-before)/podsInCrowdBlock)
			}
		}
		pause(b, cooldown/4) // so that at most 25 addresses cool down at a time
	}
}
