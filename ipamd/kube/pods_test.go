package kube_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
)

// watched is a watch of a node of the test's own, and what it told.
type watched struct {
	pods *kube.Pods
	news chan [2]*corev1.Pod
}

func watching(t *testing.T, node, user string, groups ...string) (*watched, client.Client) {
	t.Helper()
	c, admin := connect(t, func(k *kube.Config) { k.Node = node }, user, groups...)
	w := &watched{news: make(chan [2]*corev1.Pod, 1000)}
	w.pods = kube.NewPods(c, kube.PodsConfig{})
	w.pods.Tell(func(was, is *corev1.Pod) { w.news <- [2]*corev1.Pod{was, is} })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.pods.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w, admin
}

// next gives the next piece of news.
func (w *watched) next(t *testing.T) (was, is *corev1.Pod) {
	t.Helper()
	select {
	case n := <-w.news:
		return n[0], n[1]
	case <-time.After(30 * time.Second):
		t.Fatal("no news")
		return nil, nil
	}
}

func TestWatchShowsThisNodesPodsAndOfThemWhatIsRead(t *testing.T) {
	here := kubetest.Pod("default", "w-here", "node-w")
	here.Annotations = map[string]string{
		"example.org/empty": "", "example.org/ip": "10.0.0.1", "example.org/ips": "10.0.0.1/32,2001:db8::1",
		corev1.MirrorPodAnnotationKey: "hash", "example.org/text": "10.0.0.1 or so", "example.org/json": `{"a":"10.0.0.1"}`,
	}
	here.Labels = map[string]string{"app": "web"}
	w, admin := watching(t, "node-w", "watcher", kubetest.AdminGroup)
	create(t, admin, kubetest.Pod("default", "w-there", "node-other"), here)
	<-w.pods.Synced()
	was, is := w.next(t)
	want := map[string]string{
		"example.org/empty": "", "example.org/ip": "10.0.0.1", "example.org/ips": "10.0.0.1/32,2001:db8::1", corev1.MirrorPodAnnotationKey: "hash",
	}
	if was != nil || is == nil || is.Name != "w-here" || is.UID != here.UID || is.ResourceVersion == "" || is.Spec.NodeName != "node-w" {
		t.Fatalf("the first news is %+v, %+v", was, is)
	}
	if diff := cmp.Diff(want, is.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if is.Labels != nil || is.Spec.Containers != nil || is.ManagedFields != nil {
		t.Errorf("not stripped: %+v", is)
	}
	status := []byte(`{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`)
	if err := admin.Status().Patch(t.Context(), here.DeepCopy(), client.RawPatch(types.MergePatchType, status)); err != nil {
		t.Fatal(err)
	}
	was, is = w.next(t)
	if was == nil || was.Status.PodIP != "" || is.Status.PodIP != "10.0.0.1" || w.pods.Pod("default", "w-here").Status.PodIP != "10.0.0.1" {
		t.Errorf("after the status: %+v, %+v", was, is)
	}
	if err := admin.Delete(t.Context(), here, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	for is != nil {
		was, is = w.next(t)
	}
	if was == nil || was.UID != here.UID || w.pods.Pod("default", "w-here") != nil {
		t.Errorf("after the deletion: %+v", was)
	}
	if w.pods.Pod("default", "w-there") != nil {
		t.Error("another node's pod is shown")
	}
}

// Whose address an object names: unfinished pods by their status, all by the keys, hostNetwork pods never.
func TestClaims(t *testing.T) {
	const key = "example.org/ip"
	w, admin := watching(t, "node-claims", "claims-watcher", kubetest.AdminGroup)
	<-w.pods.Synced()
	want := map[string][]string{
		"c-status":   {"10.0.0.1", "2001:db8::1"},
		"c-key":      {"10.0.0.2"},
		"c-finished": {"10.0.0.4"}, // its status is for ever, its key is emptied when its sandbox goes
		"c-host":     nil,
		"c-other":    nil, // another key
	}
	for name := range want {
		pod := kubetest.Pod("default", name, "node-claims")
		pod.Spec.HostNetwork = name == "c-host"
		create(t, admin, pod)
		patch, status := "", ""
		switch name {
		case "c-status":
			status = `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"2001:db8::1"}]}}`
		case "c-key":
			patch = `{"metadata":{"annotations":{"example.org/ip":"10.0.0.2"}}}`
		case "c-finished":
			patch = `{"metadata":{"annotations":{"example.org/ip":"10.0.0.4/32"}}}`
			status = `{"status":{"phase":"Succeeded","podIP":"10.0.0.3","podIPs":[{"ip":"10.0.0.3"}]}}`
		case "c-host":
			status = `{"status":{"podIP":"10.0.0.5","podIPs":[{"ip":"10.0.0.5"}]}}`
		case "c-other":
			patch = `{"metadata":{"annotations":{"example.org/other":"10.0.0.6"}}}`
		}
		if patch != "" {
			if err := admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Fatal(err)
			}
		}
		if status != "" {
			if err := admin.Status().Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[string][]string{}
	deadline := time.After(30 * time.Second)
	for {
		clear(got)
		for name := range want {
			got[name] = nil
		}
		for _, claim := range w.pods.Claims([]string{key}) {
			got[claim.Name] = append(got[claim.Name], claim.Addr.String())
			if claim.UID == "" || claim.Namespace != "default" || !claim.Addr.IsValid() || claim.Addr == (netip.Addr{}) {
				t.Fatalf("claim %+v", claim)
			}
		}
		for name := range got {
			slices.Sort(got[name])
		}
		if cmp.Equal(want, got) {
			return
		}
		select {
		case <-w.news:
		case <-deadline:
			t.Fatalf("claims (-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

// Without the permission nothing is shown, one warning tells, and the server is hardly asked; with it, the watch begins.
func TestWatchWithoutPermissionWaitsForIt(t *testing.T) {
	for _, test := range []struct {
		name string
		pace time.Duration
		most int // requests before the permission
	}{{"patient", 0, 1}, {"eager", 50 * time.Millisecond, 1000}} {
		t.Run(test.name, func(t *testing.T) {
			var asked atomic.Int32
			log := &lines{}
			user := "watch-" + test.name
			c, admin := connect(t, func(k *kube.Config) {
				k.Wrap = func(next http.RoundTripper) http.RoundTripper {
					return roundTrip(func(r *http.Request) (*http.Response, error) { asked.Add(1); return next.RoundTrip(r) })
				}
			}, user)
			pods := kube.NewPods(c, kube.PodsConfig{Pace: test.pace, Logger: slog.New(slog.NewTextHandler(log, nil))})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- pods.Run(ctx) }()
			select {
			case <-pods.Synced():
				t.Error("synced without permission")
			case <-time.After(2 * time.Second):
			}
			if n := int(asked.Load()); n == 0 || n > test.most || pods.Pod("default", "x") != nil || len(pods.Claims(nil)) != 0 {
				t.Errorf("asked %d times, want at most %d", n, test.most)
			}
			if test.pace > 0 {
				role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}}}
				binding := &rbacv1.ClusterRoleBinding{
					Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
					RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
				}
				role.Name, binding.Name = user, user
				create(t, admin, role, binding)
				<-pods.Synced()
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings:\n%s", n, log)
			}
		})
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
