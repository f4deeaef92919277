package annotate

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// bench is a writer and its API server in virtual time.
type bench struct {
	t   *testing.T
	api *memory
	w   *Writer

	mu      sync.Mutex
	answers []pool.Answer
	events  []string
}

// virtually runs body with a writer; change may set up the API server and the configuration.
func virtually(t *testing.T, change func(*memory, *Config), body func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, api: newMemory()}
		b.api.latency = 5 * time.Millisecond
		c := Config{
			API:    b.api,
			Answer: func(a pool.Answer) { b.mu.Lock(); defer b.mu.Unlock(); b.answers = append(b.answers, a) },
			Event:  func(reason, _ string) { b.mu.Lock(); defer b.mu.Unlock(); b.events = append(b.events, reason) },
			Rand:   func() float64 { return 0.5 }, // no spread
		}
		if change != nil {
			change(b.api, &c)
		}
		w, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		b.w, b.api.news = w, w.Changed
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		body(b)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if b.api.doubled {
			t.Error("two requests for one pod at a time")
		}
	})
}

// said gives the answers so far as "wish verdict reason" and forgets them.
func (b *bench) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var said []string
	for _, a := range b.answers {
		said = append(said, fmt.Sprintf("%s %s %s", a.Wish, a.Verdict, a.Reason))
	}
	b.answers = nil
	return said
}

func (b *bench) expect(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.said()); diff != "" {
		b.t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func (b *bench) holds(name, want string) {
	b.t.Helper()
	if got := b.api.value("ns", name, DefaultKey); got != want {
		b.t.Errorf("pod %s has %q, want %q", name, got, want)
	}
}

func record(name, uid, sandbox, addr string, wish pool.Wish) pool.Annotation {
	return pool.Annotation{
		Owner: pool.Owner{Pod: pool.Pod{Namespace: "ns", Name: name, UID: uid}, Sandbox: sandbox, Addr: netip.MustParseAddr(addr)},
		Keys:  []string{DefaultKey}, Wish: wish, Since: time.Now(),
	}
}

// after lets virtual time pass.
func after(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual
	synctest.Wait()
}

func TestSetThenClear(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.holds("p", "10.0.0.1")
		b.expect("present done ok")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.holds("p", "")
		b.expect("empty done ok")
		if diff := cmp.Diff([]string{"patch ns/p", "patch ns/p"}, b.api.requests); diff != "" {
			b.t.Errorf("not one patch each:\n%s", diff)
		}
		if b.w.Pending() != 0 || len(b.w.known) != 0 {
			b.t.Errorf("something is left: %d pending, %d pods", b.w.Pending(), len(b.w.known))
		}
	})
}

// 110 pods at once (kubelet's default maximum) do not wait for each other, however long the API server takes: what the writer
// itself adds stays below 50 ms.
func TestA29FullNodeAtOnce(t *testing.T) {
	for _, latency := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) { fullNodeAtOnce(t, latency) })
	}
}

