package annotate

import (
	"context"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// refusals remembers the last refused patch of a run. A failed test and an admission policy's refusal look alike (422), so
// only a second refusal of the very same patch, with a reading between that shows nothing to fail on, is the server's word.
type refusals struct {
	uid   string
	held  []annotation
	reply reply
	times int
}

func (f *refusals) same(uid string, held []annotation) bool {
	return f.times > 0 && f.uid == uid && slices.Equal(f.held, held)
}

func (f *refusals) note(uid string, held []annotation, answer reply) {
	if !f.same(uid, held) {
		f.times = 0
	}
	f.uid, f.held, f.reply = uid, held, answer
	f.times++
}

// final tells whether the server will not take a patch that a reading says it should.
func (f *refusals) final(uid string, held []annotation) bool {
	if !f.same(uid, held) || f.reply.class != refused {
		return false
	}
	return f.reply.code != http.StatusUnprocessableEntity || f.times > 1
}

// empty sets "" on the keys that hold the owner's value and judges each key on its own. The first patch is sent without a
// read: its tests fail if anything is not as it was left, and then a read tells what.
//
// A warning about the API server (seen on 1.34, kubernetes#21175): it deletes a pod with grace period 0 in two steps, and a
// patch that comes between them makes it delete by name, without comparing UIDs. If a new pod of that name is made within
// the same millisecond, it is the one that goes. No form of patch can exclude that without a read before; controllers take
// longer than that to make a successor, and kubelet's own deletion comes well after DEL.
func (r *run) empty(ctx context.Context) {
	var rest []judgement // of keys that are not (any more) the owner's
	var refusals refusals
	r.glance() // for the UID of a static pod's mirror
	target := r.wanted(r.keys())
	if r.uid == "" || r.look {
		target = nil
	}
	for range rounds {
		if len(target) > 0 {
			answer := r.patch(ctx, opClear, target)
			switch answer.class {
			case done:
				r.judged = rest
				r.judge(keysOf(target), pool.VerdictDone, reasonOK)
				return
			case gone:
				r.notFound()
				return
			case refused, replaced, conflict:
				refusals.note(r.uid, target, answer)
			default:
				r.retry(answer)
				return
			}
		}
		pod, ok := r.subject(ctx)
		if !ok {
			return
		}
		target, rest = r.ours(pod, r.keys()), r.foreign(pod, r.keys())
		switch {
		case len(target) == 0:
			r.judged = rest
			return
		case refusals.final(r.uid, target):
			r.judged = rest
			r.judge(keysOf(target), pool.VerdictRefused, refusals.reply.reason)
			return
		}
	}
	r.retry(reply{class: busy, reason: reasonConflict})
}

// remove takes the keys away that hold the owner's value, once the pod's status has an address: until then the annotation
// is what a policy engine knows the pod by. A pod that is being deleted keeps them, because a key that vanishes says nothing
// to a reader; its DEL will set "".
//
// What the watch or an earlier request of the run shows is enough to wait, and to try: the patch fails where it is out of
// date. That nothing is left to remove, only the server's own word says.
func (r *run) remove(ctx context.Context, keys []string) {
	var refusals refusals
	pod := r.known(keys)
	for range rounds {
		if pod == nil {
			read, ok := r.subject(ctx)
			if !ok {
				return
			}
			pod = read
		}
		ours, rest := r.ours(pod, keys), r.foreign(pod, keys)
		if len(ours) == 0 {
			r.judged = append(r.judged, rest...)
			return
		}
		if why := notYet(pod); why != nil {
			r.retry(*why)
			return
		}
		if refusals.final(r.uid, ours) {
			r.retry(refusals.reply)
			return
		}
		answer := r.patch(ctx, opRemove, ours)
		pod = nil
		switch answer.class {
		case done:
			r.judge(keysOf(ours), pool.VerdictDone, reasonOK)
			r.judged = append(r.judged, rest...)
			return
		case gone:
			r.notFound()
			return
		case refused, replaced, conflict:
			refusals.note(r.uid, ours, answer)
		default:
			r.retry(answer)
			return
		}
	}
	r.retry(reply{class: busy, reason: reasonConflict})
}

// known gives the pod as it is known without another request, nil if that is not enough: as the run's own patch left it, or
// as the watch shows it with something to remove.
func (r *run) known(keys []string) *corev1.Pod {
	if r.seenPod != nil {
		return r.seenPod
	}
	if pod := r.glance(); pod != nil && !r.look && len(r.ours(pod, keys)) > 0 {
		return pod
	}
	return nil
}

// notYet says what a removal must wait for, nil if nothing.
func notYet(pod *corev1.Pod) *reply {
	switch {
	case pod.DeletionTimestamp != nil:
		return &reply{class: distant, reason: reasonTerminating}
	case pod.Status.PodIP == "" && len(pod.Status.PodIPs) == 0:
		return &reply{class: waiting, reason: reasonNoStatus}
	}
	return nil
}

// foreign judges the keys that do not hold the owner's value, by what the wish makes of that.
func (r *run) foreign(pod *corev1.Pod, keys []string) []judgement {
	emptied := r.record.Wish == pool.WishEmpty
	var judged []judgement
	for _, key := range keys {
		value, there := pod.Annotations[key]
		j := judgement{keys: []string{key}, verdict: pool.VerdictGone, reason: reasonValue}
		switch {
		case there && r.mine(key, value):
			continue
		case r.record.Wish == pool.WishPresent: // a stale key: not ours is all that is wished
			j.verdict, j.reason = pool.VerdictDone, reasonOK
		case emptied && there && value == "", !emptied && !there:
			j.verdict, j.reason = pool.VerdictDone, reasonOK // by an earlier request, or by somebody else
		case !there:
			j.reason = reasonMissing
		}
		judged = append(judged, j)
	}
	return judged
}
