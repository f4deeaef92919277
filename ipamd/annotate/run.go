package annotate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// requestTimeout bounds one request. It is longer than the API server's usual milliseconds by so much that an overloaded
// server still gets to answer, which is cheaper than a request whose outcome is unknown.
const requestTimeout = 10 * time.Second

// rounds is how often one run tries again after it learned something new by reading: a mirror pod's UID, a key that
// somebody else changed. Two are the usual need; who loses a third race waits like everybody else.
const rounds = 4

// mirrorAnnotation marks the API object that kubelet makes for a static pod. Its value is the static pod's own UID, which
// is what the runtime passes to the plugin; the object has another one.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// task is a copy of what one run needs of a record's entry.
type task struct {
	record     pool.Annotation
	version    uint64 // of the record
	uid        string // of the API object; "" if unknown
	look       bool   // read before writing: an earlier request is in doubt
	doubted    bool   // a request of the pod is in doubt: what the watch shows may not last
	floor      uint64 // resource version below which a glance at the watch is worth nothing
	gone       bool   // the watch has shown the object's deletion
	written    bool   // Keys are written and answered; only Stale is left
	superseded bool   // a living sandbox of this pod has the same address
}

// keys are all keys that may carry the owner's value.
func (t task) keys() []string {
	return append(slices.Clone(t.record.Keys), t.record.Stale...)
}

// judgement is what became of some keys.
type judgement struct {
	keys    []string
	verdict pool.Verdict
	reason  string
}

// run is one attempt at a task: a handful of requests at most. Its result is judged keys, or wait, or both (Keys written,
// Stale to be removed later).
type run struct {
	w *Writer
	task

	seenPod *corev1.Pod // as the last request showed it, nil if none did
	newest  uint64      // resource version that the run's requests have shown

	judged []judgement
	over   bool   // the whole record is judged, whatever requests are in doubt
	wait   *reply // why it is not finished; nil when it is

	taken      bool // the server took a patch
	acked      bool // a set was acknowledged
	sets       int  // how many sets may have been carried out
	seen       bool // the owner's value was in the API
	doubtSet   bool // a set of this run may yet be carried out
	doubtClear bool // a clear or removal of this run may yet be carried out
}

// execute carries out one task.
func (w *Writer) execute(ctx context.Context, t task) *run {
	r := &run{w: w, task: t}
	switch {
	case t.superseded:
		r.end(pool.VerdictGone, reasonSuperseded)
	case t.gone:
		r.end(pool.VerdictGone, reasonNotFound)
	case t.record.Wish == pool.WishPresent:
		r.present(ctx)
	case t.record.Wish == pool.WishEmpty:
		r.empty(ctx)
	default:
		r.remove(ctx, t.keys())
	}
	return r
}

func (r *run) judge(keys []string, verdict pool.Verdict, reason string) {
	if len(keys) > 0 {
		r.judged = append(r.judged, judgement{keys, verdict, reason})
	}
}

// end judges all keys alike, for good: nothing that is still on its way can change it.
func (r *run) end(verdict pool.Verdict, reason string) {
	r.judged, r.over = nil, true
	r.judge(r.keys(), verdict, reason)
}

func (r *run) retry(why reply) { r.wait = &why }

// operation names a kind of request, for metrics.
type operation string

const (
	opSet    operation = "set"
	opClear  operation = "clear"
	opRemove operation = "remove"
	opRead   operation = "read"
)

// patch sends one patch and keeps account of what may be in the API afterwards. The annotations are those to be set, or those
// that are there and are to go.
func (r *run) patch(ctx context.Context, op operation, annotations []annotation) reply {
	kind, encode := types.JSONPatchType, clearPatch
	switch op {
	case opSet:
		kind, encode = types.MergePatchType, mergePatch
	case opRemove:
		encode = removePatch
	}
	body, err := encode(r.uid, annotations)
	if err != nil {
		return reply{class: refused, reason: reasonInvalid, err: err}
	}
	answer := r.request(op, func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		pod, err := r.w.api.Patch(ctx, r.record.Pod.Namespace, r.record.Pod.Name, kind, body)
		r.saw(pod)
		return err
	})
	r.taken = r.taken || answer.class == done
	switch op {
	case opSet:
		r.acked = r.acked || answer.class == done
		r.doubtSet = r.doubtSet || answer.doubtful()
		if answer.class == done || answer.doubtful() {
			r.sets++
		}
	default:
		held := slices.ContainsFunc(annotations, func(a annotation) bool { return a.value != "" })
		r.seen = r.seen || held && answer.class == done // its tests passed
		r.doubtClear = r.doubtClear || answer.doubtful()
	}
	return answer
}