func fullNodeAtOnce(t *testing.T, latency time.Duration) {
	virtually(t, func(m *memory, _ *Config) { m.latency = latency }, func(b *bench) {
		for i := range 110 {
			b.api.add("ns", fmt.Sprint("p", i), fmt.Sprint("u", i))
		}
		start := time.Now()
		for i := range 110 {
			b.w.Submit(record(fmt.Sprint("p", i), fmt.Sprint("u", i), "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent))
		}
		for b.w.Pending() > 0 {
			after(time.Millisecond)
		}
		if added := time.Since(start) - latency; added >= 50*time.Millisecond {
			b.t.Errorf("the writer added %s", added)
		}
		if n := b.api.count(); n != 110 || b.api.most != 110 {
			b.t.Errorf("%d requests, at most %d in flight", n, b.api.most)
		}
	})
}

func TestPassIsSpreadAndFreshGoesFirst(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		for i := range 110 {
			b.api.add("ns", fmt.Sprint("p", i), fmt.Sprint("u", i))
			b.w.SubmitPass(record(fmt.Sprint("p", i), fmt.Sprint("u", i), "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent))
		}
		b.api.add("ns", "fresh", "uf")
		after(time.Second)
		if sent := b.api.count(); sent < 15 || sent > 25 {
			b.t.Errorf("%d requests in the first second, want a burst of 10 and 10 a second", sent)
		}
		b.w.Submit(record("fresh", "uf", "s", "10.0.1.1", pool.WishPresent))
		after(10 * time.Millisecond)
		b.holds("fresh", "10.0.1.1")
		after(10 * time.Second)
		if got := len(b.said()); got != 111 {
			b.t.Errorf("%d answers", got)
		}
	})
}

func TestLeftoverIsSpreadLikeAPass(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		for i := range 30 {
			b.api.add("ns", fmt.Sprint("p", i), fmt.Sprint("u", i))
			old := record(fmt.Sprint("p", i), fmt.Sprint("u", i), "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent)
			old.Since = old.Since.Add(-time.Hour)
			b.w.Submit(old)
		}
		after(500 * time.Millisecond)
		if sent := b.api.count(); sent > 16 {
			b.t.Errorf("%d requests in half a second", sent)
		}
	})
}

func TestA30SubmitDoesNotBlockWhileServerHangs(t *testing.T) {
	hang := func(m *memory, _ *Config) { m.fate = func(string) fate { return fate{lost: true, never: true} } }
	virtually(t, hang, func(b *bench) {
		start := time.Now()
		for i := range 1000 {
			b.w.Submit(record(fmt.Sprint("p", i), "u", "s", "10.0.0.1", pool.WishPresent))
		}
		if took := time.Since(start); took != 0 {
			b.t.Errorf("submissions took %s", took)
		}
	})
}

// A record that is replaced while its request is on the way gives no answer to the earlier wish, and the later one follows.
func TestReplacedInFlight(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(2 * time.Millisecond)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.expect("empty done ok")
		b.holds("p", "")
	})
}

func TestThrottledWaitsAsLongAsAsked(t *testing.T) {
	throttle := func(m *memory, _ *Config) {
		m.fate = func(string) fate {
			if len(m.requests) == 1 {
				return fate{never: true, err: apierrors.NewTooManyRequests("x", 7)}
			}
			return fate{}
		}
	}
	virtually(t, throttle, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(6900 * time.Millisecond)
		b.expect("present pending throttled")
		b.holds("p", "<none>")
		after(500 * time.Millisecond)
		b.expect("present done ok")
		if len(b.events) != 0 {
			b.t.Errorf("one throttled request made events %v", b.events)
		}
	})
}

func TestA25ServerErrorsAreRetriedAndReportedOnce(t *testing.T) {
	broken := func(m *memory, _ *Config) {
		start := time.Now()
		m.fate = func(string) fate {
			if time.Since(start) < 30*time.Second {
				return fate{never: true, err: apierrors.NewInternalError(fmt.Errorf("etcd"))}
			}
			return fate{}
		}
	}
	virtually(t, broken, func(b *bench) {
		for i := range 20 {
			b.api.add("ns", fmt.Sprint("p", i), "u")
			b.w.Submit(record(fmt.Sprint("p", i), "u", "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent))
		}
		after(29 * time.Second)
		if said := b.said(); len(said) != 20 || said[0] != "present pending server" {
			b.t.Errorf("want one Pending for each pod, got %v", said)
		}
		after(time.Minute)
		if said := b.said(); len(said) != 20 || said[0] != "present done ok" {
			b.t.Errorf("want all done, got %v", said)
		}
		if diff := cmp.Diff([]string{"PodAnnotationDelayed"}, b.events); diff != "" {
			b.t.Errorf("events:\n%s", diff)
		}
	})
}

func TestRefusedSetIsRetriedSlowly(t *testing.T) {
	forbid := func(m *memory, _ *Config) {
		m.fate = func(op string) fate {
			if op == "patch" && time.Now().Before(time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC)) {
				return fate{never: true, err: status(403, &metav1.StatusDetails{Kind: "pods"})}
			}
			return fate{}
		}
	}
	virtually(t, forbid, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(29 * time.Minute)
		b.expect("present pending forbidden")
		if n := b.api.count(); n < 5 || n > 12 {
			b.t.Errorf("%d requests in half an hour", n)
		}
		after(10 * time.Minute)
		b.expect("present done ok")
	})
}

