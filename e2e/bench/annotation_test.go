package bench_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

const annotationBlocks = 40

// subject is a node whose daemon annotates, or does not, and has the API server so far away.
type subject struct {
	*node
	series figures.Series
	on     bool
	delay  int // ms
}

// BenchmarkAnnotation sets ADD with the annotation beside ADD without it, with an API server that is 1, 20 and 200 ms away.
// The node without it has a proxy as well, the nearest.
func BenchmarkAnnotation(b *testing.B) {
	record := figures.Record(b, "annotation")
	w := boot(b, 1+len(figures.Delays()), 8*podsInBlock)
	subjects := []*subject{{series: figures.NotAnnotated, delay: figures.Delays()[0]}}
	for _, delay := range figures.Delays() {
		subjects = append(subjects, &subject{series: figures.Annotated(delay), on: true, delay: delay})
	}
	client, err := podapi.New(w.Config())
	check(b, err)
	for i, s := range subjects {
		s.node = w.node(w.Info().Nodes[i].Name)
		w.putAway(s)
		s.block(client) // connections and caches
	}
	check(b, yield())
	quiet(b)
	for block := range annotationBlocks {
		for i := range subjects {
			s := subjects[(i+block)%len(subjects)] // none is always first
			record.Times(s.series, block, s.block(client)...)
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
	cmd, err := proxyCommand(front, address, time.Duration(s.delay)*time.Millisecond)
	check(w.b, err)
	listening, err := cmd.StdoutPipe()
	check(w.b, err)
	check(w.b, ns.Start(cmd))
	w.b.Cleanup(func() { check(w.b, errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), ns.Close())) })
	_, err = bufio.NewReader(listening).ReadString('\n')
	check(w.b, err)
	knob := map[bool]string{true: "true", false: "false"}[s.on]
	check(w.b, w.ReconfigureNode(w.b.Context(), s.name, map[string]string{"CLUSTER_ENDPOINT": "https://" + front, "ANNOTATE_POD_IP": knob}))
}

// number is the node's place among all.
func (n *node) number() int { return int(n.name[len(n.name)-1] - 'a') }

// block adds pods one after the other and removes them, and gives the times of the ADDs. In between it waits until the
// daemon owes the API server nothing: no block pays for another's annotations.
func (s *subject) block(client *podapi.Client) []time.Duration {
	s.b.Helper()
	pods := s.make(podsInBlock)
	for i := range pods {
		object, err := client.Create(s.b.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: pods[i].name},
			Spec:       corev1.PodSpec{NodeName: s.name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		})
		check(s.b, err)
		pods[i].uid = string(object.UID)
	}
	times := s.each("ADD", pods)
	s.settle()
	s.annotated(client, pods[len(pods)-1])
	s.each("DEL", pods)
	s.settle()
	return times
}

// annotated proves that a node annotates if, and only if, it should.
func (s *subject) annotated(client *podapi.Client, p pod) {
	s.b.Helper()
	object, err := client.Get(s.b.Context(), metav1.NamespaceDefault, p.name)
	check(s.b, err)
	if got := object.Annotations[awsPodIPs]; (got != "") != s.on {
		s.b.Fatalf("pod %s is annotated with %q, and the annotation is on: %t", p.name, got, s.on)
	}
}

// awsPodIPs is the annotation that the daemon writes by default.
const awsPodIPs = "vpc.amazonaws.com/pod-ips"

// settle waits until no wish about an annotation is unanswered.
func (s *subject) settle() {
	s.b.Helper()
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