// read reads the pod.
func (r *run) read(ctx context.Context) (*corev1.Pod, reply) {
	var pod *corev1.Pod
	answer := r.request(opRead, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		pod, err = r.w.api.Get(ctx, r.record.Pod.Namespace, r.record.Pod.Name)
		r.saw(pod)
		return err
	})
	return pod, answer
}

func (r *run) request(op operation, send func() error) reply {
	start := r.w.now()
	answer := judge(r.w.around.do("annotation "+string(op), send))
	r.w.metrics.Request(string(op), answer.reason, r.w.now().Sub(start))
	return answer
}

// subject reads the pod and makes sure that it is the record's. Otherwise (ok false) the run is over.
func (r *run) subject(ctx context.Context) (pod *corev1.Pod, ok bool) {
	pod, answer := r.read(ctx)
	switch {
	case answer.class == gone:
		r.notFound()
	case answer.class == refused && r.record.Wish == pool.WishEmpty:
		r.end(pool.VerdictRefused, answer.reason)
	case answer.class != done:
		r.retry(answer)
	case !r.owns(pod):
		r.end(pool.VerdictGone, reasonUID)
	case pod.Spec.HostNetwork:
		r.end(pool.VerdictGone, reasonHostNetwork)
	default:
		return pod, true
	}
	return nil, false
}

// owns tells whether pod is the API object of the record's pod, and learns the object's UID.
func (r *run) owns(pod *corev1.Pod) bool {
	if !isPodOf(r.record, r.uid, pod) {
		return false
	}
	r.uid = string(pod.UID)
	return true
}

// isPodOf tells whether pod is the API object of the record's pod; uid is the object's as far as it is known.
func isPodOf(record pool.Annotation, uid string, pod *corev1.Pod) bool {
	own := record.Pod.UID
	switch is := string(pod.UID); {
	case uid == "" && own == "", is == uid, is == own:
		return true
	}
	return own != "" && pod.Annotations[mirrorAnnotation] == own
}

// notFound judges a record whose pod is not in the API. A static pod's mirror may still come: kubelet starts static pods
// without the API server.
func (r *run) notFound() {
	if r.record.Wish == pool.WishPresent && staticUID(r.record.Pod.UID) {
		r.retry(reply{class: waiting, reason: reasonMirror})
		return
	}
	r.end(pool.VerdictGone, reasonNotFound)
}

// staticUID tells the UID of a pod from a file or URL, an MD5 sum in hex (kubelet's applyDefaults), from those that the API
// server makes (RFC 4122, with hyphens).
func staticUID(uid string) bool {
	if len(uid) != 32 {
		return false
	}
	for _, c := range uid {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// saw takes what a request showed of the pod.
func (r *run) saw(pod *corev1.Pod) {
	if r.seenPod = pod; pod != nil {
		r.newest = max(r.newest, version(pod))
	}
}

// ours gives the keys that hold the owner's value, with the value.
func (r *run) ours(pod *corev1.Pod, keys []string) []annotation {
	var ours []annotation
	for _, key := range keys {
		if value, ok := pod.Annotations[key]; ok && r.mine(key, value) {
			ours = append(ours, annotation{key, value})
			r.seen = r.seen || value != ""
		}
	}
	return ours
}

// mine tells whether the value is the owner's, or "" that an earlier sandbox's clear left and that is to go.
func (r *run) mine(key, value string) bool {
	if value == "" {
		return r.record.Wish != pool.WishEmpty && slices.Contains(r.record.Emptied, key)
	}
	return r.w.owned(r.record, value)
}

// wanted gives the keys with the values that the record wants there, or that it left there.
func (r *run) wanted(keys []string) []annotation { return r.w.wanted(r.record, keys) }
