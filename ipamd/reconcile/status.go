package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Status is the loop's state at one moment, for introspection and metrics.
type Status struct {
	Ready    bool
	Observed time.Time `json:",omitzero"`  // EC2's last reading that succeeded
	Busy     []string  `json:",omitempty"` // kinds of effects that run at this moment
	Waiting  []WaitingADD
	Errors   LastErrors
	Pool     pool.View
	// NoAddress says why a pod that comes now would have to wait; "" where an address is free.
	NoAddress string `json:",omitempty"`
	// NextWake is when time alone may change what is planned.
	NextWake time.Time `json:",omitzero"`
}

// WaitingADD is an ADD that has no address yet.
type WaitingADD struct {
	Key   pool.Key
	Pod   pool.Pod
	Since time.Time
}

// LastErrors are the last failures by kind; "" where the last try succeeded.
type LastErrors struct {
	Load  string `json:",omitempty"`
	Save  string `json:",omitempty"`
	Cloud string `json:",omitempty"`
	Host  string `json:",omitempty"`
}

// Status gives the present state. Error: ErrStopped.
func (l *Loop) Status(ctx context.Context) (Status, error) {
	var status Status
	err := l.ask(ctx, func(reply chan<- error) {
		status = l.status()
		reply <- nil
	})
	if err != nil {
		return Status{}, err
	}
	return status, nil
}

// LastErrors gives the last failures, at less cost than Status. Error: ErrStopped.
func (l *Loop) LastErrors(ctx context.Context) (LastErrors, error) {
	var last LastErrors
	err := l.ask(ctx, func(reply chan<- error) {
		last = l.errors
		reply <- nil
	})
	return last, err
}

// Kinds are the kinds of effects that Status.Busy can have.
func Kinds() []string { return []string{KindCloud, KindHost, KindSave} }

func (l *Loop) status() Status {
	now := l.cfg.Clock()
	s := Status{
		Ready:    l.pool.Settled(),
		Observed: l.cloud.observed,
		Errors:   l.errors,
		Pool:     l.pool.View(now),
	}
	if !slices.ContainsFunc(s.Pool.Addresses, func(a pool.AddressView) bool { return a.Condition == pool.Free }) {
		s.NoAddress = l.pool.Why(now)
	}
	s.NextWake, _ = l.pool.NextWake(now)
	for _, work := range []struct {
		kind string
		busy bool
	}{{KindCloud, l.cloud.busy}, {KindHost, l.host.busy}, {KindSave, l.save.busy}} {
		if work.busy {
			s.Busy = append(s.Busy, work.kind)
		}
	}
	for _, w := range l.waiters {
		s.Waiting = append(s.Waiting, WaitingADD{Key: w.request.Key, Pod: w.request.Pod, Since: w.since})
	}
	return s
}
