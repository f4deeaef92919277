package annotate_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// answerRow is one class of the API server's answers to the patch that sets the annotation. The test lives each row; the
// operators' page shows them.
type answerRow struct {
	answer string                          // what the server says, and why
	set    func(*answering)                // before the client is made
	cause  func(*answering) (cured func()) // brings the answer about; cured ends it, nil where there is nothing to cure
	first  string                          // the writer's first answer to the daemon: "verdict reason"
	reason string                          // in the metric
	next   time.Duration                   // from the first failure to the second try, without the spread of half either way
	limit  time.Duration                   // that pauses grow to
	event  string                          // "": none
	after  int                             // failures in a row that the event comes after
}

func rows() []answerRow {
	const quick, slow = 200 * time.Millisecond, 30 * time.Second
	return []answerRow{
		{answer: "200", cause: nothing, first: "done ok", reason: "ok"},
		{answer: "404: the pod is gone", cause: func(a *answering) func() { a.kill(a.pod); return nil }, first: "gone notfound", reason: "notfound"},
		{answer: "422, cause `metadata.uid`: another pod has the name", cause: replace, first: "gone uid", reason: "uid"},
		{answer: "409: a race was lost (read, then patched again at once)", set: proxied, cause: once(says(409, metav1.StatusReasonConflict)), first: "done ok", reason: "conflict"},
		{answer: "422, cause `metadata.annotations`: not a key, or more than 256 KiB of annotations", cause: fill, first: "pending invalid", reason: "invalid",
			next: time.Minute, limit: 5 * time.Minute, event: "PodAnnotationInvalid", after: 1},
		{answer: "422, another cause: a mutating webhook changed the spec on the way", cause: mutate, first: "pending altered", reason: "altered",
			next: time.Minute, limit: 5 * time.Minute, event: "PodAnnotationAltered", after: 1},
		{answer: "422 without a cause: an admission policy refuses", cause: func(a *answering) func() { return a.policy() }, first: "pending webhook", reason: "webhook",
			next: time.Minute, limit: 5 * time.Minute, event: "PodAnnotationDenied", after: 1},
		{answer: "400 to 499 of its choice: a validating webhook refuses", cause: validate, first: "pending webhook", reason: "webhook",
			next: time.Minute, limit: 5 * time.Minute, event: "PodAnnotationDenied", after: 1},
		{answer: "403: the verb patch is missing", set: as("answers-reader"), cause: forbid, first: "pending forbidden", reason: "forbidden",
			next: time.Minute, limit: 5 * time.Minute, event: "PodAnnotationForbidden", after: 1},
		{answer: "401: the token has expired or its pod is gone (its file is read again within a minute)", set: tokened, cause: revoke, first: "pending unauthorized", reason: "unauthorized",
			next: quick, limit: slow, event: "PodAnnotationUnauthorized", after: 3},
		{answer: "429 with Retry-After (7 s here)", set: proxied, cause: while(throttle), first: "pending throttled", reason: "throttled",
			next: 7*time.Second + quick/2, limit: slow, event: "PodAnnotationThrottled", after: 3},
		{answer: "500: a webhook that must be asked cannot be", cause: func(a *answering) func() { return a.webhook(false, nil) }, first: "pending server", reason: "server",
			next: quick, limit: slow, event: "PodAnnotationDelayed", after: 3},
		{answer: "503", set: proxied, cause: while(says(503, metav1.StatusReasonServiceUnavailable)), first: "pending server", reason: "server",
			next: quick, limit: slow, event: "PodAnnotationDelayed", after: 3},
		{answer: "502, or a 404 that is a proxy's page", set: proxied, cause: while(page(404)), first: "pending server", reason: "server",
			next: quick, limit: slow, event: "PodAnnotationDelayed", after: 3},
		{answer: "504: the server's own time-out (8 s)", set: proxied, cause: while(says(504, metav1.StatusReasonTimeout)), first: "pending timeout", reason: "timeout",
			next: quick, limit: slow, event: "PodAnnotationDelayed", after: 3},
		{answer: "no answer in 10 s", set: proxied, cause: hang, first: "pending timeout", reason: "timeout",
			next: quick, limit: slow, event: "PodAnnotationDelayed", after: 3},
		{answer: "the connection breaks", set: proxied, cause: while(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			first: "pending unreachable", reason: "unreachable", next: quick, limit: slow, event: "PodAnnotationDelayed", after: 3},
		{answer: "no connection", set: proxied, cause: func(a *answering) func() { a.front.stop(); return nil }, first: "pending unreachable", reason: "unreachable",
			next: quick, limit: 10 * time.Second, event: "PodAnnotationDelayed", after: 3},
	}
}

// answering is one row at work.
type answering struct {
	*cluster
	row      answerRow
	setting  setting
	front    *front
	tokens   *tokens
	pod      *corev1.Pod
	clock    atomic.Int64 // nanoseconds since the test's start
	start    time.Time
	registry *prometheus.Registry
}

func (a *answering) now() time.Time { return a.start.Add(time.Duration(a.clock.Load())) }

func TestEveryAnswerOfTheAPI(t *testing.T) {
	for _, row := range rows() {
		t.Run(row.answer, func(t *testing.T) {
			t.Parallel()
			a := &answering{row: row, start: time.Now(), registry: prometheus.NewRegistry()}
			submitted := make(chan struct{})
			a.setting.writer = func(c *annotate.Config) {
				c.Now, c.Rand = a.now, func() float64 { return 0.5 }
				c.Metrics = introspect.NewMetrics(a.registry, func() (introspect.Figures, bool) { return introspect.Figures{}, false })
			}
			// No request goes out before the record is submitted: what it is answered cannot matter to the ADD.
			a.setting.wrap = func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) { <-submitted; return next.RoundTrip(r) })
			}
			a.cluster = &cluster{t: t}
			if row.set != nil {
				row.set(a)
			}
			front := a.front
			a.cluster = newCluster(t, a.setting)
			a.front = front
			if a.tokens != nil {
				a.tokens.c = a.cluster
			}
			a.pod = a.cluster.pod("p", nil)
			cured := row.cause(a)
			record := record(a.pod, "s1", "10.0.0.1", pool.WishPresent)
			a.writer.Submit(record)
			close(submitted)
			a.expect("present " + row.first)
			if row.next > 0 {
				a.persists(record)
			}
			if row.next > 0 && cured != nil {
				cured()
				a.goesOn(record)
				a.expect("present done ok")
				a.holds("p", key, "10.0.0.1")
			}
			for len(a.events) > 0 { // the same again after ten minutes of the test's clock
				if event := <-a.events; event != row.event {
					t.Errorf("event %s", event)
				}
			}
			if count := a.counted(); count == 0 {
				t.Errorf("the metric counts no set with reason %s", row.reason)
			}
		})
	}
}

