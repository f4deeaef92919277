package annotate

import (
	"context"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// present writes the keys, then removes the stale ones: on a rename a reader always finds at least one of them.
func (r *run) present(ctx context.Context) {
	if !r.written {
		if !r.set(ctx) {
			return
		}
		r.judge(r.record.Keys, pool.VerdictDone, reasonOK)
	}
	if len(r.record.Stale) > 0 {
		r.remove(ctx, r.record.Stale)
	}
}

// set writes all keys at once and tells whether they are written. There is no read before it, unless the runtime did not
// pass the pod's UID or an earlier request may have undone the value. Where the watch shows that nothing differs, there is no
// request at all: should what it shows be out of date, its next news says so.
func (r *run) set(ctx context.Context) bool {
	keys := r.record.Keys
	if len(keys) == 0 {
		return true
	}
	wanted := r.wanted(keys)
	switch pod := r.glance(); {
	case pod != nil && pod.Spec.HostNetwork:
		r.end(pool.VerdictGone, reasonHostNetwork)
		return false
	case pod != nil && !r.look && !r.doubted && shows(pod, wanted):
		return true
	}
	if r.uid == "" || r.look {
		pod, ok := r.subject(ctx)
		if !ok {
			return false
		}
		if r.look && shows(pod, wanted) {
			r.seen = true
			return true
		}
	}
	for range rounds {
		answer := r.patch(ctx, opSet, wanted)
		switch answer.class {
		case done:
			return true
		case gone:
			r.notFound()
			return false
		case replaced, conflict:
			if _, ok := r.subject(ctx); !ok {
				return false
			}
		default:
			if answer.reason == reasonAltered { // perhaps the pod is in the host's network
				if _, ok := r.subject(ctx); !ok {
					return false
				}
			}
			r.retry(answer)
			return false
		}
	}
	r.retry(reply{class: busy, reason: reasonConflict})
	return false
}
