package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

var _ annotate.PodAPI = (*kube.Client)(nil)

// server is the one API server of this test binary.
var server = sync.OnceValues(kubetest.Start)

// connect gives a client of the user, who is in the groups, and one that may do everything.
func connect(t *testing.T, change func(*kube.Config), user string, groups ...string) (*kube.Client, client.Client) {
	t.Helper()
	control, err := server()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(control.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := kube.Config{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), Node: "node-1"}
	if err := control.Kubeconfig(config.Kubeconfig, user, groups...); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&config)
	}
	c, err := kube.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, admin
}

func create(t *testing.T, admin client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPatchGetAndListOfThisNode(t *testing.T) {
	var urls []string
	record := func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			urls = append(urls, r.URL.String())
			return next.RoundTrip(r)
		})
	}
	c, admin := connect(t, func(k *kube.Config) { k.Wrap = record }, "agent", kubetest.AdminGroup)
	create(t, admin, kubetest.Pod("default", "here", "node-1"), kubetest.Pod("kube-system", "here-too", "node-1"),
		kubetest.Pod("default", "there", "node-2"))
	ctx := t.Context()
	pod, err := c.Patch(ctx, "default", "here", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a.example/b":"c"}}}`))
	if err != nil || pod.Annotations["a.example/b"] != "c" {
		t.Fatalf("patch: %v, %v", pod, err)
	}
	if pod.ManagedFields[len(pod.ManagedFields)-1].Manager != "vpc-cni" {
		t.Errorf("managed by %s", pod.ManagedFields[len(pod.ManagedFields)-1].Manager)
	}
	if got, err := c.Get(ctx, "default", "here"); err != nil || got.UID != pod.UID || got.Annotations["a.example/b"] != "c" {
		t.Errorf("get: %v, %v", got, err)
	}
	pods, err := c.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "here here-too" {
		t.Errorf("pods of node-1: %s", got)
	}
	if _, err := c.Get(ctx, "default", "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("want a typed not found, got %v", err)
	}
	for _, url := range urls {
		if !strings.Contains(url, "timeout=8s") {
			t.Errorf("%s does not bound the server's work", url)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMadeWhileServerIsDown(t *testing.T) {
	c, _ := connect(t, func(k *kube.Config) { k.Endpoint = "https://" + kubetest.Address + ":1" }, "agent", kubetest.AdminGroup)
	_, err := c.Get(t.Context(), "default", "p")
	if err == nil || !strings.Contains(err.Error(), "get pod default/p") {
		t.Errorf("error %v", err)
	}
}

func TestA10AccessReview(t *testing.T) {
	c, admin := connect(t, nil, "careful")
	if allowed, err := c.MayPods(t.Context(), "patch"); err != nil || allowed {
		t.Errorf("without a role: %v, %v", allowed, err)
	}
	create(t, admin,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "patch-pods"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "patch-pods"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patch-pods"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "careful"}},
		})
	eventually(t, "the role works", func() bool {
		allowed, err := c.MayPods(t.Context(), "patch")
		return err == nil && allowed
	})
}

func TestConfigurationErrorsSayWhat(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/nonexistent/kubeconfig", broken} {
		_, err := kube.New(kube.Config{Kubeconfig: path})
		if err == nil || !strings.Contains(err.Error(), "read kubeconfig "+path) {
			t.Errorf("error %v", err)
		}
	}
	_, err := kube.New(kube.Config{})
	if err == nil || !strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("error %v", err)
	}
}

func TestEvents(t *testing.T) {
	c, admin := connect(t, nil, "agent", kubetest.AdminGroup)
	events := kube.NewEvents(c, kube.NodeReference("node-events"), nil)
	// Nothing is lost that comes before Run, and nobody waits for it.
	events.Warn("PodAnnotationForbidden", "grant patch")
	events.Normal("Ready", strings.Repeat("ä", 1000))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- events.Run(ctx) }()
	events.Warn("PodAnnotationForbidden", "grant patch")
	find := func() map[string]corev1.Event {
		var list corev1.EventList
		if err := admin.List(t.Context(), &list, client.InNamespace("default"), client.MatchingFields{"involvedObject.name": "node-events"}); err != nil {
			t.Fatal(err)
		}
		found := map[string]corev1.Event{}
		for _, e := range list.Items {
			found[fmt.Sprint(e.Type, " ", e.Reason)] = e
		}
		return found
	}
	eventually(t, "events are written", func() bool {
		found := find()
		return len(found) == 2 && found["Warning PodAnnotationForbidden"].Count == 2
	})
	warning := find()["Warning PodAnnotationForbidden"]
	if warning.InvolvedObject.Kind != "Node" || warning.InvolvedObject.UID != "node-events" || warning.Source.Component != "vpc-cni" {
		t.Errorf("event about %+v from %+v", warning.InvolvedObject, warning.Source)
	}
	if n := len(find()["Normal Ready"].Message); n > 1024 || n < 1000 {
		t.Errorf("message of %d bytes", n)
	}
	// The server forgot the event: it is written anew.
	if err := admin.Delete(t.Context(), &warning); err != nil {
		t.Fatal(err)
	}
	events.Warn("PodAnnotationForbidden", "grant patch")
	eventually(t, "the event is written anew", func() bool { return find()["Warning PodAnnotationForbidden"].Count == 3 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEventsNeverBlock(t *testing.T) {
	c, _ := connect(t, nil, "agent", kubetest.AdminGroup)
	events := kube.NewEvents(c, kube.NodeReference("node-1"), nil)
	start := time.Now()
	for i := range 1000 {
		events.Warn("Many", fmt.Sprint(i))
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %s", took)
	}
}

// eventually polls until ok or 30 s have passed.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // pace of polling, bounded by the deadline
	}
}
