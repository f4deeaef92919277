package annotate_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// old makes a record that an earlier life has left.
func old(r pool.Annotation) pool.Annotation {
	r.Since = r.Since.Add(-time.Hour)
	return r
}

// pass submits records as the daemon's start does, and waits for their answers.
func (c *cluster) pass(records []pool.Annotation, want string) {
	c.t.Helper()
	for _, r := range records {
		c.writer.SubmitPass(r)
	}
	for range records {
		c.expect(want)
	}
	if p := c.writer.Progress(); p.Total != len(records) || p.Visited != p.Total || p.Ended.IsZero() {
		c.t.Errorf("progress %+v of %d records", p, len(records))
	}
	c.quiet()
}

// requested checks the requests since the last look, whatever their order.
func (c *cluster) requested(want ...string) {
	c.t.Helper()
	sent := c.sent()
	slices.Sort(sent)
	slices.Sort(want)
	if diff := cmp.Diff(want, sent); diff != "" {
		c.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A daemon that starts and finds everything as it should be asks nothing and writes nothing.
func TestSteadyNodeCostsNoRequestAtStart(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	var records []pool.Annotation
	for i := range 12 {
		pod := c.pod(fmt.Sprint("p-", i), nil)
		r := record(pod, fmt.Sprint("s", i), fmt.Sprint("10.0.0.", i+1), pool.WishPresent, key, otherKey)
		c.submitted(r, "present done ok")
		records = append(records, old(r))
	}
	for range 2 {
		c.sent()
		c.restart(nil)
		c.pass(records, "present done ok")
		c.requested()
	}
}

// restart is the end of the writer and the start of the next; change may set it up differently.
func (c *cluster) restart(change func(*setting)) {
	c.t.Helper()
	c.stop()
	if change != nil {
		change(&c.setting)
	}
	c.run(c.api)
}

func TestA21KnobOnVisitsEachRunningPodOnce(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	var records []pool.Annotation
	for i := range 5 {
		pod := c.pod(fmt.Sprint("p-", i), nil)
		if i == 0 {
			c.annotate(pod, key, "10.0.0.1") // has it already
		}
		records = append(records, old(record(pod, fmt.Sprint("s", i), fmt.Sprint("10.0.0.", i+1), pool.WishPresent)))
	}
	c.pass(records, "present done ok")
	c.requested("PATCH p-1", "PATCH p-2", "PATCH p-3", "PATCH p-4")
	for i := range 5 {
		c.holds(fmt.Sprint("p-", i), key, fmt.Sprint("10.0.0.", i+1))
	}
}

// A value that was taken off while no daemon ran, or while one runs, comes back; on a pod that has finished nobody needs it.
func TestLostValueIsWrittenAgain(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	pod, done := c.pod("p", nil), c.pod("done", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.submitted(record(done, "s2", "10.0.0.2", pool.WishPresent), "present done ok")
	c.annotate(pod, key, "")
	c.until("the value is back", func() bool { return c.read("p").Annotations[key] == "10.0.0.1" })
	c.annotate(pod, key, "192.0.2.1")
	c.until("the value is back again", func() bool { return c.read("p").Annotations[key] == "10.0.0.1" })

	finished := c.read("done")
	finished.Status.Phase = corev1.PodSucceeded
	if err := c.admin.Status().Update(t.Context(), finished); err != nil {
		t.Fatal(err)
	}
	c.shown("done", "finished", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	c.sent()
	c.annotate(done, key, "192.0.2.1")
	c.shown("done", "changed", func(p *corev1.Pod) bool { return p.Annotations[key] == "192.0.2.1" })
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.requested("PATCH p")
	c.holds("done", key, "192.0.2.1")
}

// A rename and a removal cost what they change, and no reading.
func TestA20KnobOffCostsOnePatchForEachPod(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	var renamed, removed []pool.Annotation
	var want []string
	for i := range 4 {
		name, addr := fmt.Sprint("p-", i), fmt.Sprint("10.0.0.", i+1)
		pod := c.pod(name, nil)
		r := record(pod, fmt.Sprint("s", i), addr, pool.WishPresent)
		c.submitted(r, "present done ok")
		c.status(pod, addr)
		c.shown(name, "with a status", func(p *corev1.Pod) bool { return p.Status.PodIP == addr && p.Annotations[key] == addr })
		r.Keys, r.Stale = []string{otherKey}, []string{key}
		renamed = append(renamed, old(r))
		r.Keys, r.Stale, r.Wish = []string{otherKey}, nil, pool.WishAbsent
		removed = append(removed, old(r))
		want = append(want, "PATCH "+name)
	}
	c.sent()
	c.restart(nil)
	c.pass(renamed, "present done ok")
	c.requested(append(want, want...)...)
	for i := range 4 {
		c.shown(fmt.Sprint("p-", i), "renamed", func(p *corev1.Pod) bool {
			_, stale := p.Annotations[key]
			return !stale && p.Annotations[otherKey] != ""
		})
	}
	c.restart(nil)
	c.pass(removed, "absent done ok")
	c.requested(want...)
	for i := range 4 {
		c.holds(fmt.Sprint("p-", i), key, "<none>")
		c.holds(fmt.Sprint("p-", i), otherKey, "<none>")
	}
}

// A removal waits for the status by watching, not by asking.
func TestA20RemovalWatchesForTheStatus(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	pod := c.pod("p", nil)
	r := record(pod, "s1", "10.0.0.1", pool.WishPresent)
	c.submitted(r, "present done ok")
	c.shown("p", "annotated", func(p *corev1.Pod) bool { return p.Annotations[key] == "10.0.0.1" })
	r.Wish, r.Since = pool.WishAbsent, time.Now()
	c.submitted(r, "absent pending nostatus")
	c.status(pod, "10.0.0.1")
	c.expect("absent done ok")
	c.requested("PATCH p", "PATCH p")
	c.holds("p", key, "<none>")
}

// A9's kind: what the watch shows to be gone needs no question, and nothing is held for it.
func TestA9DELOfAPodThatLeftTheAPICostsNothing(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.sent()
	c.kill(pod)
	c.until("the watch shows the deletion", func() bool { return c.pods.Pod(c.namespace, "p") == nil })
	next := c.pod("p", nil) // of the same name
	c.submitted(record(next, "s2", "10.0.0.2", pool.WishPresent), "present done ok")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty gone notfound")
	c.requested("PATCH p")
	c.holds("p", key, "10.0.0.2")
}

func TestHostNetworkPodThatTheWatchShowsIsNotAskedFor(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	pod := c.pod("p", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	c.shown("p", "at all", func(*corev1.Pod) bool { return true })
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present gone hostnetwork")
	c.requested()
	c.holds("p", key, "<none>")
}

// A static pod's mirror is known from the watch: no request is made in vain, and a mirror that is made anew is written anew.
func TestStaticPodIsFoundInTheWatch(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	const hash = "0123456789abcdef0123456789abcdef"
	mirror := func() *corev1.Pod {
		return c.pod("static-node", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash, "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file"}
		})
	}
	pod := mirror()
	c.shown("static-node", "as a mirror", func(p *corev1.Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] == hash })
	static := pod.DeepCopy()
	static.UID = hash
	r := record(static, "s1", "10.0.0.1", pool.WishPresent)
	c.submitted(r, "present done ok")
	c.requested("PATCH static-node")
	c.kill(pod)
	c.until("the mirror is gone", func() bool { return c.pods.Pod(c.namespace, "static-node") == nil })
	mirror()
	c.until("the new mirror is annotated", func() bool { return c.read("static-node").Annotations[key] == "10.0.0.1" })
	c.submitted(record(static, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("static-node", key, "")
	c.requested("PATCH static-node", "PATCH static-node")
}

// A static pod that starts before its mirror is written when the mirror comes.
func TestStaticPodsMirrorComesLater(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	const hash = "0123456789abcdef0123456789abcdef"
	static := &corev1.Pod{}
	static.Namespace, static.Name, static.UID = c.namespace, "static-node", hash
	c.submitted(record(static, "s1", "10.0.0.1", pool.WishPresent), "present pending mirror")
	c.pod("static-node", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash} })
	c.expect("present done ok")
	c.holds("static-node", key, "10.0.0.1")
}

// gate holds a watch back: what it shows is out of date for as long as that.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while news pass
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && strings.Contains(r.URL.RawQuery, "watch=true") {
			answer.Body = held{answer.Body, g, r}
		}
		return answer, err
	})
}

