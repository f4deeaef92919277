package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// How often, and how long, the daemon is looked at.
const (
	restarts     = 9
	restsAfter   = 3 * time.Second // a start's work is over by then: addresses, the pass over the node's pods
	idleMinute   = time.Minute
	memoryLooks  = 9
	ownPods      = figures.Parallel
	startTimeout = 30 * time.Second
)

// BenchmarkDaemon measures the daemon itself, with the annotation on, as that is what makes it speak to the API server.
func BenchmarkDaemon(b *testing.B) {
	record := figures.Record(b, "daemon")
	info, err := os.Stat(filepath.Join(os.Getenv(netns.BinVar), "ipamd"))
	check(b, err)
	record.Add(figures.DaemonSize, 0, float64(info.Size())/1e6)

	w := boot(b, 1, 2*ownPods)
	n := w.node(w.Info().Nodes[0].Name)
	check(b, w.ReconfigureNode(b.Context(), n.name, map[string]string{"ANNOTATE_POD_IP": "true"}))
	for block := range restarts {
		record.Times(figures.FirstADD, block, w.firstADD(n))
		pause(b, restsAfter)
		record.Add(figures.IdleMemory, block, anonymous(b, w.pid(n)))
	}
	w.crowd(n)
	check(b, w.StopDaemon(b.Context(), n.name))
	check(b, w.LaunchDaemon(n.name))
	pause(b, restsAfter)
	before := cpu(b, w.pid(n))
	for look := range memoryLooks {
		pause(b, idleMinute/memoryLooks)
		record.Add(figures.CrowdedMemory, look, anonymous(b, w.pid(n)))
	}
	record.Add(figures.IdleCPU, 0, 100*(cpu(b, w.pid(n))-before).Seconds()/idleMinute.Seconds())
	w.provesAnnotated(n)
}

func (w *world) pid(n *node) int {
	w.b.Helper()
	pid, err := w.DaemonPID(n.name)
	check(w.b, err)
	return pid
}

// firstADD restarts the daemon, which holds addresses from before, and gives the time from its start until the first ADD has
// its result. The pod's runtime tries again as soon as it is refused.
func (w *world) firstADD(n *node) time.Duration {
	w.b.Helper()
	check(w.b, w.StopDaemon(w.b.Context(), n.name))
	pods := n.make(1)
	began := time.Now()
	check(w.b, w.LaunchDaemon(n.name))
	for {
		_, err := n.time(n.command("ADD", pods[0]))
		if err == nil {
			break
		}
		if time.Since(began) > startTimeout {
			w.b.Fatalf("no ADD within %s: %v", startTimeout, err)
		}
	}
	took := time.Since(began)
	n.each("DEL", pods)
	return took
}

// crowd gives the node its own pods, each annotated, and the API a large cluster's.
func (w *world) crowd(n *node) {
	w.b.Helper()
	client, err := podapi.New(w.Config())
	check(w.b, err)
	pods := n.objects(client, ownPods)
	n.each("ADD", pods)
	path, _ := w.APIServer()
	ns, err := netlab.Open(path)
	check(w.b, err)
	defer func() { check(w.b, ns.Close()) }()
	began := time.Now()
	check(w.b, crowdAPI(w.b.Context(), newStore(&http.Client{Transport: &http.Transport{DialContext: ns.DialContext}})))
	w.b.Logf("%d nodes and %d pods are in the API after %.1f s", nodesInAPI, nodesInAPI*podsOfNodes, time.Since(began).Seconds())
	w.awaitServed(client)
}

// awaitServed waits until the API server serves the last of what was put into its store.
func (w *world) awaitServed(client *podapi.Client) {
	w.b.Helper()
	ctx, cancel := context.WithTimeout(w.b.Context(), startTimeout)
	defer cancel()
	for {
		served, err := client.List(ctx, foreignNode(nodesInAPI-1))
		check(w.b, err)
		if len(served) == podsOfNodes {
			return
		}
	}
}

// provesAnnotated fails unless the daemon answers for all pods of the node: it has read them from the API and the state file.
func (w *world) provesAnnotated(n *node) {
	w.b.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: n.ns.DialContext, DisableKeepAlives: true}}
	text, err := fetch(w.b.Context(), client, metricsURL)
	check(w.b, err)
	owned, err := metric(text, "vpccni_annotations_owned")
	check(w.b, err)
	if owned != ownPods {
		w.b.Errorf("the daemon answers for %v annotations, want %d", owned, ownPods)
	}
}

// metricsURL is the daemon's page of metrics, at its default address in the node's namespace.
const metricsURL = "http://127.0.0.1:61678/metrics"

// metric reads one without labels from a page of metrics.
func metric(text, name string) (float64, error) {
	_, rest, ok := cutLast("\n"+text, "\n"+name+" ")
	if !ok {
		return 0, fmt.Errorf("read metric %s: it is not on the page", name)
	}
	var line string
	if _, err := fmt.Sscan(rest, &line); err != nil {
		return 0, fmt.Errorf("read metric %s: %w", name, err)
	}
	value, err := strconv.ParseFloat(line, 64)
	if err != nil {
		return 0, fmt.Errorf("read metric %s: %w", name, err)
	}
	return value, nil
}

func TestMetricIsRead(t *testing.T) {
	const page = "# TYPE a gauge\na 110\na_b 7\n"
	if got, err := metric(page, "a"); err != nil || got != 110 {
		t.Errorf("a = %v, error %v", got, err)
	}
	if got, err := metric(page, "b"); err == nil {
		t.Errorf("a metric that is not there = %v", got)
	}
}
