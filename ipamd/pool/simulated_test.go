package pool

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The tests of this file are what the simulation of ipamd/reconcile has found.

// TestB57WhatIsGivenBackIsNotGivenBackTwice: many pods end at once after a long surplus. The second step must not count as
// surplus what the first has given back, though cooldowns that end meanwhile make up for it.
func TestB57WhatIsGivenBackIsNotGivenBackTwice(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1, Cooldown: 30 * time.Second})
	w.settle()
	for i := range 8 {
		w.run(fmt.Sprint("s", i), fmt.Sprint("u", i))
		w.settle()
	}
	for i := range 3 {
		w.end(fmt.Sprint("s", i)) // three are too many from here on
	}
	w.pass(31 * time.Second)
	w.settle()
	w.pass(DefaultSurplusAge) // the window that began with the pods
	w.settle()
	w.pass(DefaultSurplusAge - time.Second)
	for i := 3; i < 7; i++ {
		w.end(fmt.Sprint("s", i))
	}
	w.pass(31 * time.Second) // less than SurplusAge: the four that ended just now are to stay
	before := w.p.tally(w.now).Total
	w.calls = nil
	w.settle()
	if gone := before - w.p.tally(w.now).Total; gone != 3 {
		t.Errorf("%d addresses are given back, 3 were too many for long: %v", gone, w.calls)
	}
}

// TestB21AddressesThatAreGivenBackAreNotGivenOutByTheNextLife: the daemon dies when EC2 has carried the call out, and the next
// life's first reading is older than the call.
func TestB21AddressesThatAreGivenBackAreNotGivenOutByTheNextLife(t *testing.T) {
	tests := map[string]struct {
		act      func(w *world) Action
		answered bool // the outcome was folded in before the daemon died
	}{
		"unassigning": {func(w *world) Action {
			return UnassignAddresses{ENI: "eni-1", Addresses: NewAddrs(w.get("eni-1").Secondary)}
		}, false},
		"unassigned": {func(w *world) Action {
			return UnassignAddresses{ENI: "eni-1", Addresses: NewAddrs(w.get("eni-1").Secondary)}
		}, true},
		"detaching": {func(*world) Action { return DetachENI{ENI: "eni-1", AttachmentID: "att-eni-1"} }, false},
		"detached":  {func(*world) Action { return DetachENI{ENI: "eni-1", AttachmentID: "att-eni-1"} }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Settings{WarmIP: 1})
			w.eni("eni-1", 1, 2)
			w.sync()
			revision := w.p.Revision()
			action := test.act(w)
			if !GivesBack(action) {
				t.Fatal("the loop would not save before it")
			}
			w.p.Begin(action, w.now)
			if w.p.Revision() == revision {
				t.Error("what is about to leave is not saved")
			}
			if test.answered {
				w.p.Fold(action, Outcome{}, w.now)
			}
			w.restart(Settings{}) // the reading still shows everything
			for _, addr := range w.get("eni-1").Secondary {
				if c := w.condition(addr); c == Free || c == InUse {
					t.Errorf("%s is %s", addr, c)
				}
			}
			if test.answered {
				return
			}
			w.pass(5 * settle) // the call was not carried out after all
			w.sync()
			for _, addr := range w.get("eni-1").Secondary {
				if c := w.condition(addr); c != Free {
					t.Errorf("%s is %s a minute later", addr, c)
				}
			}
		})
	}
}

// TestB25AddressOfAPodWithoutAnAllocationRestsAfterARestart: the state file was lost once, its pods live on, and one of them
// ends while no daemon runs.
func TestB25AddressOfAPodWithoutAnAllocationRestsAfterARestart(t *testing.T) {
	set := Settings{WarmIP: 1, Cooldown: 30 * time.Second}
	w := newWorld(t, set)
	w.settle()
	addr := w.run("s1", "u1")
	w.p = New(Settings{WarmIP: 1, Cooldown: 30 * time.Second, BootID: "boot"})
	w.sync()
	if c := w.condition(addr); c != Occupied {
		t.Fatalf("%s is %s", addr, c)
	}
	w.pass(time.Hour)
	w.unroute(addr)
	w.restart(set)
	if c := w.condition(addr); c != Resting {
		t.Errorf("%s is %s right after its pod", addr, c)
	}
	w.pass(31 * time.Second)
	w.kernel(true)
	if c := w.condition(addr); c != Free {
		t.Errorf("%s is %s after its cooldown", addr, c)
	}
}

// TestRemovalBecomesAClearWhenThePodsLastSandboxEnds: the knob is off, an earlier sandbox's value was spared for the pod's next
// one, and that one ends too. A pod that is being deleted keeps its keys, so that nothing would ever empty them.
func TestRemovalBecomesAClearWhenThePodsLastSandboxEnds(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 2, Annotate: true, Keys: []string{"k"}})
	w.settle()
	w.run("s1", "u1")
	w.restart(Settings{WarmIP: 2})
	w.end("s1")
	w.run("s2", "u1")
	if got, want := w.records(), []string{"s1 absent k"}; !slices.Equal(got, want) {
		t.Fatalf("records %v, want %v", got, want)
	}
	w.p.Submissions()
	w.end("s2")
	if got, want := w.records(), []string{"s1 empty k"}; !slices.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
	if got := w.p.Submissions(); len(got) != 1 || got[0].Wish != WishEmpty {
		t.Errorf("submitted %+v", got)
	}
}
