package annotate

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// reportEvery is the shortest time between two reports of one reason: hundreds of pods fail for the same one.
const reportEvery = 10 * time.Minute

// patience is how many attempts in a row may fail before a passing kind of trouble is reported: a single throttled or lost
// request is everyday life. The third failure comes about half a second after the first.
const patience = 3

// report tells people about trouble, once for each reason.
type report struct {
	logger *slog.Logger
	event  func(reason, message string)
	now    func() time.Time

	mu      sync.Mutex
	last    map[string]time.Time
	ongoing bool
}

// advice gives the event's reason and what to do, for the reasons that a person can do something about.
func advice(reason string) (event, text string) {
	switch reason {
	case reasonForbidden:
		return "PodAnnotationForbidden", "the API server forbids this service account to patch pods: grant it the verbs get and patch on pods. To do without, turn ANNOTATE_POD_IP off first and keep the grant until vpccni_annotations_owned is 0 on every node. Pods start, but policy engines learn their addresses late"
	case reasonWebhook:
		return "PodAnnotationDenied", "an admission webhook or policy refuses the pod-IP annotation: exempt this service account or the annotation key"
	case reasonInvalid:
		return "PodAnnotationInvalid", "the API server finds the pod-IP annotation invalid: check ANNOTATE_POD_IP_KEYS, and whether the pod has 256 KiB of annotations already"
	case reasonAltered:
		return "PodAnnotationAltered", "the API server refuses something else of the pod than the annotation: a mutating webhook changes the pod when it is annotated. Exempt this service account from the webhook"
	case reasonUnauthorized:
		return "PodAnnotationUnauthorized", "the API server does not accept this service account's token"
	case reasonThrottled:
		return "PodAnnotationThrottled", "the API server throttles the pod-IP annotation: check its priority and fairness settings"
	case reasonAbandoned:
		return "PodAnnotationAbandoned", "the API server refused for long to clear the pod-IP annotation of a sandbox that has ended: its pod names an address that may be another pod's now. Delete the pod or its annotation"
	case reasonContested:
		return "PodAnnotationContested", "somebody else keeps changing or removing the pod-IP annotation: it is written again, ever more slowly. Find who writes it (managedFields of the pod say), or take the key off ANNOTATE_POD_IP_KEYS"
	case reasonServer, reasonTimeout, reasonUnreachable:
		return "PodAnnotationDelayed", "the API server does not answer: pod-IP annotations are late and will be caught up"
	}
	return "", ""
}

// trouble takes one failed attempt.
func (r *report) trouble(record pool.Annotation, why reply, failures int) {
	event, text := advice(why.reason)
	r.logger.Debug("annotation put off", "pod", record.Pod.Namespace+"/"+record.Pod.Name, "sandbox", record.Sandbox,
		"addr", record.Addr, "wish", record.Wish, "reason", why.reason, "failures", failures, "err", why.err)
	if event == "" || why.class != refused && why.class != denied && failures < patience || !r.due(why.reason) {
		return
	}
	r.logger.Warn("cannot write pod-IP annotation", "reason", why.reason, "advice", text,
		"pod", record.Pod.Namespace+"/"+record.Pod.Name, "err", why.err)
	message := text
	if why.err != nil {
		message += " (" + why.err.Error() + ")"
	}
	r.event(event, message)
}

// overdue tells of clears that are not done long after their sandboxes have ended.
func (r *report) overdue(count int, oldest pool.Annotation, age string) {
	if !r.due(reasonOverdue) {
		return
	}
	pod := oldest.Pod.Namespace + "/" + oldest.Pod.Name
	message := fmt.Sprintf("%d pods still name the address of a sandbox that has ended, the oldest (%s, %s) for %s: other pods may be given these addresses now. "+
		"See the reasons in vpccni_annotation_requests_total and /v1/status; delete the pods or their pod-IP annotations if they stay", count, pod, oldest.Addr, age)
	r.logger.Warn("pod-IP annotations not cleared in time", "count", count, "pod", pod, "addr", oldest.Addr, "age", age)
	r.event("PodAnnotationClearOverdue", message)
}

func (r *report) due(reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if last, told := r.last[reason]; told && now.Sub(last) < reportEvery {
		return false
	}
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	r.last[reason] = now
	r.ongoing = true
	return true
}

// written takes a success.
func (r *report) written() {
	r.mu.Lock()
	ongoing := r.ongoing
	r.ongoing = false
	r.mu.Unlock()
	if ongoing {
		r.logger.Info("pod-IP annotations are written again")
	}
}
