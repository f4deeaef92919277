package annotate_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// calico reads pods as Calico does.
var calico = policygate.Reader{Keys: []string{key}}

// strict reads a pod as the network policy controller for Amazon VPC does: the raw text, one address or nothing.
func strict(pod *corev1.Pod) (netip.Addr, error) {
	if pod.Status.PodIP != "" {
		return netip.ParseAddr(pod.Status.PodIP)
	}
	return netip.ParseAddr(pod.Annotations[key])
}

// engine is a policy engine's watch of the node's pods. It takes a pod's news when step lets it, if that is not nil.
type engine struct {
	step chan struct{}

	mu    sync.Mutex
	known map[string]time.Time // by pod: when its address was known first, without a status
	over  map[string]bool      // Calico's word: finished
	wrong []string
}

func (e *engine) Present(pod *corev1.Pod, _ time.Time) {
	if e.step != nil {
		<-e.step
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	addrs, err := calico.Addresses(pod)
	if err != nil {
		e.wrong = append(e.wrong, err.Error())
	}
	if len(addrs) == 1 {
		if addr, err := strict(pod); err != nil || addr != addrs[0].Addr() {
			e.wrong = append(e.wrong, fmt.Sprintf("%s: a strict reader has %s, %v, Calico %s", pod.Name, addr, err, addrs[0]))
		}
		if pod.Status.PodIP == "" && e.known[pod.Name].IsZero() {
			e.known[pod.Name] = time.Now()
		}
	}
	e.over[pod.Name] = calico.Finished(pod)
}

func (e *engine) Absent(*corev1.Pod, time.Time) {}

func (e *engine) knows(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.known[name].IsZero()
}

func (e *engine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.known)
}

// finished tells what Calico makes of the pod now.
func (e *engine) finished(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over[name]
}

// engine runs a policy engine beside the writer; its misreadings fail the test.
func (c *cluster) engine(step chan struct{}, wrap func(*rest.Config)) *engine {
	c.t.Helper()
	control, err := server()
	if err != nil {
		c.t.Fatal(err)
	}
	config := rest.CopyConfig(control.Config())
	if wrap != nil {
		wrap(config)
	}
	pods, err := podapi.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	e := &engine{step: step, known: map[string]time.Time{}, over: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = pods.Watch(ctx, c.node, e, nil) }()
	c.t.Cleanup(func() {
		cancel()
		if step != nil {
			close(step)
		}
		<-ended
		for _, wrong := range e.wrong {
			c.t.Error(wrong)
		}
	})
	return e
}

// terminating begins a pod's grace period; there is no kubelet to end it.
func (c *cluster) terminating(pod *corev1.Pod) {
	c.t.Helper()
	if err := c.admin.Delete(c.t.Context(), pod, client.GracePeriodSeconds(60)); err != nil {
		c.t.Fatal(err)
	}
}

// Whether the knob is on or off, an engine keeps a pod's network in its grace period, until its DEL has come; and of a pod
// that never had the key, none says that it is over.
func TestA4GracePeriodIsNotCutShort(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	e := c.engine(nil, nil)
	off, on := c.pod("off", nil), c.pod("on", nil)
	c.submitted(record(on, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.terminating(off)
	c.terminating(on)
	inGrace := func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }
	c.shown("off", "terminating", inGrace)
	c.shown("on", "terminating", inGrace)
	c.until("the engine knows the address", func() bool { return e.knows("on") })
	if e.finished("off") || e.finished("on") {
		t.Error("a grace period is cut short")
	}
	c.holds("off", key, "<none>")
	c.submitted(record(on, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.until("the engine takes the network for over", func() bool { return e.finished("on") })
	if e.finished("off") {
		t.Error("the pod without a key is over")
	}
}

// Nothing but our own figure tells whose fault a late network is: the time to the annotation is measured, and seen to be over,
// while an engine's watch hangs.
func TestA27TimeToTheAnnotationIsToldApartFromTheEngines(t *testing.T) {
	g, figures := newGate(), &visible{}
	c := newCluster(t, setting{watch: true, writer: func(c *annotate.Config) { c.Metrics = figures }})
	e := c.engine(nil, func(config *rest.Config) { config.Wrap(g.wrap) })
	first := c.pod("first", nil)
	c.submitted(record(first, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.until("the engine knows the first", func() bool { return e.knows("first") })
	g.shut()
	second := c.pod("second", nil)
	c.submitted(record(second, "s2", "10.0.0.2", pool.WishPresent), "present done ok")
	c.until("both are visible by our figure", func() bool { return figures.count() == 2 })
	seen := time.Now()
	if e.knows("second") {
		t.Fatal("the engine's watch was not held back")
	}
	g.lift()
	c.until("the engine knows the second", func() bool { return e.knows("second") })
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := e.known["second"]; at.Before(seen) {
		t.Errorf("the engine knew it at %s, before we saw it at %s", at, seen)
	}
}

// An engine without CPU takes its news one by one; by our figure every annotation was in time.
func TestA28StarvedEngineIsNotOurDelay(t *testing.T) {
	figures := &visible{}
	c := newCluster(t, setting{watch: true, writer: func(c *annotate.Config) { c.Metrics = figures }})
	step := make(chan struct{})
	e := c.engine(step, nil)
	for i := range 10 {
		pod := c.pod(fmt.Sprint("p-", i), nil)
		c.submitted(record(pod, fmt.Sprint("s", i), fmt.Sprint("10.0.0.", i+1), pool.WishPresent), "present done ok")
	}
	c.until("all are visible by our figure", func() bool { return figures.count() == 10 })
	if n := e.count(); n != 0 {
		t.Fatalf("the engine knows %d pods already", n)
	}
	for e.count() < 10 {
		select {
		case step <- struct{}{}:
		case <-time.After(patience):
			t.Fatalf("the engine has no more news and knows %d pods", e.count())
		}
	}
}

// A hundred Jobs, thirty at a time: an engine knows each from the annotation, though no kubelet ever posts a status.
func TestA29HundredJobsAreKnownWithoutAStatus(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	e := c.engine(nil, nil)
	places := make(chan struct{}, 30)
	var running sync.WaitGroup
	for i := range 100 {
		name := fmt.Sprint("job-", i)
		pod := c.pod(name, nil)
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			addr := fmt.Sprintf("10.0.%d.%d", i/200, i%200+1)
			c.writer.Submit(record(pod, "s-"+name, addr, pool.WishPresent))
			for deadline := time.Now().Add(patience); !e.knows(name); {
				if time.Now().After(deadline) {
					t.Errorf("%s is never known", name)
					return
				}
				time.Sleep(5 * time.Millisecond) //nolint:forbidigo // pace of polling, bounded by the deadline
			}
			c.writer.Submit(record(pod, "s-"+name, addr, pool.WishEmpty))
		})
	}
	running.Wait()
	c.until("all are cleared", func() bool { return c.writer.Pending() == 0 })
	c.requestCount(200)
	for i := range 100 {
		c.holds(fmt.Sprint("job-", i), key, "")
	}
}

// requestCount checks how many requests were made since the last look.
func (c *cluster) requestCount(want int) {
	c.t.Helper()
	if sent := c.sent(); len(sent) != want {
		c.t.Errorf("%d requests, want %d: %v", len(sent), want, sent)
	}
}

// visible is a Metrics that counts what readers can see.
type visible struct {
	mu sync.Mutex
	n  int
}

func (*visible) Request(string, string, time.Duration) {}
func (*visible) Written(time.Duration)                 {}

func (v *visible) Visible(time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.n++
}

func (v *visible) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.n
}
