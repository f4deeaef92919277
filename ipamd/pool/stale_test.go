package pool

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadingThatLacksNewAddressesIsStaleForAWhile(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 2, SurplusAge: time.Minute})
	w.sync()
	old := w.obs.ENIs[0].Secondary
	w.settle()
	w.get("eni-0").Secondary = old
	w.pass(5 * time.Second)
	w.sync() // does not show what was assigned
	if got := w.p.tally(w.now).Free; got != 2 {
		t.Errorf("%d free: a stale reading was believed", got)
	}
	w.pass(settle)
	w.sync()
	if got := w.p.tally(w.now).Free; got != 0 {
		t.Errorf("%d free: EC2 has taken them away", got)
	}
}

// stale folds in a reading of an earlier moment.
func (w *world) stale(earlier Observation) {
	now := w.obs
	w.obs = earlier
	w.observe()
	w.obs = now
}

func (w *world) copyOfEC2() Observation {
	obs := w.obs
	obs.ENIs = nil
	for _, e := range w.obs.ENIs {
		e.Secondary = slices.Clone(e.Secondary)
		obs.ENIs = append(obs.ENIs, e)
	}
	return obs
}

func TestReadingsThatLagBehindOurOwnCalls(t *testing.T) {
	t.Run("a created ENI is not forgotten", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 5})
		w.obs.ENIs[0].Secondary = w.addrs(4)
		w.sync()
		before := w.copyOfEC2()
		w.do(w.p.Plan(w.now)[0])
		w.pass(settle - time.Second)
		w.stale(before)
		if got := w.plan(); len(got) != 1 || !strings.HasPrefix(got[0], "attach") {
			t.Errorf("planned %v", got)
		}
		w.pass(time.Second)
		w.stale(before)
		if got := w.plan(); len(got) != 1 || !strings.HasPrefix(got[0], "create") {
			t.Errorf("planned %v: the ENI is really gone", got)
		}
	})
	t.Run("an attached ENI is not attached again", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 3})
		e := w.eni("eni-1", 0, 3)
		e.State, e.AttachmentID = Available, ""
		w.sync()
		before := w.copyOfEC2()
		w.do(w.p.Plan(w.now)[0])
		w.pass(settle - time.Second)
		w.stale(before)
		w.kernel(false)
		if got := w.plan(); len(got) != 0 {
			t.Errorf("planned %v", got)
		}
		w.assign("s1", "u1")
	})
	t.Run("a detached ENI's addresses are not given out", func(t *testing.T) {
		w := newWorld(t, Settings{})
		w.eni("eni-1", 1, 2)
		w.sync()
		before := w.copyOfEC2()
		act := DetachENI{ENI: "eni-1", AttachmentID: "att-eni-1"}
		w.p.Begin(act, w.now)
		w.refuse("s1", "u1") // from the moment the call begins
		w.p.Fold(act, Outcome{}, w.now)
		w.stale(before)
		w.refuse("s1", "u1")
	})
	t.Run("a deleted ENI does not come back", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 1})
		w.obs.ENIs[0].Secondary = w.addrs(1)
		e := w.eni("eni-1", 0, 3)
		e.State, e.AttachmentID = Available, ""
		w.sync()
		before := w.copyOfEC2()
		w.do(w.p.Plan(w.now)[0])
		w.stale(before)
		if got := w.plan(); len(got) != 0 {
			t.Errorf("planned %v", got)
		}
	})
	t.Run("an unassigned address does not come back", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 1, SurplusAge: time.Minute})
		w.obs.ENIs[0].Secondary = w.addrs(2)
		w.sync()
		w.plan()
		w.pass(2 * time.Minute)
		before := w.copyOfEC2()
		act := w.p.Plan(w.now)[0].(UnassignAddresses)
		w.do(act)
		w.pass(settle)
		w.stale(before)
		w.kernel(false)
		if got := w.condition(act.Addresses.List()[0]); got == Free {
			t.Error("it is free again")
		}
	})
}

func TestDetachmentWithoutAnAnswerIsInDoubt(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 2)
	w.sync()
	before := w.copyOfEC2()
	act := DetachENI{ENI: "eni-1", AttachmentID: "att-eni-1"}
	w.p.Begin(act, w.now)
	w.pass(time.Minute) // the call hangs
	w.p.Failed(act, errors.New("timeout"), w.now)
	w.stale(before)
	w.kernel(false)
	w.refuse("s1", "u1")
	w.pass(settle)
	w.stale(before)
	w.kernel(false)
	w.assign("s1", "u1") // EC2 still says attached: it was never carried out
}
