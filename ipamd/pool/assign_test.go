package pool

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAddressIsGivenOutOnlyWhenEverythingConfirmsIt(t *testing.T) {
	cases := map[string]struct {
		bend func(w *world, e *ENI)
		want Condition
	}{
		"all is well":                {func(*world, *ENI) {}, Free},
		"kernel lacks the address":   {func(w *world, e *ENI) { w.hide[e.Secondary[0]] = true }, Coming},
		"the ENI's link is missing":  {func(w *world, e *ENI) { w.down[e.ID] = true }, Coming},
		"ENI is available":           {func(_ *world, e *ENI) { e.State = Available }, Unusable},
		"ENI is being detached":      {func(_ *world, e *ENI) { e.State = Detaching }, Unusable},
		"ENI is somebody else's":     {func(_ *world, e *ENI) { e.Owned = false }, Unusable},
		"a pod without a record":     {func(w *world, e *ENI) { w.pods = []PodRoute{{Addr: e.Secondary[0]}} }, Occupied},
		"EC2 still says attaching":   {func(_ *world, e *ENI) { e.State = Attaching }, Free},
		"it is the ENI's primary":    {func(_ *world, e *ENI) { e.Secondary[0] = e.Primary }, ""},
		"it is listed twice by EC2":  {func(_ *world, e *ENI) { e.Secondary = append(e.Secondary, e.Secondary[0]) }, Free},
		"the ENI has no attachment?": {func(_ *world, e *ENI) { e.AttachmentID = "" }, Free},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			e := w.eni("eni-1", 1, 1)
			addr := e.Secondary[0]
			c.bend(w, e)
			w.sync()
			if c.want == "" {
				w.refuse("s1", "u1")
				return
			}
			if got := w.condition(addr); got != c.want {
				t.Errorf("condition %s, want %s", got, c.want)
			}
			if c.want == Free {
				if got := w.assign("s1", "u1"); got != addr {
					t.Errorf("got %s", got)
				}
			} else {
				w.refuse("s1", "u1")
			}
		})
	}
}

func TestReportThatIsOlderThanAnAddressConfirmsNothing(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1})
	w.sync()
	began := w.now
	w.pass(time.Second)
	act := w.p.Plan(w.now)[0]
	w.do(act)
	addr := w.obs.ENIs[0].Secondary[0]
	w.p.FoldHost(HostReport{ENIs: []string{"eni-0"}, Addresses: []netip.Addr{addr}}, HostReading{Began: began, Now: w.now})
	if got := w.condition(addr); got != Coming {
		t.Errorf("%s, want coming", got)
	}
	w.kernel(false)
	if got := w.condition(addr); got != Free {
		t.Errorf("%s, want free", got)
	}
}

func TestSameSandboxGetsTheSameAnswer(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 4)
	w.sync()
	first := w.assign("s1", "u1")
	if again := w.assign("s1", "u1"); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if other := w.assign("s2", "u2"); other == first {
		t.Errorf("two sandboxes got %s", other)
	}
}

func TestPodGetsItsPreviousAddress(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: time.Minute})
	w.eni("eni-1", 1, 4)
	w.sync()
	first := w.run("s1", "u1")
	w.run("s2", "u2")
	if got := w.run("s1b", "u1"); got == first {
		t.Fatal("the old sandbox still holds it")
	}
	w.end("s1b")
	w.end("s1")
	if got := w.run("s1c", "u1"); got != first {
		t.Errorf("in cooldown: %s, want %s", got, first)
	}
	w.end("s1c")
	w.pass(time.Hour)
	if got := w.run("s1d", "u1"); got != first {
		t.Errorf("after cooldown: %s, want %s", got, first)
	}
	w.end("s1d")
	w.pass(time.Hour)
	restarted := newWorld(t, Settings{Cooldown: time.Minute})
	restarted.obs, restarted.now, restarted.pods = w.obs, w.now, w.pods
	restarted.p.Restore(w.p.Snapshot(), w.now)
	restarted.sync()
	if got := restarted.assign("s1e", "u1"); got != first {
		t.Errorf("after a restart: %s, want %s", got, first)
	}
}

func TestPreviousAddressThatSomebodyIsSeenOnIsNotGivenBack(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 2)
	w.sync()
	first := w.run("s1", "u1")
	w.end("s1")
	w.pods = []PodRoute{{Addr: first, Link: "eni-of-a-stranger"}}
	w.kernel(false)
	if got := w.assign("s2", "u1"); got == first {
		t.Errorf("got %s, on which another pod is seen", got)
	}
}

func TestPodWithoutUIDHasNoPreviousAddress(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: time.Minute})
	w.eni("eni-1", 1, 1)
	w.sync()
	w.assign("s1", "")
	w.end("s1")
	w.refuse("s2", "")
}