func TestStaticPodWaitsForItsMirror(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		hash := "0123456789abcdef0123456789abcdef"
		b.w.Submit(record("web-node1", hash, "s1", "10.0.0.1", pool.WishPresent))
		after(5 * time.Second)
		b.expect("present pending mirror")
		b.api.add("ns", "web-node1", "u-mirror")
		b.api.change("ns", "web-node1", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
		})
		after(15 * time.Second)
		b.expect("present done ok")
		b.holds("web-node1", "10.0.0.1")
		// kubelet makes a deleted mirror anew: the old one's clear must find the new object.
		b.api.change("ns", "web-node1", func(p *corev1.Pod) { p.UID = types.UID("u-mirror-2") })
		b.w.Submit(record("web-node1", hash, "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.expect("empty done ok")
		b.holds("web-node1", "")
	})
}

// Removal waits for the status, does not touch a pod that is being deleted, and comes after the new key on a rename.
func TestA20RemovalWaits(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishAbsent))
		after(30 * time.Second)
		b.holds("p", "10.0.0.1")
		b.expect("present done ok", "absent pending nostatus")
		now := metav1.Now()
		b.api.change("ns", "p", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1"; p.DeletionTimestamp = &now })
		after(time.Minute)
		b.holds("p", "10.0.0.1")
		b.expect("absent pending terminating")
		b.api.change("ns", "p", func(p *corev1.Pod) { p.DeletionTimestamp = nil })
		after(5 * time.Minute)
		b.holds("p", "<none>")
		b.expect("absent done ok")
	})
}

func TestRunCutsRequestsOffAndAnswersNothing(t *testing.T) {
	hang := func(m *memory, _ *Config) { m.fate = func(string) fate { return fate{lost: true} } }
	virtually(t, hang, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.t.Cleanup(func() { b.expect() })
	})
}

// counter is a Metrics.
type counter struct {
	mu       sync.Mutex
	requests map[string]int
	written  []time.Duration
	visible  []time.Duration
}

func (c *counter) Request(operation, reason string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[operation+" "+reason]++
}

func (c *counter) Visible(sinceWish time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visible = append(c.visible, sinceWish)
}

func (c *counter) Written(sinceWish time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = append(c.written, sinceWish)
}

func TestMetrics(t *testing.T) {
	counts := &counter{requests: map[string]int{}}
	count := func(m *memory, c *Config) {
		c.Metrics = counts
		m.fate = func(string) fate {
			if len(m.requests) == 1 {
				return fate{never: true, err: apierrors.NewServiceUnavailable("x")}
			}
			return fate{}
		}
	}
	virtually(t, count, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.api.add("ns", "q", "u2")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		old := record("q", "u2", "s2", "10.0.0.2", pool.WishPresent)
		old.Since = old.Since.Add(-time.Hour) // a leftover says nothing about how fast pods are written
		b.w.Submit(old)
		after(time.Second)
		b.w.Submit(record("p", "u1", "s9", "10.0.0.9", pool.WishAbsent))
		after(time.Second)
		if diff := cmp.Diff(map[string]int{"set server": 1, "set ok": 2, "read ok": 1}, counts.requests); diff != "" {
			b.t.Errorf("requests (-want +got):\n%s", diff)
		}
		// 5 ms, a fifth of a second of waiting, 5 ms
		if diff := cmp.Diff([]time.Duration{210 * time.Millisecond}, counts.written); diff != "" {
			b.t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}
