package pool

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func refused(class CloudClass) error {
	return &CloudError{Class: class, Code: "Code", Message: "because"}
}

func TestRefusalsBecomeNotBeforeTimes(t *testing.T) {
	assign := AssignAddresses{ENI: "eni-0", Count: 1}
	cases := map[string]struct {
		class    CloudClass
		atLeast  time.Duration
		atMost   time.Duration
		observes bool
		says     string
	}{
		"throttled":   {ClassThrottled, 2 * time.Second, 3 * time.Second, false, "throttled by EC2"},
		"subnet full": {ClassSubnetFull, 2 * time.Minute, 3 * time.Minute, false, "no free address"},
		"limit":       {ClassLimit, time.Minute, 90 * time.Second, true, "limit of EC2"},
		"gone":        {ClassGone, time.Second, 1500 * time.Millisecond, true, "found nothing"},
		"in use":      {ClassInUse, 5 * time.Second, 7500 * time.Millisecond, true, "must wait"},
		"denied":      {ClassDenied, time.Minute, 90 * time.Second, false, "not permitted"},
		"invalid":     {ClassInvalid, 30 * time.Second, 45 * time.Second, true, "was refused"},
		"unknown":     {ClassUnknown, time.Second, 1500 * time.Millisecond, true, "failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Settings{WarmIP: 1, MaxENI: 1})
			w.sync()
			if got := w.p.Plan(w.now); len(got) != 1 || got[0] != assign {
				t.Fatalf("%v", got)
			}
			w.p.Begin(assign, w.now)
			w.p.Failed(assign, refused(c.class), w.now)
			if got := w.p.NeedObserve("", w.now) != ""; got != c.observes {
				t.Errorf("observe wanted: %v", got)
			}
			w.sync()
			at, ok := w.p.NextWake(w.now)
			if wait := at.Sub(w.now); !ok || wait < c.atLeast || wait > c.atMost {
				t.Errorf("next wake in %s, want %s to %s", wait, c.atLeast, c.atMost)
			}
			if got := w.plan(); len(got) != 0 {
				t.Errorf("planned %v at once", got)
			}
			if d := w.p.Decision().String(); !strings.Contains(d, c.says) {
				t.Errorf("decision %q does not say %q", d, c.says)
			}
			if why := w.refuse("s1", "u1"); !strings.Contains(why, c.says) {
				t.Errorf("refusal %q does not say %q", why, c.says)
			}
			w.pass(at.Sub(w.now))
			if got := w.p.Plan(w.now); len(got) != 1 || got[0] != assign {
				t.Errorf("planned %v when the time had come", got)
			}
		})
	}
}

func TestBackoffGrowsAndForgets(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1, MaxENI: 1})
	w.sync()
	var waits []time.Duration
	for range 9 {
		act := w.p.Plan(w.now)[0]
		w.p.Failed(act, refused(ClassThrottled), w.now)
		at, _ := w.p.NextWake(w.now)
		waits = append(waits, at.Sub(w.now))
		w.now = at
	}
	if waits[8] < time.Minute || waits[8] > 90*time.Second || waits[3] < 16*time.Second {
		t.Errorf("waits %v", waits)
	}
	w.settle()
	w.run("s1", "u1")
	w.p.Failed(w.p.Plan(w.now)[0], refused(ClassThrottled), w.now)
	if at, _ := w.p.NextWake(w.now); at.Sub(w.now) > 3*time.Second {
		t.Errorf("after a success the wait is %s", at.Sub(w.now))
	}
}

func TestEqualFailuresOfTwoNodesDoNotComeBackTogether(t *testing.T) {
	next := func(seed uint64) time.Time {
		w := newWorld(t, Settings{WarmIP: 1, Seed: seed})
		w.sync()
		w.p.Failed(w.p.Plan(w.now)[0], refused(ClassThrottled), w.now)
		at, _ := w.p.NextWake(w.now)
		return at
	}
	if next(1).Equal(next(2)) || !next(1).Equal(next(1)) {
		t.Error("jitter must come from the seed, and differ")
	}
}