// persists checks the retries while the cause lasts, and the event.
func (a *answering) persists(record pool.Annotation) {
	a.t.Helper()
	if _, in := a.writer.NextTry(record); in != a.row.next {
		a.t.Errorf("the next try is in %s, want %s", in, a.row.next)
	}
	for failures := 1; failures < a.row.after; failures++ {
		if len(a.events) > 0 {
			a.t.Errorf("event %s after %d failures", <-a.events, failures)
		}
		a.tryAgain(record)
		a.until(fmt.Sprintf("failure %d", failures+1), func() bool { n, _ := a.writer.NextTry(record); return n > failures })
	}
	if a.row.event != "" {
		a.event(a.row.event)
	}
	if _, in := a.writer.NextTry(record); in > a.row.limit {
		a.t.Errorf("a pause of %s, want at most %s", in, a.row.limit)
	}
}

// rereadToken is more than the minute for which client-go keeps what it read from a token's file.
const rereadToken = 2 * time.Minute

// goesOn lets the time pass until there is an answer.
func (a *answering) goesOn(record pool.Annotation) {
	a.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(rereadToken); len(a.answers) == 0; <-tick.C {
		if time.Now().After(deadline) {
			a.t.Fatal("the cause is gone, and no answer came")
		}
		a.tryAgain(record)
	}
}

// tryAgain lets the time to the next try pass.
func (a *answering) tryAgain(record pool.Annotation) {
	_, in := a.writer.NextTry(record)
	a.clock.Add(int64(max(in, 0)))
	a.writer.Wake(record)
}

// counted gives the metric's count of sets with the row's reason.
func (a *answering) counted() float64 {
	a.t.Helper()
	families, err := a.registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if family.GetName() == "vpccni_annotation_requests_total" && labels["operation"] == "set" && labels["reason"] == a.row.reason {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func nothing(*answering) func() { return nil }

// proxied sends the writer's requests through a proxy.
func proxied(a *answering) {
	a.front = a.newFront()
	a.t.Cleanup(a.front.stop)
	a.setting.kube = func(k *kube.Config) { k.Endpoint = "http://" + a.front.addr }
}

func as(user string) func(*answering) { return func(a *answering) { a.setting.user = user } }

func tokened(a *answering) {
	a.tokens = &tokens{}
	a.setting.kube = a.tokens.file
}

// while gives the answer to all patches until cured.
func while(fault http.HandlerFunc) func(*answering) func() {
	return func(a *answering) func() {
		a.front.fault.Store(&fault)
		return func() { a.front.fault.Store(nil) }
	}
}

// once gives it to the first one.
func once(fault http.HandlerFunc) func(*answering) func() {
	return func(a *answering) func() {
		first := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.front.fault.Store(nil)
			fault(w, r)
		})
		a.front.fault.Store(&first)
		return nil
	}
}

