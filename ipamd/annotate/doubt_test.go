package annotate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Requests whose outcome is not known, and sandboxes that outlive their turn: in virtual time, as in writer_test.go.

// The clear that finds the value has seen the only set carried out; nothing is left to wait for.
func TestUnansweredSetThatArrivedIsSettledByTheClear(t *testing.T) {
	lose := func(m *memory, _ *Config) {
		m.fate = func(string) fate { return fate{lost: len(m.requests) == 1, late: time.Second} }
	}
	virtually(t, lose, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(5 * time.Second)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(6 * time.Second)
		b.expect("empty done ok")
		b.holds("p", "")
	})
}

// A set that is carried out after the clear was judged must not stay: the clear is not done before the set can arrive no
// more.
func TestLateSetIsClearedAgain(t *testing.T) {
	lose := func(m *memory, _ *Config) {
		m.fate = func(string) fate { return fate{lost: len(m.requests) == 1, late: 22 * time.Second} }
	}
	virtually(t, lose, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(5 * time.Second)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(10 * time.Second)
		b.holds("p", "<none>")
		b.expect("empty pending unsettled")
		after(8 * time.Second)
		after(5 * time.Second)
		b.holds("p", "")
		b.expect("empty done ok")
	})
}

// A clear in doubt may arrive after the pod's new sandbox, with the same address, has written its value.
func TestLateClearIsWrittenOver(t *testing.T) {
	lose := func(m *memory, _ *Config) {
		m.fate = func(string) fate { return fate{lost: len(m.requests) == 2, late: 12 * time.Second} }
	}
	virtually(t, lose, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.w.Submit(record("p", "u1", "s2", "10.0.0.1", pool.WishPresent))
		after(9500 * time.Millisecond)
		b.holds("p", "10.0.0.1")
		b.expect("present done ok", "empty pending timeout", "present done ok", "empty gone superseded")
		after(2 * time.Second)
		b.holds("p", "") // the late clear
		after(5 * time.Second)
		b.holds("p", "10.0.0.1")
		after(time.Hour)
		b.expect()
		if b.w.Pending() != 0 {
			b.t.Error("still looking")
		}
	})
}

// A daemon that was killed may have left a set on its way: the next one's clear is not done at once when it finds nothing.
func TestClearAfterRestartWaitsForFormerSets(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(5 * time.Second)
		b.expect("empty pending unsettled")
		b.api.change("ns", "p", func(p *corev1.Pod) { p.Annotations = map[string]string{DefaultKey: "10.0.0.1"} })
		after(6 * time.Second)
		b.holds("p", "")
		b.expect("empty done ok")
		// Long after the start there is nothing to wait for.
		after(time.Minute)
		b.api.add("ns", "q", "u2")
		b.w.Submit(record("q", "u2", "s1", "10.0.0.2", pool.WishEmpty))
		after(time.Second)
		b.expect("empty gone absent")
		b.holds("q", "<none>")
	})
}

// One UID, two sandboxes, the same address again: the old one's clear is over without a request.
func TestA3OldSandboxWithTheSameAddressIsOver(t *testing.T) {
	virtually(t, nil, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.w.Submit(record("p", "u1", "s2", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		before := b.api.count()
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.holds("p", "10.0.0.1")
		b.expect("present done ok", "present done ok", "empty gone superseded")
		if sent := b.api.count() - before; sent != 0 {
			b.t.Errorf("%d requests for the old sandbox", sent)
		}
		b.w.Submit(record("p", "u1", "s2", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.holds("p", "")
		b.expect("empty done ok")
	})
}

// The set of a sandbox that has a successor is never written over the successor's, however late it is retried.
func TestOutlivedSetIsNotWritten(t *testing.T) {
	down := true
	refuse := func(m *memory, _ *Config) {
		m.fate = func(string) fate {
			if down {
				return fate{never: true, err: apierrors.NewServiceUnavailable("x")}
			}
			return fate{}
		}
	}
	virtually(t, refuse, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.w.Submit(record("p", "u1", "s2", "10.0.0.2", pool.WishPresent))
		down = false
		after(10 * time.Minute)
		b.holds("p", "10.0.0.2")
		if slices.Contains(b.api.history[podName{"ns", "p"}], "10.0.0.1") {
			b.t.Error("the old sandbox's address was written")
		}
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Minute)
		b.holds("p", "10.0.0.2")
		b.expect("present pending server", "present done ok", "empty gone value")
	})
}
