package annotate

import (
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// A request that got no usable answer (time-out, lost connection, 5xx) may have been carried out, or be carried out after
// the next one. Two things must not follow from that.
//
// A set that arrives after the clear would leave a dead sandbox's address on the pod, for ever. Neither form of patch can
// rule it out: the set has no precondition but the UID (it is sent without a read before), and a clear cannot make it fail
// later. So the clear is written at once, but it only counts as done when the set can arrive no more: when the value was
// seen in the API and only one set was ever sent (a request is carried out at most once), or else when Settle has passed
// since. Until then the pod is read again and the value cleared again if it came. Settle covers the client's time-out (10 s,
// after which the connection or stream is closed behind the request, which cancels it on the server), the server's own
// deadline (the client asks for 8 s, see ipamd/kube) and a margin for a transaction that etcd already has.
//
// A clear, or another sandbox's set, that arrives after a set would take a living sandbox's value away. The set is answered
// at once; until Settle has passed since the doubtful request the pod is read again and the value written again if needed.
//
// A daemon that was killed may have left a set of its own in doubt: a record that starts its life here as a clear, within
// Settle of the start, counts as one with a doubtful set.

// defaultSettle is how long after its start an unanswered request may still be carried out.
const defaultSettle = 30 * time.Second

// lookEvery is the pace of reads while a request is in doubt. A clear in doubt holds back one address, so there is no hurry;
// a lost value of a living pod costs traffic, so it is not slow either.
const lookEvery = 5 * time.Second

// doubt is a request that may yet be carried out.
type doubt struct {
	owner pool.Owner
	set   bool // of the owner's value; otherwise a clear or a removal of it
	until time.Time
}

// doubtfulSet gives the time until which a set of the owner's value may be carried out (its own, or one of an earlier sandbox
// with the same address), zero if none is in doubt.
func (p *pod) doubtfulSet(owner pool.Owner, now time.Time) (until time.Time) {
	for _, d := range p.doubts {
		if d.set && sameValue(d.owner, owner) && d.until.After(now) {
			until = later(until, d.until)
		}
	}
	return until
}

// threat gives the time until which a value of the owner may yet be overwritten by a request in doubt: by a clear of the
// same value, or by another sandbox's set. A pod with another UID is another object: its requests carry that UID.
func (p *pod) threat(owner pool.Owner, now time.Time) (until time.Time) {
	for _, d := range p.doubts {
		if sameObject(d.owner, owner) && d.set != (d.owner.Addr == owner.Addr) && d.until.After(now) {
			until = later(until, d.until)
		}
	}
	return until
}

// sameObject tells whether requests of both owners can change the same API object.
func sameObject(a, b pool.Owner) bool {
	return a.Pod.UID == "" || b.Pod.UID == "" || a.Pod.UID == b.Pod.UID
}

// sameValue tells whether sets of both owners come to the same.
func sameValue(a, b pool.Owner) bool { return a.Addr == b.Addr && sameObject(a, b) }

// settle forgets the doubtful sets of an owner's value.
func (p *pod) settle(owner pool.Owner) {
	kept := p.doubts[:0]
	for _, d := range p.doubts {
		if !d.set || !sameValue(d.owner, owner) {
			kept = append(kept, d)
		}
	}
	p.doubts = kept
}

// expire forgets what can no more be carried out.
func (p *pod) expire(now time.Time) {
	kept := p.doubts[:0]
	for _, d := range p.doubts {
		if d.until.After(now) {
			kept = append(kept, d)
		}
	}
	p.doubts = kept
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
