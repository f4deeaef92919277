package reconcile

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// cloudWork is the one call to EC2 that runs at a time: readings and actions never overlap, so that a reading never misses
// what an action did.
type cloudWork struct {
	busy     bool
	asked    string    // why EC2 is to be read although the plan does not need it
	glance   bool      // a look at the metadata may be enough for that
	observed time.Time // the last reading that succeeded
	looked   time.Time // the last reading, or look at the metadata that found nothing new
}

func (l *Loop) startCloud(ctx context.Context, now time.Time) {
	if l.cloud.busy {
		return
	}
	if reason := l.pool.NeedObserve(l.cloud.asked, now); reason != "" {
		l.observe(ctx, reason)
		return
	}
	actions := l.pool.Plan(now)
	if len(actions) == 0 {
		return
	}
	l.act(ctx, actions[0], now)
}

func (l *Loop) observe(ctx context.Context, reason string) {
	glance := l.cloud.glance && reason == l.cloud.asked
	l.cloud.busy, l.cloud.asked, l.cloud.glance = true, "", false
	l.log.Debug("reading EC2", "reason", reason, "where_changed", glance)
	var obs pool.Observation
	same := false
	l.start(ctx, Effect{KindCloud, "Observe"}, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, cloudDeadline)
		defer cancel()
		if same = glance && !l.cfg.Cloud.Changed(ctx); same {
			return nil
		}
		obs, err = l.cfg.Cloud.Observe(ctx)
		return err
	}, func(err error) {
		l.cloud.busy = false
		now := l.cfg.Clock()
		l.errors.Cloud = text(err)
		if err != nil {
			l.log.Warn("EC2 not read", "err", err)
			l.pool.ObserveFailed(err, now)
			return
		}
		l.cloud.looked = now
		if same {
			return
		}
		l.cloud.observed = now
		l.pool.FoldObservation(obs, now)
		l.host.compare = true
		for _, lost := range l.pool.Lost() {
			l.log.Error("address of a running pod is not ours at EC2 any more", "pod", lost.Pod.Namespace+"/"+lost.Pod.Name,
				"sandbox", lost.Key.Sandbox, "addr", lost.Addr.String(), "eni", lost.ENI)
		}
	})
}

func (l *Loop) act(ctx context.Context, action pool.Action, now time.Time) {
	l.cloud.busy = true
	l.pool.Begin(action, now)
	l.host.compare = true
	l.log.Info("cloud action", "action", action.String(), "reason", l.pool.Decision().Reason)
	if !pool.GivesBack(action) {
		l.carryOut(ctx, action)
		return
	}
	l.afterSave(func(err error) {
		if err != nil {
			l.acted(action, pool.Outcome{}, &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("not tried, because the state could not be saved: %w", err)})
			return
		}
		l.carryOut(ctx, action)
	})
}

func (l *Loop) carryOut(ctx context.Context, action pool.Action) {
	var out pool.Outcome
	l.start(ctx, Effect{KindCloud, pool.ActionName(action)}, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, cloudDeadline)
		defer cancel()
		out, err = l.cfg.Cloud.Do(ctx, action)
		return err
	}, func(err error) { l.acted(action, out, err) })
}

func (l *Loop) acted(action pool.Action, out pool.Outcome, err error) {
	l.cloud.busy = false
	l.host.compare = true
	l.errors.Cloud = text(err)
	now := l.cfg.Clock()
	if err != nil {
		l.log.Warn("cloud action failed", "action", action.String(), "err", err)
		l.pool.Failed(action, err, now)
		return
	}
	l.pool.Fold(action, out, now)
}

// hostWork is the one pass over the kernel that runs at a time.
type hostWork struct {
	busy      bool
	audit     bool    // the next pass counts as an audit
	compare   bool    // the wanted state may differ from what was applied last
	causes    reasons // why a pass is wanted
	applied   pool.HostState
	urgent    bool      // one of them is more than a notice of the kernel
	spaced    time.Time // notices wait until then
	notBefore time.Time
	retry     time.Duration
}

func (h *hostWork) trigger(reason string) { h.causes.add(reason) }

