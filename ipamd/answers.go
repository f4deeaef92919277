package ipamd

import (
	"context"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// answers passes the annotator's answers on to the loop, and lets a pod's start wait for one (ANNOTATE_POD_IP_WAIT). A
// sandbox that never waits costs nothing here.
type answers struct {
	next func(pool.Answer)

	mu       sync.Mutex
	expected map[string]chan struct{} // by sandbox id; closed by the first final answer to a present wish
}

func newAnswers(next func(pool.Answer)) *answers {
	return &answers{next: next, expected: map[string]chan struct{}{}}
}

// answered takes an answer. The loop hears of it first: who waits may look at its state.
func (a *answers) answered(answer pool.Answer) {
	a.next(answer)
	if answer.Wish != pool.WishPresent || answer.Verdict == pool.VerdictPending {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting := a.expected[answer.Owner.Sandbox]; waiting != nil {
		close(waiting)
		delete(a.expected, answer.Owner.Sandbox)
	}
}

// expect must come before the address is chosen: the answer may be faster than the plugin. It tells whether nobody expected
// the answer before.
func (a *answers) expect(sandbox string) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.expected[sandbox] != nil {
		return false
	}
	a.expected[sandbox] = make(chan struct{})
	return true
}

func (a *answers) forget(sandbox string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.expected, sandbox)
}

// wait returns when the sandbox's annotation was answered, after limit, or when ctx ends, and forgets the sandbox.
func (a *answers) wait(ctx context.Context, sandbox string, limit time.Duration) {
	a.mu.Lock()
	waiting := a.expected[sandbox]
	a.mu.Unlock()
	if waiting == nil {
		return // answered already, or never expected
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-waiting:
	case <-timer.C:
	case <-ctx.Done():
	}
	a.forget(sandbox)
}
