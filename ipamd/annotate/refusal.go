package annotate

import (
	"cmp"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// A refused request (permissions, an admission policy, validation) is refused again until a person changes something. Two
// things follow.
//
// A refused clear is answered at once, because the pool waits for the answer before it gives the address out freely. But the
// dead address still stands on the pod, and a completed pod, or one that a finalizer holds, may keep it for days while
// another pod gets the address. So the record is kept and tried again, ever more slowly, until the clear is done, the pod is
// gone, or it is given up.
//
// What a person changed is seen first by whoever asks next. A patch that is taken brings all refused records forward.

const (
	// refusalPatience is how long a refused clear is tried again, from the beginning of its wish. Who has not seen the event
	// within a day will not see it later either.
	refusalPatience = 24 * time.Hour
	// refusalsKept is how many younger refused clears it takes to give one up at its turn. Without permission every pod that
	// ends leaves one, and each is part of the state file; two full nodes' worth (kubelet's default is 110 pods) covers all
	// that were written before the permission was lost.
	refusalsKept = 220
)

// refusal parts what was refused from what was not.
func (r *run) refusal() (refused, rest []judgement) {
	for _, j := range r.judged {
		if j.verdict == pool.VerdictRefused {
			refused = append(refused, j)
		} else {
			rest = append(rest, j)
		}
	}
	return refused, rest
}

// foldRefused: a clear of which some keys were refused. What is judged is answered once, the refused keys stay.
func (w *Writer) foldRefused(p *pod, e *entry, r *run) []pool.Answer {
	now := w.now()
	refused, rest := r.refusal()
	why := reply{class: denied, reason: refused[0].reason}
	if now.Sub(e.record.Since) >= refusalPatience || w.younger(e) >= refusalsKept {
		for i := range refused {
			refused[i].verdict, refused[i].reason = pool.VerdictGone, reasonAbandoned
		}
		w.report.trouble(e.record, reply{class: denied, reason: reasonAbandoned}, 1)
		p.drop(e)
		return e.answers(append(rest, refused...))
	}
	var answers []pool.Answer
	if p.doubtfulSet(e.record.Owner, now).IsZero() && len(rest) > 0 {
		answers = e.answers(rest)
		e.record.Keys, e.record.Stale = nil, nil
		for _, j := range refused {
			e.record.Keys = append(e.record.Keys, j.keys...)
		}
	}
	e.refused = true
	w.putOff(e, why)
	w.report.trouble(e.record, why, e.failures)
	if e.tell("refused " + why.reason) {
		answers = append(answers, e.answers(refused)...)
	}
	return answers
}

// younger counts the refused clears that began after e's.
func (w *Writer) younger(e *entry) int {
	count := 0
	for _, p := range w.known {
		for _, o := range p.entries {
			if o != e && o.refused && o.newer(e) {
				count++
			}
		}
	}
	return count
}

// putOff sets the next attempt. A refused record that was brought forward in vain goes back to its turn.
func (w *Writer) putOff(e *entry, why reply) {
	now := w.now()
	persons := why.class == refused || why.class == denied
	if persons && e.turn.After(now) {
		e.due = e.turn
		return
	}
	e.due = now.Add(w.delay(why, e.failures))
	e.failures++
	e.blocked = ""
	if why.class == waiting || why.class == distant {
		e.blocked = why.reason
	}
	e.turn, e.hurried = time.Time{}, false
	if persons {
		e.turn = e.due
	}
}

// hurry brings refused records forward, spread like a pass, and gives their pods: a patch was taken, so what refused them
// may be gone. Each is brought forward once between two turns of its own, so that one pod's refusal does not double the load
// of all others' successes. A pod's records come together: its living sandbox's value goes before a dead one's clear.
func (w *Writer) hurry() []podName {
	now := w.now()
	var names []podName
	for name, p := range w.known {
		for _, e := range p.entries {
			if e.waitsForTurn(now) {
				names = append(names, name)
				break
			}
		}
	}
	slices.SortFunc(names, func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, name := range names {
		due := w.nextInPass(now)
		for _, e := range w.known[name].entries {
			if e.waitsForTurn(now) {
				e.hurried, e.due = true, earlier(due, e.turn)
			}
		}
	}
	return names
}

// waitsForTurn tells a refused record that has not been brought forward since its last turn.
func (e *entry) waitsForTurn(now time.Time) bool {
	return !e.hurried && e.turn.After(now) && e.due.Equal(e.turn)
}
