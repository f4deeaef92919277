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
// pass the pod's UID or an earlier request may have undone the value.
func (r *run) set(ctx context.Context) bool {
	keys := r.record.Keys
	if len(keys) == 0 {
		return true
	}
	if r.uid == "" || r.look {
		pod, ok := r.subject(ctx)
		if !ok {
			return false
		}
		if r.look && len(r.ours(pod, keys)) == len(keys) {
			return true
		}
	}
	for range rounds {
		answer := r.patch(ctx, opSet, keys)
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
			r.retry(answer)
			return false
		}
	}
	r.retry(reply{class: busy, reason: reasonConflict})
	return false
}
