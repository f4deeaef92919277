package annotate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// allow lets a user do something with pods in the test's namespace.
func (c *cluster) allow(user string, verbs ...string) {
	c.t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "pods-" + strings.Join(verbs, "-")},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if err := c.admin.Create(c.t.Context(), role); err != nil {
		c.t.Fatal(err)
	}
	if err := c.admin.Create(c.t.Context(), binding); err != nil {
		c.t.Fatal(err)
	}
}

// The verb patch is missing: one Pending and one event, other records go on, and a clear has its answer.
func TestA10ForbiddenIsToldOnceAndHoldsNothingUp(t *testing.T) {
	c := newCluster(t, setting{user: "reader"})
	c.allow("reader", "get")
	p, q := c.pod("p", nil), c.pod("q", func(p *corev1.Pod) { p.Annotations = map[string]string{key: "10.0.0.2"} })
	c.untilSettled()
	c.until("the role works", func() bool {
		c.writer.Submit(record(p, "s0", "10.0.0.9", pool.WishAbsent))
		return c.await().Verdict == pool.VerdictDone
	})
	c.submitted(record(p, "s1", "10.0.0.1", pool.WishPresent), "present pending forbidden")
	c.submitted(record(q, "s2", "10.0.0.2", pool.WishEmpty), "empty refused forbidden", key)
	c.holds("p", key, "<none>")
	c.holds("q", key, "10.0.0.2")
	c.event("PodAnnotationForbidden")
	if len(c.events) != 0 {
		t.Error("more than one event for one reason")
	}
	// The sandbox ends: the record is replaced, and a read shows that there is nothing to clear.
	c.submitted(record(p, "s1", "10.0.0.1", pool.WishEmpty), "empty gone absent")
	if n := c.writer.Pending(); n != 1 {
		t.Errorf("%d records pending, want the refused clear", n)
	}
	// The role is repaired: the next pod's write brings the dead address's clear with it, long before its turn.
	c.allow("reader", "patch")
	c.until("the role works", func() bool {
		c.writer.Submit(record(p, "s3", "10.0.0.3", pool.WishPresent))
		return c.await().Verdict == pool.VerdictDone
	})
	c.expect("empty done ok", key)
	c.holds("q", key, "")
	c.quiet()
}

// An admission policy refuses the key. A refused test of a JSON patch looks the same, so the value is read before a clear is
// called refused.
func TestPolicyRefusal(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.deny()
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty refused webhook", key)
	c.holds("p", key, "10.0.0.1")
	c.submitted(record(pod, "s2", "10.0.0.2", pool.WishPresent), "present pending webhook")
	c.status(pod, "10.0.0.1")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishAbsent), "absent pending webhook")
}

// deny makes an admission policy against our writer's changes of pods in this namespace, and waits until it works.
func (c *cluster) deny() {
	c.t.Helper()
	name := "deny-" + c.namespace
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": c.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: `request.userInfo.username != "writer"`, Message: "not this writer"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if err := c.admin.Create(c.t.Context(), policy); err != nil {
		c.t.Fatal(err)
	}
	if err := c.admin.Create(c.t.Context(), binding); err != nil {
		c.t.Fatal(err)
	}
	probe := c.pod("probe", nil)
	c.until("the policy works", func() bool {
		c.writer.Submit(record(probe, "probe", "10.0.0.99", pool.WishPresent))
		return c.await().Verdict == pool.VerdictPending
	})
	// Ends the probe's record, refused or not.
	c.kill(probe)
	c.writer.Submit(record(probe, "probe", "10.0.0.99", pool.WishEmpty))
	c.expect("empty gone notfound")
}

// The daemon starts with the API server down; when it comes the annotations are caught up.
func TestA12ServerComesLater(t *testing.T) {
	const front = kubetest.Address + ":7443"
	c := newCluster(t, setting{kube: func(k *kube.Config) { k.Endpoint = "https://" + front }})
	p, q := c.pod("p", nil), c.pod("q", nil)
	c.submitted(record(p, "s1", "10.0.0.1", pool.WishPresent), "present pending unreachable")
	c.submitted(record(q, "s2", "10.0.0.2", pool.WishPresent), "present pending unreachable")
	// One sandbox ends meanwhile: it was never written, so there is nothing to clear when the server comes.
	c.submitted(record(q, "s2", "10.0.0.2", pool.WishEmpty), "empty pending unreachable")
	c.event("PodAnnotationDelayed")
	relay(t, front, kubetest.Address+":6443")
	final := map[string]string{}
	for range 2 {
		a := c.await()
		final[a.Owner.Pod.Name] = fmt.Sprint(a.Wish, " ", a.Verdict)
	}
	if final["p"] != "present done" || final["q"] != "empty gone" {
		t.Errorf("answers %v", final)
	}
	c.holds("p", key, "10.0.0.1")
	c.holds("q", key, "<none>")
	c.quiet()
}

