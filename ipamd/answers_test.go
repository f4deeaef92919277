package ipamd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func answer(sandbox string, wish pool.Wish, verdict pool.Verdict) pool.Answer {
	return pool.Answer{Owner: pool.Owner{Sandbox: sandbox}, Wish: wish, Verdict: verdict}
}

func TestWaitingForAnAnswer(t *testing.T) {
	const limit = time.Second
	tests := []struct {
		name   string
		expect bool
		answer *pool.Answer
		after  time.Duration // of the answer; before the wait if 0
		want   time.Duration
	}{
		{"not expected", false, nil, 0, 0},
		{"answered before the wait", true, ptr(answer("a", pool.WishPresent, pool.VerdictDone)), 0, 0},
		{"answered in time", true, ptr(answer("a", pool.WishPresent, pool.VerdictDone)), limit / 4, limit / 4},
		{"refused in time", true, ptr(answer("a", pool.WishPresent, pool.VerdictRefused)), limit / 4, limit / 4},
		{"gone in time", true, ptr(answer("a", pool.WishPresent, pool.VerdictGone)), limit / 4, limit / 4},
		{"still pending", true, ptr(answer("a", pool.WishPresent, pool.VerdictPending)), limit / 4, limit},
		{"another wish", true, ptr(answer("a", pool.WishEmpty, pool.VerdictDone)), limit / 4, limit},
		{"another sandbox", true, ptr(answer("b", pool.WishPresent, pool.VerdictDone)), limit / 4, limit},
		{"too late", true, ptr(answer("a", pool.WishPresent, pool.VerdictDone)), 2 * limit, limit},
		{"never", true, nil, 0, limit},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				passed := 0
				a := newAnswers(func(pool.Answer) { passed++ })
				if test.expect {
					a.expect("a")
				}
				if test.answer != nil {
					if test.after == 0 {
						a.answered(*test.answer)
					} else {
						time.AfterFunc(test.after, func() { a.answered(*test.answer) })
					}
				}
				start := time.Now()
				a.wait(t.Context(), "a", limit)
				if took := time.Since(start); took != test.want {
					t.Errorf("waited %s, want %s", took, test.want)
				}
				<-time.After(3 * limit) // virtual time, until the last answer has come
				synctest.Wait()
				if (passed == 1) != (test.answer != nil) {
					t.Errorf("the loop heard %d answers", passed)
				}
				if len(a.expected) != 0 {
					t.Errorf("remembered: %v", a.expected)
				}
			})
		})
	}
}

func ptr[T any](value T) *T { return &value }

// A second ADD of a sandbox must neither take the answer away from the first nor wait for one that has come.
func TestOnlyTheFirstExpectsAnAnswer(t *testing.T) {
	a := newAnswers(func(pool.Answer) {})
	if !a.expect("a") || a.expect("a") {
		t.Error("two were the first, or none")
	}
	a.answered(answer("a", pool.WishPresent, pool.VerdictDone))
	if !a.expect("a") {
		t.Error("the answer has come, and is still expected")
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers(func(pool.Answer) {})
		a.expect("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		a.wait(ctx, "a", time.Hour)
		if took := time.Since(start); took != time.Millisecond {
			t.Errorf("waited %s", took)
		}
	})
}
