package sandbox

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// outcome is how a sandbox's containers ended.
type outcome int

const (
	ended      outcome = iota // the pod must end
	finished                  // they exited by themselves, as a Job's do
	restarted                 // the sandbox died: DEL, and a new one for the same pod
	overlapped                // the same, but its DEL comes after the new one's ADD
)

// RunTimeKey is an annotation by which a test makes a pod whose containers exit after a time, as a Job's do. Its object stays
// until somebody deletes it.
const RunTimeKey = "sandbox.vpc-cni.test/run-time"

// EndDelayKey is an annotation by which a test sets how late the end of such a pod is reported, as a duration; without it, as
// late as its address was.
const EndDelayKey = "sandbox.vpc-cni.test/end-delay"

func (a *Agent) endDelay(l *life) time.Duration {
	if own, err := time.ParseDuration(l.pod.Annotations[EndDelayKey]); err == nil {
		return own
	}
	return a.statusDelay(l)
}

// runTime gives what fires when the pod's containers exit; never where no time is set.
func runTime(pod *corev1.Pod) (done <-chan time.Time, stop func()) {
	d, err := time.ParseDuration(pod.Annotations[RunTimeKey])
	if err != nil {
		return nil, func() {}
	}
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// restart replaces a pod's sandbox by another.
func (a *Agent) restart(ctx context.Context, l *life, old box, how outcome) (box, netip.Addr, bool) {
	if how == restarted && !a.tearDown(ctx, l, old) {
		return box{}, netip.Addr{}, false
	}
	next, address, ok := a.begin(ctx, l)
	if how == overlapped && !a.tearDown(ctx, l, old) {
		return next, address, false
	}
	return next, address, ok
}

// finish reports that the pod's containers have exited, late, and waits until the pod must go.
func (a *Agent) finish(ctx context.Context, l *life) bool {
	select {
	case <-time.After(a.endDelay(l)):
		body := []byte(`{"metadata":{"uid":"` + string(l.pod.UID) + `"},"status":{"phase":"Succeeded"}}`)
		_, err := a.api.Patch(ctx, l.name(), "status", podapi.Patch{Type: types.MergePatchType, Body: body})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.tell(l, event.Event{Kind: event.Trouble, Detail: err.Error()})
		}
	case <-l.ending:
	case <-ctx.Done():
	}
	select {
	case <-l.ending:
		return true
	case <-ctx.Done():
		return false
	}
}
