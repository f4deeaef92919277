package pingready

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// recorder gathers what is known of each pod, from the kubelets' and policy agents' events and from a watch of its own.
// It is a podapi.Handler.
type recorder struct {
	key string // the annotation's

	mu      sync.Mutex
	pods    map[string]*record // by UID
	changed chan struct{}      // closed and replaced at every change
}

// record is one pod's moments; the zero time means "not yet".
type record struct {
	address          string
	addExec, addDone time.Time
	annotated        time.Time // the watch showed the address in the annotation
	programmed       time.Time // the kernel lets the address pass
	started          time.Time
	status           time.Time // the watch showed status.podIP
	gone             time.Time
	troubles         []string // all that went wrong
}

func newRecorder(key string) *recorder {
	return &recorder{key: key, pods: map[string]*record{}, changed: make(chan struct{})}
}

// of gives the record of a pod, which is made at first mention. Mu is held.
func (r *recorder) of(uid string) *record {
	if r.pods[uid] == nil {
		r.pods[uid] = &record{}
	}
	return r.pods[uid]
}

func (r *recorder) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// first keeps the first time that something was seen.
func first(at *time.Time, now time.Time) {
	if at.IsZero() {
		*at = now
	}
}

// take notes an event.
func (r *recorder) take(e event.Event) {
	if e.UID == "" {
		return // the node's, not a pod's
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of(e.UID)
	switch e.Kind {
	case event.AddExec:
		first(&p.addExec, e.At)
	case event.AddDone:
		first(&p.addDone, e.At)
	case event.ContainerStarted:
		first(&p.started, e.At)
		p.address = e.Address
	case event.Programmed:
		first(&p.programmed, e.At)
	case event.PodGone:
		first(&p.gone, e.At)
	case event.AddFailed, event.DelFailed, event.Unreadable, event.Trouble:
		p.troubles = append(slices.Clone(p.troubles), string(e.Kind)+": "+e.Detail) // copies of the record share the old list
	}
	r.change()
}

// Present implements podapi.Handler.
func (r *recorder) Present(pod *corev1.Pod, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of(string(pod.UID))
	if pod.Annotations[r.key] != "" {
		first(&p.annotated, at)
	}
	if pod.Status.PodIP != "" {
		first(&p.status, at)
	}
	r.change()
}

// Absent implements podapi.Handler.
func (r *recorder) Absent(*corev1.Pod, time.Time) {}

// get copies a pod's record.
func (r *recorder) get(uid string) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.of(uid)
}

// wait waits until all records of the given pods satisfy a condition. On failure it returns those that do not.
func (r *recorder) wait(ctx context.Context, uids []string, ok func(record) bool) (missing []string, err error) {
	for {
		r.mu.Lock()
		changed := r.changed
		missing = nil
		for _, uid := range uids {
			if !ok(*r.of(uid)) {
				missing = append(missing, uid)
			}
		}
		r.mu.Unlock()
		if len(missing) == 0 {
			return nil, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return missing, context.Cause(ctx)
		}
	}
}