// held is a watch's body.
type held struct {
	io.ReadCloser
	gate    *gate
	request *http.Request
}

func (h held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.gate.mu.Lock()
	open := h.gate.open
	h.gate.mu.Unlock()
	select {
	case <-open:
	case <-h.request.Context().Done():
		return 0, h.request.Context().Err()
	}
	return n, err
}

// The pod is replaced under its name, with the same address, while the watch shows the old one: neither the DEL of the old
// sandbox nor the ADD of the new one believes it.
func TestA15WatchThatShowsTheOldPodIsNotBelieved(t *testing.T) {
	g := newGate()
	c := newCluster(t, setting{watch: true, wrap: g.wrap})
	first := c.pod("p-0", nil)
	c.submitted(record(first, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.shown("p-0", "annotated", func(p *corev1.Pod) bool { return p.Annotations[key] == "10.0.0.1" })
	g.shut()
	c.kill(first)
	second := c.pod("p-0", nil)
	c.submitted(record(second, "s2", "10.0.0.1", pool.WishPresent), "present done ok")
	for range 2 { // and once more
		c.submitted(record(first, "s1", "10.0.0.1", pool.WishEmpty), "empty gone superseded")
	}
	c.holds("p-0", key, "10.0.0.1")
	if shown := c.pods.Pod(c.namespace, "p-0"); shown == nil || shown.UID != first.UID {
		t.Fatal("the watch was not held back")
	}
	third := record(second, "s3", "10.0.0.3", pool.WishPresent) // the pod's next sandbox
	c.submitted(third, "present done ok")
	c.submitted(record(second, "s2", "10.0.0.1", pool.WishEmpty), "empty gone value")
	c.holds("p-0", key, "10.0.0.3")
	g.lift()
	c.shown("p-0", "as it is", func(p *corev1.Pod) bool { return p.UID == second.UID && p.Annotations[key] == "10.0.0.3" })
	c.quiet()
	c.holds("p-0", key, "10.0.0.3")
}

// What the watch shows of the time before our own write is no reason to write again.
func TestNewsFromBeforeOurWriteAreNoDrift(t *testing.T) {
	g := newGate()
	c := newCluster(t, setting{watch: true, wrap: g.wrap})
	pod := c.pod("p", nil)
	c.shown("p", "at all", func(*corev1.Pod) bool { return true })
	g.shut()
	for i := range 5 {
		c.annotate(pod, "example.org/count", fmt.Sprintf("10.9.9.%d", i))
	}
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	g.lift()
	c.shown("p", "annotated", func(p *corev1.Pod) bool { return p.Annotations[key] == "10.0.0.1" })
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.requested("PATCH p", "PATCH p")
}

// A daemon that may not watch, or whose server does not let it, writes all the same.
func TestPassesDoNotWaitForAWatchThatNeverComes(t *testing.T) {
	refuse := func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return nil, fmt.Errorf("watch refused")
			}
			return next.RoundTrip(r)
		})
	}
	c := newCluster(t, setting{watch: true, wrap: refuse})
	pod := c.pod("p", nil)
	fresh := c.pod("fresh", nil)
	c.writer.SubmitPass(old(record(pod, "s1", "10.0.0.1", pool.WishPresent)))
	c.submitted(record(fresh, "s2", "10.0.0.2", pool.WishPresent), "present done ok") // does not wait
	c.holds("p", key, "<none>")
	c.expect("present done ok")
	c.holds("p", key, "10.0.0.1")
}
