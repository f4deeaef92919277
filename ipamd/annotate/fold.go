package annotate

import (
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// fold takes a run's findings into the entry and gives the answers to send. The caller holds the lock.
func (w *Writer) fold(p *pod, t task, r *run) []pool.Answer {
	owner := t.record.Owner
	now := w.now()
	p.sets[owner.Addr] += r.sets
	w.raise(p, owner.Pod, r.newest)
	// The last request of the run is the youngest: counting from its end is on the safe side.
	if r.doubtSet {
		p.doubts = append(p.doubts, doubt{owner, true, now.Add(w.settle)})
	}
	if r.doubtClear {
		p.doubts = append(p.doubts, doubt{owner, false, now.Add(w.settle)})
	}
	e := p.entries[owner]
	if e == nil {
		return nil
	}
	if r.uid != "" {
		e.uid = r.uid
	}
	e.drifted = false
	w.visited(e)
	if r.seen && p.sets[owner.Addr] == 1 {
		p.settle(owner) // the only set that there ever was has been carried out
	}
	if e.version != t.version {
		return nil // replaced while the run was on its way: its due time is set
	}
	if t.record.Wish == pool.WishPresent {
		return w.foldPresent(p, e, r)
	}
	return w.foldCleared(p, e, r)
}

// foldPresent: what is judged is answered; a written value is watched for as long as a request in doubt may take it away.
func (w *Writer) foldPresent(p *pod, e *entry, r *run) []pool.Answer {
	if r.over {
		p.drop(e)
		return e.answers(r.judged)
	}
	var answers []pool.Answer
	if !e.answered {
		answers = e.answers(r.judged)
		if r.acked && e.fresh {
			w.metrics.Written(w.now().Sub(e.record.Since))
		}
	}
	if r.wait != nil {
		e.written = e.written || len(r.judged) > 0
		return append(answers, w.wait(e, *r.wait)...)
	}
	w.report.written()
	e.written, e.answered, e.failures = true, true, 0
	e.due = time.Time{}
	if until := p.threat(e.record.Owner, w.now()); !until.IsZero() {
		e.due = earlier(w.now().Add(lookEvery), until)
	}
	return answers
}

// foldCleared: nothing is answered before every key is judged and no set can follow.
func (w *Writer) foldCleared(p *pod, e *entry, r *run) []pool.Answer {
	if r.wait != nil {
		return w.wait(e, *r.wait)
	}
	if refused, _ := r.refusal(); len(refused) > 0 {
		return w.foldRefused(p, e, r)
	}
	now := w.now()
	if until := p.doubtfulSet(e.record.Owner, now); !until.IsZero() && !r.over {
		e.failures = max(e.failures, 1)
		e.due = earlier(now.Add(lookEvery), until)
		return e.pending(reasonUnsettled)
	}
	p.drop(e)
	return e.answers(r.judged)
}

// wait sets the next attempt.
func (w *Writer) wait(e *entry, why reply) []pool.Answer {
	w.putOff(e, why)
	w.report.trouble(e.record, why, e.failures)
	return e.pending(why.reason)
}

// pending gives the answer Pending, once for each reason.
func (e *entry) pending(reason string) []pool.Answer {
	if e.answered || !e.tell(reason) {
		return nil
	}
	keys := e.record.Keys
	if e.written {
		keys = e.record.Stale
	}
	return []pool.Answer{{
		Owner: e.record.Owner, Wish: e.record.Wish, Keys: keys, Verdict: pool.VerdictPending, Reason: reason,
	}}
}

// tell tells whether something is said for the first time.
func (e *entry) tell(reason string) bool {
	if e.told[reason] {
		return false
	}
	if e.told == nil {
		e.told = map[string]bool{}
	}
	e.told[reason] = true
	return true
}

// answers words judgements, those that are alike in one answer.
func (e *entry) answers(judged []judgement) []pool.Answer {
	var answers []pool.Answer
next:
	for _, j := range judged {
		for i := range answers {
			if answers[i].Verdict == j.verdict && answers[i].Reason == j.reason {
				answers[i].Keys = append(answers[i].Keys, j.keys...)
				continue next
			}
		}
		answers = append(answers, pool.Answer{
			Owner: e.record.Owner, Wish: e.record.Wish, Keys: append([]string(nil), j.keys...), Verdict: j.verdict, Reason: j.reason,
		})
	}
	return answers
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
