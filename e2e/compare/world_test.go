package compare_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/eksnode"
	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
)

// world is a simulated VPC in which both sides have machines of the same shape.
type world struct {
	*netns.Cluster
	tb    testing.TB
	pairs []pair
}

// pair is a machine of each side, by figures' names of the sides.
type pair map[string]*node

// inTurn gives both, in an order that changes with the block: neither is always first.
func (p pair) inTurn(block int) []*node {
	sides := figures.Sides()
	if block%2 == 1 {
		return []*node{p[sides[1]], p[sides[0]]}
	}
	return []*node{p[sides[0]], p[sides[1]]}
}

// shape is what a measurement wants.
type shape struct {
	pairs        int
	first        int // of the machines' names: worlds of one run share no names
	instanceType string
	settings     map[string]string // of both daemons
	quick        bool              // EC2's transitions take next to nothing: the measurement is not about them
	peer         bool              // one machine more, on which nothing runs
}

// peerName is the machine on which nothing runs.
const peerName = "peer"

// boot boots a world. No daemon runs yet.
func boot(tb testing.TB, s shape) *world {
	tb.Helper()
	logs := logsOf(tb)
	options := netns.Options{Logs: logs, Out: tb.Output(), NodesFirst: true}
	for i := range s.pairs {
		for _, side := range figures.Sides() {
			options.Machines = append(options.Machines, netns.Machine{Name: machineName(side, s.first+i), InstanceType: s.instanceType})
		}
	}
	if s.peer {
		options.Machines = append(options.Machines, netns.Machine{Name: peerName, InstanceType: s.instanceType})
	}
	c, err := netns.Start(tb.Context(), options)
	check(tb, err)
	tb.Cleanup(func() { check(tb, c.Stop(context.Background())) })
	w := &world{Cluster: c, tb: tb}
	if s.quick {
		moment := scenario.Duration(10 * time.Millisecond)
		check(tb, c.Delay(tb.Context(), scenario.Delays{Attach: &moment, Link: &moment, Detach: &moment, IMDS: &moment}))
	}
	theirs, err := eksnode.Join(tb.Context(), c)
	check(tb, err)
	api, err := podapi.New(c.Config())
	check(tb, err)
	for i := range s.pairs {
		p := pair{}
		for _, side := range figures.Sides() {
			name := machineName(side, s.first+i)
			n := &node{tb: tb, side: side, machine: name, cache: filepath.Join(tb.TempDir(), "cache")}
			if side == figures.Ours {
				check(tb, api.CreateNode(tb.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
				n.contender, err = newOurs(c, name, filepath.Join(logs, name))
			} else {
				n.contender, err = newIncumbent(tb.Context(), theirs, eksnode.Options{Machine: name, MaxPods: maxPods, Logs: filepath.Join(logs, name)})
			}
			check(tb, err)
			tb.Cleanup(func() { check(tb, n.Close()) })
			n.Set(s.settings)
			p[side] = n
		}
		w.pairs = append(w.pairs, p)
	}
	return w
}

// logsOf is the folder of a world's logs: below that of the samples, where there is one.
func logsOf(tb testing.TB) string {
	if out := os.Getenv(figures.OutVar); out != "" {
		return filepath.Join(out, "logs", filepath.FromSlash(tb.Name()))
	}
	return filepath.Join(tb.TempDir(), "logs")
}

// maxPods is more than any measurement makes.
const maxPods = 737

func machineName(side string, i int) string { return fmt.Sprintf("%s-%c", side, 'a'+i) }

func newIncumbent(ctx context.Context, c *eksnode.Cluster, o eksnode.Options) (*incumbent, error) {
	n, err := c.Node(ctx, o)
	return &incumbent{n}, err
}

// all gives all nodes of both sides.
func (w *world) all() (nodes []*node) {
	for i, p := range w.pairs {
		nodes = append(nodes, p.inTurn(i)...)
	}
	return nodes
}

// onAll does one thing on all nodes at once.
func (w *world) onAll(f func(*node) error) {
	w.tb.Helper()
	nodes := w.all()
	errs := make([]error, len(nodes))
	var done sync.WaitGroup
	for i, n := range nodes {
		done.Go(func() { errs[i] = f(n) })
	}
	done.Wait()
	check(w.tb, errors.Join(errs...))
}

// start starts all daemons at once.
func (w *world) start() {
	w.tb.Helper()
	w.onAll(func(n *node) error { return n.Start(w.tb.Context()) })
	for _, n := range w.all() {
		n.configure()
	}
}

// warmTimeout is how long a pool may take to reach its target: ENIs are attached one after the other.
const warmTimeout = 4 * time.Minute

// awaitAddresses waits until every node's ENIs have so many addresses for pods in EC2, and what follows on the node is done.
func (w *world) awaitAddresses(least map[*node]int) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), warmTimeout)
	defer cancel()
	for waiting := maps.Clone(least); len(waiting) > 0; {
		state, err := w.State(ctx)
		check(w.tb, err)
		for n, want := range waiting {
			if held, err := addresses(state, n.machine); err == nil && held >= want {
				delete(waiting, n)
			} else if ctx.Err() != nil {
				w.tb.Fatalf("%s holds %d addresses after %s, want %d: %v", n.machine, held, warmTimeout, want, err)
			}
		}
		pause(w.tb, startPoll)
	}
	pause(w.tb, settle)
}

// settle is more than a daemon takes to use an address that EC2 has assigned: the incumbent waits for the instance metadata.
const settle = 5 * time.Second

// addresses counts the addresses for pods on a machine's ENIs.
func addresses(state netns.State, machine string) (count int, err error) {
	instance, err := state.Instance(machine)
	if err != nil {
		return 0, err
	}
	for _, e := range state.Attached(instance.ID) {
		count += len(e.Secondary)
	}
	return count, nil
}

// mark is a moment in the fake's journal.
func (w *world) mark() uint64 {
	w.tb.Helper()
	journal, err := w.Journal(w.tb.Context(), 0)
	check(w.tb, err)
	if len(journal) == 0 {
		return 0
	}
	return journal[len(journal)-1].Seq
}

// calls counts a node's EC2 calls since a mark, by action.
func (w *world) calls(n *node, since uint64) map[string]int {
	w.tb.Helper()
	state, err := w.State(w.tb.Context())
	check(w.tb, err)
	instance, err := state.Instance(n.machine)
	check(w.tb, err)
	journal, err := w.Journal(w.tb.Context(), since)
	check(w.tb, err)
	counts := map[string]int{}
	for _, r := range journal {
		// The fake's credentials of an instance bear the end of its id.
		if tail := strings.TrimPrefix(r.AccessKey, "ASIAFAKE"); tail != "" && strings.HasSuffix(strings.ToUpper(instance.ID), tail) {
			counts[r.Action]++
		}
	}
	return counts
}

// recordCalls records counts as one value each, and their sum.
func recordCalls(record *figures.Recorder, span string, n *node, block int, counts map[string]int) {
	sum := 0
	for action, count := range counts {
		record.Add(figures.By(n.side, figures.CallsOf(span, action)), block, float64(count))
		sum += count
	}
	record.Add(figures.By(n.side, figures.Calls(span)), block, float64(sum))
}
