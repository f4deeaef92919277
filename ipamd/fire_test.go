package ipamd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/crash"
)

// events counts the daemon's warnings, and forgets them.
func (f *fire) events() int {
	var list corev1.EventList
	if err := f.admin.List(context.Background(), &list); err != nil {
		return 0
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].InvolvedObject.Name == f.nodeName && list.Items[i].Type == corev1.EventTypeWarning {
			n++
			_ = f.admin.Delete(context.Background(), &list.Items[i])
		}
	}
	return n
}

// effects is the list of all effects of both programs, as "program name": what is not in it has no name yet, or has lost it.
const effectsFile = "testdata/effects.txt"

// recording says in which stages which effects were passed.
type recording struct {
	stages map[string][]stage // by "program name", in the order of recording
	all    []string
}

// record lets the node live its whole life undisturbed, twice: what comes in a stage both times surely comes there.
func (f *fire) record() recording {
	f.t.Helper()
	r := recording{stages: map[string][]stage{}}
	f.passed()
	for range 2 {
		for _, s := range stages() {
			began := time.Now()
			if err := s.run(f); err != nil {
				f.t.Fatalf("%s: %v", s.name, err)
			}
			f.quiet()
			f.check(f.sweep())
			for _, name := range f.passed() {
				r.stages[name] = append(r.stages[name], s)
			}
			f.t.Logf("%s: %s", s.name, time.Since(began).Round(time.Millisecond))
		}
	}
	r.all = slices.Sorted(maps.Keys(r.stages))
	return r
}

// passed gives the effects of both programs since the last call, as "program name".
func (f *fire) passed() []string {
	f.t.Helper()
	var all []string
	for _, role := range []crash.Role{f.daemonRole, f.pluginRole} {
		names, err := role.Passed()
		f.check(err)
		for _, name := range names {
			all = append(all, role.Name+" "+name)
		}
	}
	return all
}

// in lists the stages that pass the effect: first those that did so both times, the cheapest first, then the others.
func (r recording) in(name string) []stage {
	var sure, perhaps []stage
	for _, s := range stages() {
		times := 0
		for _, passed := range r.stages[name] {
			if passed.name == s.name {
				times++
			}
		}
		switch times {
		case 2:
			sure = append(sure, s)
		case 1:
			perhaps = append(perhaps, s)
		}
	}
	return append(sure, perhaps...)
}

// TestKilledAtEveryEffect kills the daemon and the plugin before and after each of their effects.
func TestKilledAtEveryEffect(t *testing.T) {
	t.Parallel()
	f := newFire(t, "node-effects")
	r := f.record()
	text, err := os.ReadFile(effectsFile)
	f.check(err)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(text)), "\n"), r.all); diff != "" {
		t.Errorf("effects (-%s +passed): name the new ones there, and look why others are not passed any more:\n%s", effectsFile, diff)
	}
	for _, name := range r.all {
		program, point, _ := strings.Cut(name, " ")
		role := f.daemonRole
		if program == f.pluginRole.Name {
			role = f.pluginRole
		}
		for _, when := range []string{crash.Before, crash.After} {
			f.killAt(role, crash.Order{Point: point, When: when, Hit: 1}, r.in(name))
		}
	}
	f.nothingLeaks()
}

// killAt lives the given stages until one has passed the moment. One round is the rule; an ENI's route, say, may also go with
// its link before the daemon is there.
func (f *fire) killAt(role crash.Role, order crash.Order, in []stage) {
	f.t.Helper()
	const rounds = 3
	for _, s := range slices.Repeat(in, rounds) {
		began := time.Now()
		if _, fired := f.burn(role, order, s); fired {
			f.t.Logf("%s %s %s in %q: %s", role.Name, order.When, order.Point, s.name, time.Since(began).Round(time.Millisecond))
			return
		}
	}
	f.t.Errorf("%s was not killed %s", role.Name, order)
}

// burn lives a stage, with other pods coming and going, under the order to kill; then the daemon runs again and everything
// must agree. It gives the moment of the death, if there was one.
func (f *fire) burn(role crash.Role, order crash.Order, s stage) (string, bool) {
	f.t.Helper()
	f.check(role.Kill(order))
	stop := func() error { return nil }
	if !s.alone {
		stop = f.churn()
	}
	err := errors.Join(unexplained(s.run(f)), stop())
	where, fired := f.after(role)
	if err != nil {
		f.t.Errorf("%s %s, in %q: %v", role.Name, order, s.name, err)
	}
	f.quiet()
	f.check(f.sweep())
	return where, fired
}