func TestFullSubnetIsAskedForLess(t *testing.T) {
	w := newWorld(t, Settings{WarmENI: 1, MaxENI: 1})
	w.sync()
	var counts []int
	for range 3 {
		act := w.p.Plan(w.now)[0].(AssignAddresses)
		counts = append(counts, act.Count)
		w.p.Failed(act, refused(ClassSubnetFull), w.now)
	}
	if !slices.Equal(counts, []int{4, 2, 1}) || len(w.plan()) != 0 {
		t.Errorf("asked for %v, then %v", counts, w.plan())
	}
}

func TestLimitsAreLearnt(t *testing.T) {
	w := newWorld(t, Settings{WarmENI: 3})
	w.obs.Instance.Limits.ENIs = 4
	for range 3 { // primary full, second ENI created
		w.sync()
		if _, ok := w.p.Plan(w.now)[0].(AttachENI); ok {
			break
		}
		w.do(w.p.Plan(w.now)[0])
		w.kernel(false)
	}
	w.p.Failed(w.p.Plan(w.now)[0], refused(ClassLimit), w.now)
	w.sync()
	got := w.plan()
	if len(got) != 1 || !strings.HasPrefix(got[0], "delete") {
		t.Fatalf("planned %v, want the ENI deleted that cannot be attached", got)
	}
	w.settle()
	if n := w.settle(); n != 0 || len(w.obs.ENIs) != 1 {
		t.Errorf("create, attach, delete goes on: %v", w.calls)
	}
	if why := w.p.whyNoGrowth(w.now); !strings.Contains(why, "limit of EC2") {
		t.Errorf("%q", why)
	}
}

func TestNoENIIsCreatedWhileOneCannotBeAttached(t *testing.T) {
	w := newWorld(t, Settings{WarmENI: 1})
	w.obs.ENIs[0].Secondary = w.addrs(4)
	e := w.eni("eni-1", 0, 4)
	e.State, e.AttachmentID = Available, ""
	w.sync()
	w.run("s1", "u1")
	w.p.Failed(w.p.Plan(w.now)[0], refused(ClassThrottled), w.now)
	if got := w.plan(); len(got) != 0 {
		t.Errorf("planned %v", got)
	}
}

func TestLostAnswers(t *testing.T) {
	t.Run("creation is repeated with its token", func(t *testing.T) {
		w := newWorld(t, Settings{WarmENI: 1})
		w.obs.ENIs[0].Secondary = w.addrs(4)
		w.sync()
		w.run("s1", "u1")
		act := w.p.Plan(w.now)[0].(CreateENI)
		w.p.Begin(act, w.now)
		w.p.Failed(act, errors.New("connection reset"), w.now)
		w.pass(2 * time.Second)
		w.sync()
		if again := w.p.Plan(w.now); len(again) != 1 || again[0] != act {
			t.Errorf("planned %v, want %v again", again, act)
		}
		w.pass(time.Hour)
		if late := w.p.Plan(w.now)[0].(CreateENI); late.Token == act.Token {
			t.Error("the token is used an hour later, when its ENI may be long gone")
		}
	})
	t.Run("what may have been given back is not given out", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 1, SurplusAge: time.Minute})
		w.obs.ENIs[0].Secondary = w.addrs(2)
		w.sync()
		w.plan()
		w.pass(2 * time.Minute)
		act := w.p.Plan(w.now)[0].(UnassignAddresses)
		w.p.Begin(act, w.now)
		w.p.Failed(act, errors.New("timeout"), w.now)
		w.sync() // a stale reading still shows it
		if got := w.condition(act.Addresses.List()[0]); got != Leaving {
			t.Errorf("%s, want leaving", got)
		}
		w.pass(settle)
		w.sync()
		if got := w.condition(act.Addresses.List()[0]); got != Free {
			t.Errorf("%s, want free: EC2 still says ours", got)
		}
	})
}

func TestReadingWithoutThePrimaryENIIsNone(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1})
	w.settle()
	w.run("s1", "u1")
	before := len(w.p.HostState().ENIs)
	w.p.FoldObservation(Observation{Instance: w.obs.Instance}, w.now)
	if got := len(w.p.HostState().ENIs); got != before {
		t.Errorf("%d ENIs for the kernel, %d before", got, before)
	}
}