// relay passes connections on to another address until the test ends.
func relay(t *testing.T, from, to string) {
	t.Helper()
	listener, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			pass := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src) // ends with either side
				dst.Close()
				src.Close()
			}
			connections.Go(func() { pass(out, in) })
			connections.Go(func() { pass(in, out) })
			context.AfterFunc(t.Context(), func() { in.Close(); out.Close() })
		}
	})
	t.Cleanup(func() { listener.Close(); connections.Wait() })
}

// faulty lets the first requests of a method meet a fate, one each; later ones pass.
func faulty(method string, fates ...func(next http.RoundTripper, r *http.Request) (*http.Response, error)) func(http.RoundTripper) http.RoundTripper {
	var count atomic.Int64
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == method {
				if n := count.Add(1); int(n) <= len(fates) {
					return fates[n-1](next, r)
				}
			}
			return next.RoundTrip(r)
		})
	}
}

// lose has the request carried out and drops the answer.
func lose(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	if err == nil {
		response.Body.Close()
	}
	return nil, io.ErrUnexpectedEOF
}

// answer gives an answer of a proxy in front of the server, without a Status.
func answer(code int, header http.Header) func(http.RoundTripper, *http.Request) (*http.Response, error) {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		if header == nil {
			header = http.Header{}
		}
		return &http.Response{
			StatusCode: code, Header: header, Request: r, ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(bytes.NewReader([]byte("<html>"))),
		}, nil
	}
}

// later answers with a lost connection at once and has the request carried out when release is closed.
func later(release <-chan struct{}, carried *sync.WaitGroup) func(http.RoundTripper, *http.Request) (*http.Response, error) {
	carried.Add(1)
	return func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		go func() {
			defer carried.Done()
			<-release
			again := r.Clone(context.Background())
			again.Body = io.NopCloser(bytes.NewReader(body))
			if response, err := next.RoundTrip(again); err == nil {
				response.Body.Close()
			}
		}()
		return nil, io.ErrUnexpectedEOF
	}
}

func TestThrottledByServer(t *testing.T) {
	wait := http.Header{"Retry-After": []string{"2"}}
	c := newCluster(t, setting{wrap: faulty(http.MethodPatch, answer(http.StatusTooManyRequests, wait))})
	pod := c.pod("p", nil)
	start := time.Now()
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present pending throttled")
	c.expect("present done ok")
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("tried again after %s, the server asked for 2 s", took)
	}
	c.holds("p", key, "10.0.0.1")
}

func TestProxyErrorsAreRetried(t *testing.T) {
	c := newCluster(t, setting{wrap: faulty(http.MethodPatch,
		answer(http.StatusBadGateway, nil), answer(http.StatusNotFound, nil), answer(http.StatusGatewayTimeout, nil))})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present pending server")
	c.expect("present pending timeout")
	c.expect("present done ok")
	c.holds("p", key, "10.0.0.1")
	c.quiet()
}

// The set was carried out but its answer was lost, and the sandbox ends before it is tried again.
func TestLostAnswerToSetIsResolvedByClear(t *testing.T) {
	c := newCluster(t, setting{wrap: faulty(http.MethodPatch, lose)})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present pending unreachable")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("p", key, "")
	c.quiet()
}

func TestLostAnswerToClear(t *testing.T) {
	c := newCluster(t, setting{wrap: faulty(http.MethodPatch, answer(http.StatusBadGateway, nil), lose, lose)})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present pending server")
	c.expect("present pending unreachable")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty pending unreachable")
	c.until("settled", func() bool { return c.await().Verdict == pool.VerdictDone })
	c.holds("p", key, "")
	c.quiet()
}

// The set is carried out when the clear has already found nothing to clear.
func TestSetArrivesAfterClear(t *testing.T) {
	release := make(chan struct{})
	var carried sync.WaitGroup
	c := newCluster(t, setting{wrap: faulty(http.MethodPatch, later(release, &carried))})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present pending unreachable")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty pending unsettled")
	c.holds("p", key, "<none>")
	close(release)
	carried.Wait()
	c.holds("p", key, "10.0.0.1")
	c.expect("empty done ok", key)
	c.holds("p", key, "")
	c.quiet()
}

// The clear of a sandbox is carried out after its successor wrote the same address.
func TestClearArrivesAfterSuccessorsSet(t *testing.T) {
	release := make(chan struct{})
	var carried sync.WaitGroup
	pass := func(next http.RoundTripper, r *http.Request) (*http.Response, error) { return next.RoundTrip(r) }
	c := newCluster(t, setting{wrap: faulty(http.MethodPatch, pass, later(release, &carried))})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty pending unreachable")
	c.writer.Submit(record(pod, "s2", "10.0.0.1", pool.WishPresent))
	c.until("written by the successor", func() bool {
		a := c.await()
		return a.Wish == pool.WishPresent && a.Verdict == pool.VerdictDone
	})
	close(release)
	carried.Wait()
	c.until("written over", func() bool { return c.writer.Pending() == 0 })
	c.holds("p", key, "10.0.0.1")
}