func TestCooldownIsHonouredAndOutlivesARestart(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: 30 * time.Second})
	w.eni("eni-1", 1, 1)
	w.sync()
	addr := w.run("s1", "u1")
	w.end("s1")
	w.pass(29 * time.Second)
	if why := w.refuse("s2", "u2"); !strings.Contains(why, "1 cooling down") {
		t.Errorf("the refusal says %q", why)
	}
	again := New(Settings{Cooldown: 30 * time.Second, BootID: "boot"})
	again.Restore(w.p.Snapshot(), w.now)
	w.p = again
	w.sync()
	w.refuse("s2", "u2")
	if at, ok := w.p.NextWake(w.now); !ok || at.Sub(w.now) != time.Second {
		t.Errorf("next wake %v %v, want in 1 s", at, ok)
	}
	w.pass(time.Second)
	if got := w.assign("s2", "u2"); got != addr {
		t.Errorf("got %s", got)
	}
}

func TestClockThatWasSetBackDoesNotProlongCooldown(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: 30 * time.Second})
	e := w.eni("eni-1", 1, 1)
	w.p.Restore(Snapshot{BootID: "boot", Cooling: []Cooling{{Addr: e.Secondary[0], Pod: pod("u9"), Until: w.now.Add(24 * time.Hour)}}}, w.now)
	w.sync()
	w.refuse("s1", "u1")
	w.pass(31 * time.Second)
	w.assign("s1", "u1")
}

func TestAddressesRestedLongestGoFirstOnTheLowestDevice(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-2", 2, 2)
	w.eni("eni-1", 1, 2)
	w.sync()
	one := w.get("eni-1").Secondary
	a, b := w.assign("s1", "u1"), w.assign("s2", "u2")
	if got := []netip.Addr{a, b}; !slices.Equal(got, one) {
		t.Fatalf("got %v, want device 1's %v", got, one)
	}
	w.end("s2")
	w.pass(time.Second)
	w.end("s1")
	if got := w.assign("s3", "u3"); got != b {
		t.Errorf("got %s, want %s, which has rested longer", got, b)
	}
}

func TestAddressThatEC2TookAwayIsNotGivenOutAgain(t *testing.T) {
	w := newWorld(t, Settings{})
	e := w.eni("eni-1", 1, 2)
	w.sync()
	used := w.run("s1", "u1")
	gone := e.Secondary
	e.Secondary = nil
	w.sync()
	if lost := w.p.Lost(); len(lost) != 1 || lost[0].Addr != used {
		t.Errorf("lost %v, want the running pod's", lost)
	}
	w.refuse("s2", "u2")
	if got, ok := w.p.Lookup(key("s1")); !ok || got.Addr != used {
		t.Errorf("the running sandbox lost its record")
	}
	if got := w.p.HostState().ENIs[1].Addresses; !slices.Equal(got, []netip.Addr{used}) {
		t.Errorf("kernel wish %v, want the running pod's %s still", got, used)
	}
	w.end("s1")
	w.pass(time.Hour)
	w.sync()
	w.refuse("s2", "u2")
	e.Secondary = gone
	w.sync()
	w.assign("s2", "u2")
}

func TestAbortSparesWhatIsDone(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 2)
	w.sync()
	w.run("s1", "u1")
	w.assign("s2", "u2")
	if w.p.Abort(key("s1"), w.now) || !w.p.Abort(key("s2"), w.now) || w.p.Abort(key("s3"), w.now) {
		t.Error("abort must take back s2 and nothing else")
	}
	if _, ok := w.p.Lookup(key("s1")); !ok {
		t.Error("s1 is gone")
	}
}

func TestGCSparesOtherNetworksAndUnfinishedADDs(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 4)
	w.sync()
	w.run("s1", "u1")
	w.run("s2", "u2")
	w.assign("s3", "u3")
	if freed := w.p.GC("other", nil, w.now); len(freed) != 0 {
		t.Errorf("freed %v of another network", freed)
	}
	if freed := w.p.GC("net", []Key{key("s2")}, w.now); !slices.Equal(freed, []Key{key("s1")}) {
		t.Errorf("freed %v, want s1", freed)
	}
}

