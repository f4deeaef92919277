package annotate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	key      = annotate.DefaultKey
	otherKey = "example.org/pod-address"
	node     = "node-1"
	// patience bounds every wait for the real API server; a busy machine needs a second at most.
	patience = 30 * time.Second
)

// server is the one API server of this test binary. The namespaces that the tests run in end it.
var server = sync.OnceValues(kubetest.Start)

// cluster is an API server with a namespace of its own for one test, and a writer.
type cluster struct {
	t         *testing.T
	admin     client.Client
	namespace string
	node      string
	setting   setting
	api       *kube.Client
	pods      *kube.Pods // nil: no watch
	writer    *annotate.Writer
	stop      func() // ends the writer
	answers   chan pool.Answer
	events    chan string

	mu       sync.Mutex
	requests []string // "PATCH p-0"
}

// setting changes a cluster's writer.
type setting struct {
	user string                                         // "": may do everything
	wrap func(next http.RoundTripper) http.RoundTripper // around the writer's connection
	kube func(*kube.Config)
	// watch gives the writer a watch of the node's pods. The change of configuration may be nil.
	watch  bool
	writer func(*annotate.Config)
}

func newCluster(t *testing.T, s setting) *cluster {
	t.Helper()
	control, err := server()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(control.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, admin: admin, setting: s, node: node, answers: make(chan pool.Answer, 4096), events: make(chan string, 64)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	c.namespace = namespace.Name
	if s.watch {
		c.node = c.namespace // a watch is to see no other test's pods
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	user, groups := s.user, []string(nil)
	if user == "" {
		user, groups = "writer", []string{kubetest.AdminGroup}
	}
	if err := control.Kubeconfig(path, user, groups...); err != nil {
		t.Fatal(err)
	}
	config := kube.Config{Kubeconfig: path, Node: c.node, Wrap: func(next http.RoundTripper) http.RoundTripper {
		if s.wrap != nil {
			next = s.wrap(next)
		}
		return c.journal(next)
	}}
	if s.kube != nil {
		s.kube(&config)
	}
	api, err := kube.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.api = api
	c.run(api)
	return c
}

// run starts a writer; the test's end waits for it.
func (c *cluster) run(api annotate.PodAPI) {
	c.pods = nil
	config := annotate.Config{
		API:    api,
		Answer: func(a pool.Answer) { c.answers <- a },
		Event:  func(reason, _ string) { c.events <- reason },
		Settle: 3 * time.Second, // instead of 30: nothing is slow here but what a test slows down
	}
	if c.setting.watch {
		c.pods = kube.NewPods(c.api, kube.PodsConfig{})
		config.Pods = c.pods
	}
	if c.setting.writer != nil {
		c.setting.writer(&config)
	}
	writer, err := annotate.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return writer.Run(ctx) })
	if c.pods != nil {
		c.pods.Tell(writer.Changed)
		running.Go(func() error { return c.pods.Run(ctx) })
	}
	c.writer = writer
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := running.Wait(); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(c.stop)
}

// shown waits until the watch shows the pod so.
func (c *cluster) shown(name, what string, ok func(*corev1.Pod) bool) {
	c.t.Helper()
	c.until("the watch shows "+name+" "+what, func() bool {
		pod := c.pods.Pod(c.namespace, name)
		return pod != nil && ok(pod)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// journal records the writer's requests.
func (c *cluster) journal(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if name := filepath.Base(r.URL.Path); name != "pods" { // but the watch's
			c.mu.Lock()
			c.requests = append(c.requests, r.Method+" "+name)
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// sent gives the writer's requests so far and forgets them.
func (c *cluster) sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.requests
	c.requests = nil
	return sent
}

// pod makes a pod; change may be nil.
func (c *cluster) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	c.t.Helper()
	pod := kubetest.Pod(c.namespace, name, c.node)
	if change != nil {
		change(pod)
	}
	if err := c.admin.Create(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// kill removes a pod from the API at once, as `kubectl delete --force --grace-period=0` does.
func (c *cluster) kill(pod *corev1.Pod) {
	c.t.Helper()
	if err := c.admin.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		c.t.Fatal(err)
	}
}

// status posts the pod's address as kubelet does.
func (c *cluster) status(pod *corev1.Pod, addr string) {
	c.t.Helper()
	pod = c.read(pod.Name)
	pod.Status.PodIP, pod.Status.PodIPs, pod.Status.Phase = addr, []corev1.PodIP{{IP: addr}}, corev1.PodRunning
	if err := c.admin.Status().Update(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
}

// annotate writes an annotation as somebody else.
func (c *cluster) annotate(pod *corev1.Pod, key, value string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if err := c.admin.Patch(c.t.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) read(name string) *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{}
	if err := c.admin.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, pod); err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// holds checks an annotation; "<none>" means that there is no such key.
func (c *cluster) holds(name, key, want string) {
	c.t.Helper()
	got, ok := c.read(name).Annotations[key]
	if !ok {
		got = "<none>"
	}
	if got != want {
		c.t.Errorf("pod %s: %s is %q, want %q", name, key, got, want)
	}
}

// await gives the next answer.
func (c *cluster) await() pool.Answer {
	c.t.Helper()
	select {
	case a := <-c.answers:
		return a
	case <-time.After(patience):
		c.t.Fatal("no answer")
		return pool.Answer{}
	}
}

// event waits for the next event.
func (c *cluster) event(want string) {
	c.t.Helper()
	select {
	case got := <-c.events:
		if got != want {
			c.t.Errorf("event %s, want %s", got, want)
		}
	case <-time.After(patience):
		c.t.Fatalf("no event %s", want)
	}
}

// expect waits for the next answer and checks it, as "wish verdict reason".
func (c *cluster) expect(want string, keys ...string) {
	c.t.Helper()
	a := c.await()
	if got := fmt.Sprintf("%s %s %s", a.Wish, a.Verdict, a.Reason); got != want {
		c.t.Errorf("answer %q, want %q", got, want)
	}
	slices.Sort(a.Keys)
	slices.Sort(keys)
	if len(keys) > 0 && !slices.Equal(a.Keys, keys) {
		c.t.Errorf("answer about %v, want %v", a.Keys, keys)
	}
}

// until waits for something that no answer announces.
func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("never: %s", what)
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // pace of polling, bounded by the deadline
	}
}

// quiet checks that nothing more is answered or being worked on.
func (c *cluster) quiet() {
	c.t.Helper()
	if n := c.writer.Pending(); n != 0 {
		c.t.Errorf("%d records pending", n)
	}
	select {
	case a := <-c.answers:
		c.t.Errorf("another answer: %+v", a)
	default:
	}
}

func record(pod *corev1.Pod, sandbox, addr string, wish pool.Wish, keys ...string) pool.Annotation {
	if len(keys) == 0 {
		keys = []string{key}
	}
	owner := pool.Owner{
		Pod:     pool.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		Sandbox: sandbox, Addr: netip.MustParseAddr(addr),
	}
	return pool.Annotation{Owner: owner, Keys: keys, Wish: wish, Since: time.Now()}
}

// submitted submits a record and waits for its answer.
func (c *cluster) submitted(r pool.Annotation, want string, keys ...string) {
	c.t.Helper()
	c.writer.Submit(r)
	c.expect(want, keys...)
}