// after takes the order back and sees to it that a daemon runs.
func (f *fire) after(role crash.Role) (string, bool) {
	f.t.Helper()
	death, fired := role.Fired()
	if fired && role == f.daemonRole && f.daemon != nil && f.daemon.Process.Pid == death.PID {
		<-f.ending()
	}
	f.check(role.Forget())
	if f.dead() {
		f.daemon = nil
		f.start()
	}
	return death.Where, fired
}

// seedVar replays one of the seeds.
const seedVar = "VPC_FIRE_SEED"

const seeds = 100

// TestKilledAtSeededMoments kills the daemon or the plugin at moments that a seed chooses.
func TestKilledAtSeededMoments(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), uint64(seeds)
	if given := os.Getenv(seedVar); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatalf("%s=%q: %v", seedVar, given, err)
		}
		first, last = seed, seed
	}
	f := newFire(t, "node-seeds")
	died := 0
	for seed := first; seed <= last; seed++ {
		if f.moment(seed) {
			died++
		}
	}
	if want := int(last-first+1) * 7 / 10; died < want { // the others chose a moment that did not come
		t.Errorf("only %d of the seeds killed somebody, want %d", died, want)
	}
	f.nothingLeaks()
}

// moment is one seed: who dies, when, and in which piece of a node's life.
func (f *fire) moment(seed uint64) (died bool) {
	f.t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	var life []stage
	for _, s := range stages() {
		if !s.alone && s.name != "other annotation key" { // its passes over all pods take their time
			life = append(life, s)
		}
	}
	s := life[rng.IntN(len(life))]
	began, what := time.Now(), ""
	defer func() {
		f.t.Logf("seed %d (%s=%d replays it): %s, in %q: %s", seed, seedVar, seed, what, s.name, time.Since(began).Round(time.Millisecond))
	}()
	role, hits := f.daemonRole, 60 // about what a stage has
	switch rng.IntN(10) {
	case 0, 1, 2:
		wait := time.Duration(rng.IntN(150)) * time.Millisecond
		what = fmt.Sprintf("daemon after %s", wait)
		return f.burnAfter(wait, s)
	case 3, 4, 5:
		role, hits = f.pluginRole, 28 // of an ADD
	}
	order := crash.Order{Point: crash.Any, When: crash.Any, Hit: 1 + rng.IntN(hits)}
	what = fmt.Sprintf("%s %s", role.Name, order)
	where, died := f.burn(role, order, s)
	what = fmt.Sprintf("%s %s (hit %d)", role.Name, where, order.Hit)
	return died
}

// burnAfter kills the daemon from outside, after a time.
func (f *fire) burnAfter(wait time.Duration, s stage) bool {
	f.t.Helper()
	victim, killed := f.daemon, make(chan struct{})
	timer := time.AfterFunc(wait, func() { _ = victim.Process.Kill(); close(killed) })
	stop := func() error { return nil }
	if !s.alone {
		stop = f.churn()
	}
	err := errors.Join(unexplained(s.run(f)), stop())
	fired := !timer.Stop()
	if fired {
		<-killed
		if victim == f.daemon {
			<-f.ending()
		}
	}
	f.after(f.daemonRole)
	if err != nil {
		f.t.Errorf("after %s: %v", wait, err)
	}
	f.quiet()
	f.check(f.sweep())
	return fired
}

// TestNothingIsAnsweredBeforeItIsSaved has a disk that hangs: what the runtime were told would be lost with the daemon.
func TestNothingIsAnsweredBeforeItIsSaved(t *testing.T) {
	t.Parallel()
	f := newFire(t, "node-disk")
	for hit, what := range []string{"the address", "done"} {
		g := f.begin("waiting")
		f.check(f.daemonRole.Hold(crash.Order{Point: "save write", When: crash.Before, Hit: hit + 1}))
		answer := make(chan error, 1)
		go func() { answer <- f.add(g) }()
		f.check(f.until("the disk hangs", f.daemonRole.Held))
		select {
		case err := <-answer:
			t.Errorf("%s: ADD is answered while nothing is saved: %v", what, err)
			answer <- err
		case <-time.After(300 * time.Millisecond):
		}
		f.halt()
		f.check(f.daemonRole.Release())
		if err := <-answer; err == nil {
			t.Errorf("%s: ADD succeeds, and nobody knows of it", what)
		}
		f.start()
		f.check(f.end(g))
		f.quiet()
	}
}