func TestEvidenceEndsAllocations(t *testing.T) {
	start := func(t *testing.T) *world {
		w := newWorld(t, Settings{Cooldown: time.Minute, Annotate: true, Keys: []string{"k"}})
		w.eni("eni-1", 1, 4)
		w.sync()
		return w
	}
	t.Run("two audits in a row", func(t *testing.T) {
		w := start(t)
		addr := w.run("s1", "u1")
		w.unroute(addr)
		w.pass(time.Second)
		w.kernel(true)
		w.kernel(false) // not an audit
		w.pods = []PodRoute{{Addr: addr}}
		w.kernel(true) // it was only late
		w.pods = nil
		w.kernel(true)
		if _, ok := w.p.Lookup(key("s1")); !ok {
			t.Fatal("released after one audit")
		}
		w.kernel(true)
		if _, ok := w.p.Lookup(key("s1")); ok {
			t.Fatal("not released")
		}
		if got := w.condition(addr); got != Resting {
			t.Errorf("%s, want cooling", got)
		}
		if recs := w.p.Snapshot().Annotations; len(recs) != 1 || recs[0].Wish != WishEmpty {
			t.Errorf("records %v, want a clear", recs)
		}
	})
	t.Run("an ADD in progress is none", func(t *testing.T) {
		w := start(t)
		w.assign("s1", "u1")
		for range 5 {
			w.kernel(true)
		}
		if _, ok := w.p.Lookup(key("s1")); !ok {
			t.Error("released")
		}
	})
	t.Run("a report from before done is none", func(t *testing.T) {
		w := start(t)
		began := w.now
		w.pass(time.Second)
		w.run("s1", "u1")
		for range 3 {
			w.p.FoldHost(HostReport{}, HostReading{Began: began, Now: w.now, Audit: true})
		}
		if _, ok := w.p.Lookup(key("s1")); !ok {
			t.Error("released")
		}
	})
	t.Run("newer sandbox of the same name", func(t *testing.T) {
		w := start(t)
		old := w.run("s1", "u1")
		w.pass(time.Second)
		w.unroute(old)
		a, err := w.p.Assign(Request{Key: key("s2"), Pod: Pod{"ns", "pod-u1", "u2"}}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		w.pods = append(w.pods, PodRoute{Addr: a.Addr})
		w.pass(time.Second)
		w.kernel(false)
		if _, ok := w.p.Lookup(key("s1")); !ok {
			t.Fatal("released before the newer one was done")
		}
		_ = w.p.Done(key("s2"), w.now)
		w.pass(time.Second)
		w.kernel(false)
		if _, ok := w.p.Lookup(key("s1")); ok {
			t.Error("not released")
		}
		if _, ok := w.p.Lookup(key("s2")); !ok {
			t.Error("the newer one was released")
		}
	})
}

func TestRestartDecidesUnfinishedADDsByTheirRoute(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: time.Second})
	w.eni("eni-1", 1, 4)
	w.sync()
	a, b := w.assign("s1", "u1"), w.assign("s2", "u2")
	done := w.run("s3", "u3")
	snap := w.p.Snapshot()
	w.p = New(Settings{Cooldown: time.Second, BootID: "boot"})
	w.p.Restore(snap, w.now)
	w.pods = []PodRoute{{Addr: a}, {Addr: done}}
	w.sync()
	if got, ok := w.p.Lookup(key("s1")); !ok || !got.Done {
		t.Errorf("s1 has a route: %+v %v", got, ok)
	}
	if _, ok := w.p.Lookup(key("s2")); ok || w.condition(b) != Resting {
		t.Errorf("s2 has none: held %v, %s", ok, w.condition(b))
	}
	w.pass(interruptedRest - time.Second)
	if got := w.condition(b); got != Resting {
		t.Errorf("%s, want the plugin to have time to see that nobody listens", got)
	}
	if _, ok := w.p.Lookup(key("s3")); !ok {
		t.Error("s3 was done")
	}
}

func TestAnotherBootForgetsSandboxesButClearsTheirAnnotations(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: time.Hour, Annotate: true, Keys: []string{"k"}})
	w.eni("eni-1", 1, 1)
	w.sync()
	addr := w.run("s1", "u1")
	snap := w.p.Snapshot()
	w.pods = nil
	w.p = New(Settings{Cooldown: time.Hour, BootID: "boot 2", Annotate: true, Keys: []string{"k"}})
	w.p.Restore(snap, w.now)
	w.sync()
	now := w.p.Snapshot()
	if len(now.Assignments) != 0 || len(now.Annotations) != 1 || now.Annotations[0].Wish != WishEmpty {
		t.Fatalf("after reboot: %+v", now)
	}
	if got := w.assign("s2", "u1"); got != addr {
		t.Errorf("got %s", got)
	}
}

func TestPodsOfALostStateFileKeepTheirAddresses(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: 30 * time.Second, WarmIP: 1, SurplusAge: time.Minute})
	e := w.eni("eni-1", 1, 1)
	w.pods = []PodRoute{{Addr: e.Secondary[0]}}
	w.sync()
	w.refuse("s1", "u1")
	w.settle()
	w.pass(time.Hour)
	w.sync()
	w.settle()
	for _, call := range w.calls {
		if strings.Contains(call, "detach") || strings.Contains(call, "unassign") {
			t.Errorf("planned %q", call)
		}
	}
	w.pods = nil
	w.kernel(false)
	if got := w.condition(e.Secondary[0]); got != Resting {
		t.Errorf("after the pod: %s, want cooling", got)
	}
}
