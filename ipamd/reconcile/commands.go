package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// ErrStopped is the answer when the loop has ended.
var ErrStopped = errors.New("the address loop has stopped")

// ErrUnknown is the answer about a sandbox that holds no address.
var ErrUnknown = pool.ErrUnknown

// ErrSuperseded is the answer about a sandbox whose pod has a newer one.
var ErrSuperseded = pool.ErrSuperseded

// NoAddressError says that an ADD's time ran out before an address could be given. Reason is a sentence for people.
type NoAddressError struct {
	Reason string
	Waited time.Duration
}

func (e *NoAddressError) Error() string {
	return fmt.Sprintf("%s (waited %s)", e.Reason, e.Waited.Round(time.Millisecond))
}

// SaveError says that the state could not be saved, so that nothing was given out.
type SaveError struct {
	Op  string
	Err error
}

func (e *SaveError) Error() string { return "save state for " + e.Op + ": " + e.Err.Error() }

func (e *SaveError) Unwrap() error { return e.Err }

// Lease is an assignment with the facts of its ENI.
type Lease struct {
	Assignment pool.Assignment
	ENI        pool.ENI
}

type leaseReply struct {
	lease Lease
	err   error
}

// waiter is an ADD that waits for an address.
type waiter struct {
	request pool.Request
	since   time.Time
	reply   chan leaseReply // one answer, never blocks
}

// Assign gives the sandbox an address, and waits for one until ctx ends, at most assignLimit. Waiting ADDs are served in the
// order of their arrival. The answer is on disk before it is given. Errors: *NoAddressError, ErrSuperseded, *SaveError,
// ErrStopped.
func (l *Loop) Assign(ctx context.Context, key pool.Key, pod pool.Pod, netns string) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, assignLimit)
	defer cancel()
	w := &waiter{request: pool.Request{Key: key, Pod: pod, NetNS: netns}, reply: make(chan leaseReply, 1)}
	if err := l.do(ctx, func() {
		w.since, w.request.Seq = l.cfg.Clock(), l.pool.Ticket()
		l.waiters = append(l.waiters, w)
	}); err != nil {
		return Lease{}, err
	}
	select {
	case r := <-w.reply:
		return r.lease, r.err
	case <-l.stopped:
		return Lease{}, ErrStopped
	case <-ctx.Done():
	}
	// The loop says whether it was still waiting: an address that is just being saved is taken, not lost.
	if err := l.do(context.WithoutCancel(ctx), func() { l.withdraw(w) }); err != nil {
		return Lease{}, err
	}
	select {
	case r := <-w.reply:
		return r.lease, r.err
	case <-l.stopped:
		return Lease{}, ErrStopped
	}
}

// Claimed tells all addresses that pods of the node name in their status or annotations, in place of those told before. It
// does nothing once the loop has ended.
func (l *Loop) Claimed(ctx context.Context, claims []pool.Claim) {
	_ = l.do(ctx, func() { l.pool.Claim(claims) })
}

func (l *Loop) withdraw(w *waiter) {
	for i, other := range l.waiters {
		if other == w {
			l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
			now := l.cfg.Clock()
			w.reply <- leaseReply{err: &NoAddressError{Reason: l.pool.Why(now), Waited: now.Sub(w.since)}}
			return
		}
	}
}

// serve gives addresses to waiting ADDs, first come first served; one whose pod may have its former address back is not held
// up by those before it.
func (l *Loop) serve(now time.Time) {
	var still []*waiter
	for _, w := range l.waiters {
		if !l.pool.Superseded(w.request) && !l.pool.CanAssign(w.request, now) {
			still = append(still, w)
			continue
		}
		_, repeated := l.pool.Lookup(w.request.Key)
		assigned, err := l.pool.Assign(w.request, now)
		if errors.Is(err, ErrSuperseded) {
			w.reply <- leaseReply{err: err}
			continue
		}
		if err != nil {
			still = append(still, w)
			continue
		}
		eni, _ := l.pool.ENI(assigned.ENI)
		for _, taken := range l.pool.Taken() {
			l.cfg.Taken(taken)
		}
		l.afterSave(func(err error) {
			if err != nil {
				if !repeated { // else an earlier call has answered it, and a plugin is at work with it
					l.pool.Abort(assigned.Key, l.cfg.Clock())
				}
				w.reply <- leaseReply{err: &SaveError{"assign", err}}
				return
			}
			w.reply <- leaseReply{lease: Lease{Assignment: assigned, ENI: eni}}
		})
	}
	l.waiters = still
	l.pool.Demand(len(still))
}

