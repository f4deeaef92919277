package cni

import (
	"context"
	"time"
)

// until is a context that ends at a moment, without a timer: the plugin's calls read the moment and bound themselves by it.
// A timer would set up the runtime's poller, which nothing else in the plugin needs.
type until time.Time

func within(d time.Duration) context.Context { return until(time.Now().Add(d)) }

// Deadline implements context.Context.
func (u until) Deadline() (time.Time, bool) { return time.Time(u), true }

// Done implements context.Context: nobody is waked.
func (u until) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (u until) Err() error {
	if time.Now().Before(time.Time(u)) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements context.Context: it carries nothing.
func (u until) Value(any) any { return nil }
