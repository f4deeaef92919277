package annotate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// watching gives the writer a watch that is late by lag.
func watching(lag time.Duration) func(*memory, *Config) {
	return func(m *memory, c *Config) {
		m.lag = func() time.Duration { return lag }
		c.Pods = m
		close(m.begun)
	}
}

// The watch still shows the value that we have emptied ourselves: the next sandbox of the pod, with the same address, writes
// it all the same.
func TestWatchOlderThanOurOwnClearIsNotBelieved(t *testing.T) {
	virtually(t, watching(5*time.Second), func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Minute)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(time.Second)
		b.w.Submit(record("p", "u1", "s2", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		b.holds("p", "10.0.0.1")
		b.expect("present done ok", "empty done ok", "present done ok")
		after(time.Minute)
		if n := b.api.count(); n != 3 {
			b.t.Errorf("%d requests: %v", n, b.api.requests)
		}
	})
}

// Who changes the value again and again is answered ever more slowly, and is told of.
func TestContestedValueIsRepairedEverMoreSlowly(t *testing.T) {
	virtually(t, watching(10*time.Millisecond), func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Second)
		for range 600 { // ten minutes of somebody who comes every second
			b.api.change("ns", "p", func(p *corev1.Pod) { delete(p.Annotations, DefaultKey) })
			after(time.Second)
		}
		if n := b.api.count(); n < 5 || n > 15 {
			b.t.Errorf("%d requests", n)
		}
		if diff := cmp.Diff([]string{"PodAnnotationContested"}, b.events); diff != "" {
			b.t.Errorf("events (-want +got):\n%s", diff)
		}
		after(10 * time.Minute)
		b.holds("p", "10.0.0.1")
	})
}

// How long it takes until others can see the value is measured by the watch, and apart from the server's answer.
func TestVisibleIsWhenTheWatchShowsIt(t *testing.T) {
	counts := &counter{requests: map[string]int{}}
	late := func(m *memory, c *Config) {
		watching(3*time.Second)(m, c)
		c.Metrics = counts
	}
	virtually(t, late, func(b *bench) {
		b.api.add("ns", "p", "u1")
		after(time.Minute)
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		after(time.Minute)
		b.api.change("ns", "p", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }) // shown again, counted once
		after(time.Minute)
		leftover := record("p", "u1", "s1", "10.0.0.1", pool.WishPresent)
		leftover.Since = leftover.Since.Add(-time.Hour)
		b.w.Submit(leftover)
		after(time.Minute)
		want := []time.Duration{3*time.Second + 5*time.Millisecond}
		if diff := cmp.Diff(want, counts.visible); diff != "" {
			b.t.Errorf("visible after (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]time.Duration{5 * time.Millisecond}, counts.written); diff != "" {
			b.t.Errorf("written after (-want +got):\n%s", diff)
		}
	})
}

// A clear that is not done after ten minutes has an event of its own, and is counted until it is done.
func TestOverdueClearIsTold(t *testing.T) {
	refused := true
	forbid := func(m *memory, _ *Config) {
		m.fate = func(string) fate {
			if refused {
				return fate{never: true, err: status(500, nil)}
			}
			return fate{}
		}
	}
	virtually(t, forbid, func(b *bench) {
		refused = false
		b.api.add("ns", "p", "u1")
		b.api.add("ns", "q", "u2")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishPresent))
		b.w.Submit(record("q", "u2", "s2", "10.0.0.2", pool.WishPresent))
		after(time.Second)
		refused = true
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		after(9 * time.Minute)
		b.w.Submit(record("q", "u2", "s2", "10.0.0.2", pool.WishEmpty))
		if n, _ := b.w.Overdue(); n != 0 {
			b.t.Errorf("%d overdue after nine minutes", n)
		}
		if age := b.w.Oldest(); age != 9*time.Minute {
			b.t.Errorf("oldest wish waits for %s", age)
		}
		after(3 * time.Minute)
		n, oldest := b.w.Overdue()
		if n != 1 || oldest.Pod.Name != "p" {
			b.t.Errorf("%d overdue, the oldest %+v", n, oldest)
		}
		overdue := 0
		for _, event := range b.events {
			if event == "PodAnnotationClearOverdue" {
				overdue++
			}
		}
		if overdue != 1 {
			b.t.Errorf("events %v", b.events)
		}
		refused = false
		after(time.Minute)
		if n, _ := b.w.Overdue(); n != 0 || b.w.Oldest() != 0 {
			b.t.Errorf("%d overdue, oldest %s, when all is done", n, b.w.Oldest())
		}
	})
}

// A pass visits each pod once, in its own time, and what becomes fresh meanwhile does not wait for its turn.
func TestPassShowsItsProgress(t *testing.T) {
	virtually(t, watching(time.Millisecond), func(b *bench) {
		for i := range 110 {
			b.api.add("ns", fmt.Sprint("p", i), fmt.Sprint("u", i))
			r := record(fmt.Sprint("p", i), fmt.Sprint("u", i), "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent)
			r.Since = r.Since.Add(-time.Hour)
			b.w.SubmitPass(r)
		}
		after(5 * time.Second)
		p := b.w.Progress()
		if p.Total != 110 || p.Visited < 40 || p.Visited > 80 || !p.Ended.IsZero() {
			b.t.Errorf("after 5 s: %+v", p)
		}
		b.w.Submit(record("p109", "u109", "s", "10.0.0.110", pool.WishPresent)) // an ADD of today
		after(20 * time.Millisecond)
		b.holds("p109", "10.0.0.110")
		after(time.Minute)
		if p := b.w.Progress(); p.Total != 110 || p.Visited != 110 || p.Ended.IsZero() {
			b.t.Errorf("at the end: %+v", p)
		}
		if n := b.api.count(); n != 110 {
			b.t.Errorf("%d requests for 110 pods", n)
		}
	})
}