// Done tells that the sandbox's interface is in place; nil means that this is on disk. After any error the sandbox is not
// done: the plugin must remove what it made, and Abort then takes the address back. Errors: ErrUnknown, ErrSuperseded,
// *SaveError, ErrStopped.
func (l *Loop) Done(ctx context.Context, key pool.Key) error {
	err := l.change(ctx, func(reply chan<- error) {
		before, _ := l.pool.Lookup(key)
		if err := l.pool.Done(key, l.cfg.Clock()); err != nil {
			reply <- err
			return
		}
		l.afterSave(func(err error) {
			if err != nil {
				if !before.Done {
					l.pool.Undone(key)
				}
				err = &SaveError{"done", err}
			}
			reply <- err
		})
	})
	if errors.Is(err, context.DeadlineExceeded) { // a disk that hangs: what was not answered must not stand
		err = errors.Join(err, l.do(context.WithoutCancel(ctx), func() { l.pool.Undone(key) }))
	}
	return err
}

// Abort takes back an assignment whose connection closed before Done. It does nothing for a done or unknown sandbox.
func (l *Loop) Abort(ctx context.Context, key pool.Key) error {
	return l.change(ctx, func(reply chan<- error) {
		l.pool.Abort(key, l.cfg.Clock())
		l.afterSave(func(err error) { reply <- l.bear("abort", err) })
	})
}

// Release takes the sandbox's address back, and tells whether it had one. A state that cannot be saved does not fail it:
// should the daemon die now, the missing route ends the allocation again.
func (l *Loop) Release(ctx context.Context, key pool.Key) (pool.Assignment, bool, error) {
	var was pool.Assignment
	var found bool
	err := l.change(ctx, func(reply chan<- error) {
		was, found = l.pool.Release(key, l.cfg.Clock())
		l.afterSave(func(err error) { reply <- l.bear("release", err) })
	})
	if err != nil {
		return pool.Assignment{}, false, err
	}
	return was, found, nil
}

// Departed tells that a sandbox that Release did not know was deleted; link is the host veth that its pod's sandboxes have. A
// pod that runs without a record ends by it. Error: ErrStopped.
func (l *Loop) Departed(ctx context.Context, key pool.Key, pod pool.Pod, link string) error {
	return l.change(ctx, func(reply chan<- error) {
		l.pool.Departed(pod, key.Sandbox, link, l.cfg.Clock())
		reply <- nil
	})
}

// GC takes back every done assignment of the network that is not valid any more, and tells which. The caller must have made
// sure that the list of valid ones was really given.
func (l *Loop) GC(ctx context.Context, network string, valid []pool.Key) ([]pool.Key, error) {
	var freed []pool.Key
	err := l.change(ctx, func(reply chan<- error) {
		freed = l.pool.GC(network, valid, l.cfg.Clock())
		l.afterSave(func(err error) { reply <- l.bear("gc", err) })
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}

// Check gives the sandbox's assignment. Errors: ErrUnknown, ErrSuperseded, ErrStopped.
func (l *Loop) Check(ctx context.Context, key pool.Key) (Lease, error) {
	var lease Lease
	err := l.ask(ctx, func(reply chan<- error) {
		assigned, err := l.pool.Current(key)
		if err != nil {
			reply <- err
			return
		}
		lease.Assignment = assigned
		lease.ENI, _ = l.pool.ENI(assigned.ENI)
		reply <- nil
	})
	if err != nil {
		return Lease{}, err
	}
	return lease, nil
}

// Answered takes an annotation's answer. It never blocks and may be called at any time.
func (l *Loop) Answered(answer pool.Answer) { l.answers.put(answer) }

// bear logs a failed save that its command survives.
func (l *Loop) bear(op string, err error) error {
	if err != nil {
		l.log.Error("state not saved", "op", op, "err", err)
	}
	return nil
}

// change is ask for commands that end something: they are carried out even when the caller's time is over, which is often
// why they come.
func (l *Loop) change(ctx context.Context, command func(reply chan<- error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), assignLimit)
	defer cancel()
	return l.ask(ctx, command)
}

// ask runs a command on the loop's goroutine and waits for its answer.
func (l *Loop) ask(ctx context.Context, command func(reply chan<- error)) error {
	reply := make(chan error, 1)
	if err := l.do(ctx, func() { command(reply) }); err != nil {
		return err
	}
	select {
	case err := <-reply:
		return err
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("wait for the address loop: %w", ctx.Err())
	}
}

// do hands a command to the loop's goroutine.
func (l *Loop) do(ctx context.Context, command func()) error {
	select {
	case l.commands <- command:
		return nil
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("%w or has not started: %w", ErrStopped, ctx.Err())
	}
}