// startHost brings the kernel to the wanted state, not before EC2 has been read, and read without doubt: a wish that lacks an
// ENI would take the tables of running pods away.
func (l *Loop) startHost(ctx context.Context, now time.Time) {
	h := &l.host
	if h.busy || !l.pool.Trusted() {
		return
	}
	if h.compare {
		h.compare = false
		want := l.pool.HostState()
		want.Pods = h.applied.Pods // no reason by themselves: the plugin builds them
		if !reflect.DeepEqual(want, h.applied) {
			h.trigger("wanted state changed")
			h.urgent = true
		}
	}
	if l.pool.NeedHost(now) {
		h.trigger("addresses released")
		h.urgent = h.urgent || len(l.waiters) > 0
	}
	if len(h.causes) == 0 || h.notBefore.After(now) || !h.urgent && h.spaced.After(now) {
		return
	}
	want := l.pool.HostState()
	reading := pool.HostReading{Began: now, Audit: h.audit}
	l.log.Debug("applying host state", "reason", h.causes.String())
	h.busy, h.audit, h.urgent, h.causes, h.applied = true, false, false, nil, want
	h.spaced = now.Add(hostSpacing)
	var report pool.HostReport
	l.start(ctx, Effect{KindHost, "Apply"}, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, hostDeadline)
		defer cancel()
		report, err = l.cfg.Host.Apply(ctx, want)
		return err
	}, func(err error) {
		h.busy = false
		reading.Now = l.cfg.Clock()
		l.errors.Host = text(err)
		if err != nil {
			l.log.Error("host state not applied", "err", err)
			h.audit = h.audit || reading.Audit
			h.retry = grown(h.retry)
			h.notBefore = reading.Now.Add(h.retry)
			h.trigger("retry")
			return
		}
		h.retry = 0
		for _, ended := range l.pool.FoldHost(report, reading) {
			l.cfg.Ended(ended)
			l.log.Warn("allocation ended by evidence", "evidence", string(ended.Evidence), "pod", ended.Pod.Namespace+"/"+ended.Pod.Name,
				"sandbox", ended.Key.Sandbox, "addr", ended.Addr.String())
		}
	})
}

// saveWork is the one save that runs at a time. Whatever changes while it runs is in the next one: a burst of commands costs
// two saves, not one each.
type saveWork struct {
	busy      bool
	revision  uint64 // of the pool, as last saved
	waiting   []func(error)
	notBefore time.Time
	retry     time.Duration
}

// afterSave runs f on the loop's goroutine once the present state is on disk, or could not be put there.
func (l *Loop) afterSave(f func(error)) { l.save.waiting = append(l.save.waiting, f) }

func (l *Loop) startSave(ctx context.Context, now time.Time) {
	s := &l.save
	if s.busy {
		return
	}
	revision := l.pool.Revision()
	if revision == s.revision { // all is on disk
		callbacks := s.waiting
		s.waiting = nil
		answer(callbacks, nil)
		return
	}
	if len(s.waiting) == 0 && s.notBefore.After(now) {
		return
	}
	s.busy = true
	snapshot, records, callbacks := l.pool.Snapshot(), l.pool.Submissions(), s.waiting
	s.waiting = nil
	l.spawn(ctx, func() error {
		err := l.cfg.Seam(ctx, Effect{KindSave, "state"}, func(context.Context) error { return l.cfg.Store.Save(snapshot) })
		if err == nil {
			l.submit(ctx, records)
		}
		return err
	}, func(err error) {
		s.busy = false
		l.errors.Save = text(err)
		if err != nil {
			l.log.Error("state not saved", "err", err)
			l.pool.Resubmit(records)
			s.retry = grown(s.retry)
			s.notBefore = l.cfg.Clock().Add(s.retry)
		} else {
			s.revision, s.retry = revision, 0
		}
		answer(callbacks, err)
	})
}

// submit hands records to the annotator: after the save that holds them, before the ADD or DEL is answered.
func (l *Loop) submit(ctx context.Context, records []pool.Annotation) {
	if l.cfg.Annotator == nil {
		return
	}
	for _, record := range records {
		// The seam's error is a simulated crash: the record is on disk, and the next life submits it.
		_ = l.cfg.Seam(ctx, Effect{KindAnnotate, "Submit"}, func(context.Context) error {
			l.cfg.Annotator.Submit(record)
			return nil
		})
	}
}

func answer(callbacks []func(error), err error) {
	for _, f := range callbacks {
		f(err)
	}
}

// grown is the next pause between retries.
func grown(pause time.Duration) time.Duration {
	return min(max(2*pause, retryFirst), retryLimit)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
