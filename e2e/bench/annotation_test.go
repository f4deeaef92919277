package bench_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/distance"
	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// A block is a steady stream of ADDs. Those of its beginning are not counted: with an API server 200 ms away its work, and the
// daemon's with its answers, begins only after that, and then goes on as it does with one that is near.
const (
	annotationBlocks = 21
	streamInterval   = 10 * time.Millisecond
	streamBegins     = 24 // ADDs: 240 ms
	streamCounts     = 16
)

// subject is a node whose daemon annotates, or does not, and has the API server so far away.
type subject struct {
	*node
	series  figures.Series
	delay   int      // ms
	patcher *patcher // annotates instead of the daemon; nil: the daemon does
	daemon  int      // its process id
}

// stream is what a block's ADDs took: those that count, and of the daemon's processor for each of all.
type stream struct {
	adds   []time.Duration
	daemon time.Duration
}

// BenchmarkAnnotation sets ADD with the annotation beside ADD without it, with an API server that is 1, 20 and 200 ms away.
// The node without it has a proxy as well, the nearest, and somebody else's annotations.
func BenchmarkAnnotation(b *testing.B) {
	record := figures.Record(b, "annotation")
	w := boot(b, 1+len(figures.Delays()), 4*(streamBegins+streamCounts))
	subjects := []*subject{{series: figures.NotAnnotated, delay: figures.Delays()[0], patcher: w.patcher()}}
	for _, delay := range figures.Delays() {
		subjects = append(subjects, &subject{series: figures.Annotated(delay), delay: delay})
	}
	client, err := podapi.New(w.Config())
	check(b, err)
	for i, s := range subjects {
		s.node = w.node(w.Info().Nodes[i].Name)
		w.putAway(s)
		s.daemon = w.pid(s.node) // it was restarted
	}
	check(b, yield())
	for _, s := range subjects {
		s.block(client) // connections and caches
	}
	quiet(b)
	for block := range annotationBlocks {
		for i := range subjects {
			s := subjects[(i+block)%len(subjects)] // none is always first
			took := s.block(client)
			record.Times(s.series, block, took.adds...)
			record.Times(figures.DaemonCPU(s.series), block, took.daemon)
		}
	}
}

// putAway puts a proxy between a node's daemon and the API server, and turns the knob.
func (w *world) putAway(s *subject) {
	w.b.Helper()
	path, address := w.APIServer()
	ns, err := netlab.Open(path)
	check(w.b, err)
	server := netip.MustParseAddrPort(address)
	// A port of the API server's own address: its certificate names that.
	front := netip.AddrPortFrom(server.Addr(), server.Port()+1+uint16(s.node.number())).String()
	cmd, err := distance.Command(front, address, time.Duration(s.delay)*time.Millisecond)
	check(w.b, err)
	listening, err := cmd.StdoutPipe()
	check(w.b, err)
	check(w.b, ns.Start(cmd))
	w.b.Cleanup(func() { check(w.b, errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), ns.Close())) })
	_, err = bufio.NewReader(listening).ReadString('\n')
	check(w.b, err)
	knob := strconv.FormatBool(s.patcher == nil)
	check(w.b, w.ReconfigureNode(w.b.Context(), s.name, map[string]string{"CLUSTER_ENDPOINT": "https://" + front, "ANNOTATE_POD_IP": knob}))
}

// number is the node's place among all.
func (n *node) number() int { return int(n.name[len(n.name)-1] - 'a') }

// block adds pods in a stream and removes them, and gives what the ADDs took. In between it waits until nobody owes the API server
// anything: no block pays for another's annotations.
func (s *subject) block(client *podapi.Client) (took stream) {
	s.b.Helper()
	pods := s.objects(client, streamBegins+streamCounts)
	before := ran(s.b, s.daemon)
	ticker := time.NewTicker(streamInterval)
	for i, p := range pods {
		<-ticker.C
		if s.patcher != nil {
			s.patcher.patch(s.b, p)
		}
		if add := s.timed(s.command("ADD", p)); i >= streamBegins {
			took.adds = append(took.adds, add)
		}
	}
	ticker.Stop()
	took.daemon = (ran(s.b, s.daemon) - before) / time.Duration(len(pods))
	s.settle()
	s.annotated(client, pods[len(pods)-1])
	var commands []*exec.Cmd
	for _, p := range pods {
		commands = append(commands, s.command("DEL", p))
	}
	s.atOnce(commands)
	s.release(pods)
	s.settle()
	return took
}

// objects makes pods with API objects, which the daemon annotates.
func (n *node) objects(client *podapi.Client, count int) []pod {
	n.b.Helper()
	pods := n.make(count)
	var group errgroup.Group
	for i := range pods {
		group.Go(func() error {
			object, err := client.Create(n.b.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: pods[i].name},
				Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			})
			if err == nil {
				pods[i].uid = string(object.UID)
			}
			return err
		})
	}
	check(n.b, group.Wait())
	return pods
}

// annotated proves that a node annotates if, and only if, it should.
func (s *subject) annotated(client *podapi.Client, p pod) {
	s.b.Helper()
	object, err := client.Get(s.b.Context(), metav1.NamespaceDefault, p.name)
	check(s.b, err)
	if got := object.Annotations[awsPodIPs]; (got == "") == (s.patcher == nil) {
		s.b.Fatalf("pod %s is annotated with %q, and the annotation is on: %t", p.name, got, s.patcher == nil)
	}
}

// awsPodIPs is the annotation that the daemon writes by default.
const awsPodIPs = "vpc.amazonaws.com/pod-ips"

// settle waits until no wish about an annotation is unanswered.
func (s *subject) settle() {
	s.b.Helper()
	if s.patcher != nil {
		s.patcher.settle(s.b)
	}
	ctx, cancel := context.WithTimeout(s.b.Context(), settleTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: s.ns.DialContext, DisableKeepAlives: true}}
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for {
		text, err := fetch(ctx, client, metricsURL)
		check(s.b, err)
		pending, err := metric(text, "vpccni_annotations_pending")
		check(s.b, err)
		if pending == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			s.b.Fatalf("node %s still has annotations to write: %v", s.name, ctx.Err())
		}
	}
}

// Ten annotations at 200 ms each, were they written one after the other, take two seconds.
const (
	settleTimeout = 20 * time.Second
	settlePoll    = 20 * time.Millisecond
)