// hang leaves patches without an answer, longer than the writer waits.
func hang(a *answering) func() {
	return while(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client gives up
		<-r.Context().Done()
	})(a)
}

func replace(a *answering) func() {
	a.kill(a.pod)
	a.cluster.pod("p", nil)
	return nil
}

// fill leaves no room for another annotation.
func fill(a *answering) func() {
	a.annotate(a.pod, "example.org/large", strings.Repeat("x", 256<<10-len("example.org/large")))
	return func() { a.annotate(a.pod, "example.org/large", "") }
}

func mutate(a *answering) func() {
	return a.webhook(true, func(r *admissionv1.AdmissionResponse) {
		kind := admissionv1.PatchTypeJSONPatch
		r.Allowed, r.PatchType, r.Patch = true, &kind, []byte(`[{"op":"add","path":"/spec/hostname","value":"mutated"}]`)
	})
}

func validate(a *answering) func() {
	return a.webhook(false, func(r *admissionv1.AdmissionResponse) { r.Result = &metav1.Status{Code: 418, Message: "no"} })
}

func forbid(a *answering) func() {
	return func() { a.allow("answers-reader", "get", "patch"); a.may("answers-reader") }
}

// revoke takes the pod away that the token is bound to. The cure is what kubelet does: another token in the same file.
func revoke(a *answering) func() {
	user := "system:serviceaccount:" + a.namespace + ":daemon"
	a.allow(user, "get", "patch")
	a.may(user)
	a.tokens.renew()
	if err := a.admin.Delete(a.t.Context(), a.tokens.pod, client.GracePeriodSeconds(0)); err != nil {
		a.t.Fatal(err)
	}
	return a.tokens.renew
}

// The grant went before the daemon owned nothing: the removal is told of, stays pending, and is made up for.
func TestRefusedRemovalStaysPending(t *testing.T) {
	const user = "answers-removed"
	c := newCluster(t, setting{user: user})
	c.allow(user, "get")
	c.allow(user, "patch")
	c.may(user)
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.status(pod, "10.0.0.1")
	grant := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "pods-patch"}}
	if err := c.admin.Delete(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	other := c.pod("q", nil)
	c.until("the grant is gone", func() bool {
		c.writer.Submit(record(other, "s2", "10.0.0.2", pool.WishPresent))
		return c.await().Verdict == pool.VerdictPending
	})
	c.event("PodAnnotationForbidden")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishAbsent), "absent pending forbidden", key)
	c.holds("p", key, "10.0.0.1")
	if n := c.writer.Pending(); n != 2 {
		t.Errorf("%d records pending, want the removal and the other pod's set", n)
	}
	c.allow(user, "patch", "get")
	c.may(user)
	c.writer.Submit(record(c.pod("r", nil), "s3", "10.0.0.3", pool.WishPresent)) // a patch that is taken brings the refused ones
	c.until("removed", func() bool { _, there := c.read("p").Annotations[key]; return !there })
	c.until("none is pending", func() bool { return c.writer.Pending() == 0 })
}

var update = flag.Bool("update", false, "rewrite the table of answers in the operators' page (make docs)")

const operatorsPage = "../docs/annotation.md"

// The operators' page has the rows that are lived above.
func TestAnswersPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("| The API server's answer | ADD | What follows | Event | `reason` in the metric |\n|---|---|---|---|---|\n")
	for _, row := range rows() {
		follows := "nothing more to do"
		switch {
		case row.first == "done ok":
			follows = "it is written"
		case row.next > 0:
			follows = fmt.Sprintf("tried again after %s, later every %s at most", row.next, row.limit)
		}
		event := "none"
		switch {
		case row.after == 1:
			event = "`" + row.event + "`, at once"
		case row.after > 1:
			event = fmt.Sprintf("`%s`, after %d failures", row.event, row.after)
		}
		fmt.Fprintf(&b, "| %s | nothing | %s | %s | `%s` |\n", row.answer, follows, event, row.reason)
	}
	text, err := os.ReadFile(operatorsPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- answers:begin -->\n", "<!-- answers:end -->"
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no %q ... %q", operatorsPage, begin, end)
	}
	want := head + begin + b.String() + end + tail
	if *update {
		if err := os.WriteFile(operatorsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s is stale: run `make docs`", operatorsPage)
	}
}
