package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTargets lets the planner work until it rests. Types have 3 ENIs of 4 secondary addresses.
func TestTargets(t *testing.T) {
	cases := map[string]struct {
		s       Settings
		pods    int
		waiting int
		free    int
		enis    int
	}{
		"WARM_ENI_TARGET 1, no pod":               {Settings{WarmENI: 1}, 0, 0, 4, 1},
		"WARM_ENI_TARGET 1, one pod":              {Settings{WarmENI: 1}, 1, 0, 7, 2},
		"WARM_ENI_TARGET 2":                       {Settings{WarmENI: 2}, 0, 0, 8, 2},
		"WARM_ENI_TARGET 9 ends at the type":      {Settings{WarmENI: 9}, 0, 0, 12, 3},
		"WARM_ENI_TARGET 0 keeps one free":        {Settings{}, 0, 0, 4, 1},
		"WARM_ENI_TARGET 0, first ENI used":       {Settings{}, 4, 0, 4, 2},
		"WARM_IP_TARGET 2":                        {Settings{WarmIP: 2}, 0, 0, 2, 1},
		"WARM_IP_TARGET 2 switches WARM_ENI off":  {Settings{WarmIP: 2, WarmENI: 5}, 1, 0, 2, 1},
		"WARM_IP_TARGET 5 spills over":            {Settings{WarmIP: 5}, 0, 0, 5, 2},
		"MINIMUM_IP_TARGET 6 alone":               {Settings{MinimumIP: 6, WarmENI: 1}, 0, 0, 6, 2},
		"MINIMUM_IP_TARGET alone never grows":     {Settings{MinimumIP: 2}, 2, 3, 0, 1},
		"MINIMUM and WARM_IP, minimum rules":      {Settings{MinimumIP: 6, WarmIP: 1}, 2, 0, 4, 2},
		"MINIMUM and WARM_IP, warm rules":         {Settings{MinimumIP: 3, WarmIP: 2}, 3, 0, 2, 2},
		"MAX_ENI 1":                               {Settings{WarmENI: 3, MaxENI: 1}, 0, 0, 4, 1},
		"MAX_ENI above the type":                  {Settings{WarmENI: 9, MaxENI: 9}, 0, 0, 12, 3},
		"waiting ADDs are served beyond the warm": {Settings{WarmIP: 1}, 0, 5, 6, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.s)
			w.settle()
			for i := range c.pods {
				w.run(fmt.Sprint("s", i), fmt.Sprint("u", i))
				w.settle()
			}
			w.p.Demand(c.waiting)
			w.settle()
			w.pass(time.Hour) // and it stays so: nothing is given back that is wanted
			w.sync()
			w.settle()
			tally := w.p.tally(w.now)
			if tally.Free != c.free || tally.ENIs != c.enis || tally.InUse != c.pods {
				t.Errorf("free %d, ENIs %d, in use %d; want %d, %d, %d. %s", tally.Free, tally.ENIs, tally.InUse, c.free, c.enis, c.pods, w.p.Decision())
			}
		})
	}
}

func TestSurplusIsGivenBackOnlyAfterAWhile(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1, Cooldown: 30 * time.Second})
	w.settle()
	for i := range 6 {
		w.run(fmt.Sprint("s", i), fmt.Sprint("u", i))
		w.settle()
	}
	for i := range 6 {
		w.end(fmt.Sprint("s", i))
	}
	w.calls = nil
	w.pass(DefaultSurplusAge)
	if n := w.settle(); n != 0 {
		t.Errorf("calls while the surplus is young: %v", w.calls)
	}
	w.pass(DefaultSurplusAge)
	w.settle()
	tally := w.p.tally(w.now)
	if tally.Total != 1 || tally.ENIs != 1 || len(w.obs.ENIs) != 1 {
		t.Errorf("%+v after %v", tally, w.calls)
	}
}

// TestReplacingPodsCostsNoCall is field case B57: rolling pods must neither grow the pool nor make it flap.
func TestReplacingPodsCostsNoCall(t *testing.T) {
	for _, s := range []Settings{{WarmIP: 5}, {WarmENI: 1}, {WarmIP: 5, MinimumIP: 7}} {
		s.Cooldown = 30 * time.Second
		w := newWorld(t, s)
		w.settle()
		for i := range 4 {
			w.run(fmt.Sprint("s", i), fmt.Sprint("u", i))
			w.settle()
		}
		w.pass(time.Hour)
		w.sync()
		w.settle()
		w.calls = nil
		for round := range 20 {
			for i := range 2 {
				w.end(fmt.Sprint("s", i))
				w.settle()
				w.pass(2 * time.Second)
				w.run(fmt.Sprint("s", i), fmt.Sprint("u", i, "-", round))
				w.settle()
				w.pass(40 * time.Second)
				w.sync()
				w.settle()
			}
		}
		if len(w.calls) > 0 {
			t.Errorf("%+v: %v", s, w.calls)
		}
	}
}

func TestCoolingAddressesAreNotWarm(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 2, Cooldown: time.Hour})
	w.settle()
	w.run("s1", "u1")
	w.settle()
	w.end("s1")
	w.run("s2", "u2")
	w.run("s3", "u3")
	w.settle()
	if tally := w.p.tally(w.now); tally.Free != 2 || tally.Cooling != 1 {
		t.Errorf("%+v", tally)
	}
}

func TestAddressesInUseAndTheirENIsAreNeverGivenBack(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1, Cooldown: 20 * time.Minute})
	w.eni("eni-1", 1, 4)
	w.eni("eni-2", 2, 4)
	w.sync()
	used := w.run("s1", "u1")
	w.assign("s2", "u2")
	w.end("s2")
	for range 5 {
		w.pass(4 * time.Minute)
		w.sync()
		w.settle()
	}
	if w.get("eni-1") == nil || !slices.Contains(w.get("eni-1").Secondary, used) {
		t.Fatalf("%v", w.calls)
	}
	w.pass(10 * time.Minute)
	w.sync()
	w.settle()
	if got := w.p.tally(w.now); got.Total != 2 {
		t.Errorf("%+v after %v", got, w.calls)
	}
}

func TestCoolingAddressesAreNotGivenBack(t *testing.T) {
	start := func(t *testing.T, state string) *world {
		w := newWorld(t, Settings{WarmIP: 1, Cooldown: 30 * time.Minute, SurplusAge: time.Minute})
		e := w.eni("eni-1", 1, 2)
		e.State = state
		if state == Available {
			e.Device, e.AttachmentID = 0, ""
		}
		w.p.Restore(Snapshot{BootID: "boot", Cooling: []Cooling{
			{Addr: e.Secondary[0], Until: w.now.Add(20 * time.Minute)}, {Addr: e.Secondary[1], Until: w.now.Add(20 * time.Minute)},
		}}, w.now)
		w.obs.ENIs[0].Secondary = w.addrs(4)
		w.sync()
		w.settle()
		w.pass(10 * time.Minute)
		w.sync()
		w.settle()
		return w
	}
	w := start(t, Attached)
	if len(w.get("eni-1").Secondary) != 2 || len(w.get("eni-0").Secondary) != 1 || slices.Contains(w.calls, "detach eni-1") {
		t.Errorf("%v: want the surplus of eni-0 given back and nothing of eni-1", w.calls)
	}
	w = start(t, Available)
	if w.get("eni-1") == nil {
		t.Errorf("%v: eni-1 is deleted while its addresses rest", w.calls)
	}
	w.pass(11 * time.Minute)
	w.settle()
	if w.get("eni-1") != nil {
		t.Error("eni-1 is left for ever")
	}
}

func TestOnlyOwnENIsAreTouched(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1})
	foreign := w.eni("eni-f", 1, 4)
	foreign.Owned, foreign.DeleteOnTermination = false, false
	loose := w.eni("eni-a", 0, 4)
	loose.Owned, loose.State, loose.AttachmentID = false, Available, ""
	w.obs.ENIs[0].Secondary = w.addrs(4)
	for range 5 {
		w.pass(10 * time.Minute)
		w.sync()
		w.settle()
	}
	for _, call := range w.calls {
		if strings.Contains(call, "eni-f") || strings.Contains(call, "eni-a") || strings.Contains(call, "detach eni-0") {
			t.Errorf("planned %q", call)
		}
	}
	for _, e := range w.p.HostState().ENIs {
		if e.ID != "eni-0" {
			t.Errorf("the kernel gets %s", e.ID)
		}
	}
	w.p.Demand(20) // a foreign ENI takes a place all the same
	w.settle()
	if got := w.p.attachments(); got != 3 {
		t.Errorf("%d attachments, want 3", got)
	}
}

func TestLeftoversOfACrash(t *testing.T) {
	t.Run("not needed: deleted", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 1})
		w.obs.ENIs[0].Secondary = w.addrs(1)
		e := w.eni("eni-1", 0, 3)
		e.State, e.AttachmentID = Available, ""
		w.sync()
		if got := w.plan(); !slices.Equal(got, []string{"delete eni-1"}) {
			t.Errorf("%v", got)
		}
	})
	t.Run("needed: attached, nothing created", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 3})
		e := w.eni("eni-1", 0, 3)
		e.State, e.AttachmentID = Available, ""
		w.sync()
		if got := w.plan(); !slices.Equal(got, []string{"attach eni-1 as device 1"}) {
			t.Errorf("%v", got)
		}
	})
	t.Run("its pods run: attached although nothing is short", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 1})
		w.eni("eni-1", 1, 2)
		w.obs.ENIs[0].Secondary = w.addrs(4)
		w.sync()
		for i := range 5 {
			w.run(fmt.Sprint("s", i), fmt.Sprint("u", i))
		}
		e := w.get("eni-1")
		e.State, e.AttachmentID = Available, ""
		w.observe()
		if w.p.Trusted() {
			t.Error("the first reading that denies an ENI in use is believed")
		}
		w.pass(settle)
		w.observe()
		if got := w.plan(); !slices.Contains(got, "attach eni-1 as device 1") {
			t.Errorf("%v, trusted %v", got, w.p.Trusted())
		}
	})
	t.Run("attachment would outlive the instance: repaired", func(t *testing.T) {
		w := newWorld(t, Settings{WarmIP: 1})
		w.eni("eni-1", 1, 1).DeleteOnTermination = false
		w.sync()
		if got := w.plan(); !slices.Equal(got, []string{"set delete-on-termination of eni-1"}) {
			t.Errorf("%v", got)
		}
	})
}

func TestLinkThatNeverComes(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 5})
	w.obs.ENIs[0].Secondary = w.addrs(4)
	w.eni("eni-1", 1, 4)
	report := func() {
		w.observe()
		w.p.FoldHost(HostReport{ENIs: []string{"eni-0"}, Addresses: w.obs.ENIs[0].Secondary}, HostReading{Began: w.now, Now: w.now})
	}
	report()
	if got := w.plan(); len(got) != 0 {
		t.Errorf("planned %v while the link may come", got)
	}
	w.pass(linkPatience)
	report()
	got := w.plan()
	if len(got) != 2 || !strings.HasPrefix(got[0], "create an ENI") || got[1] != "detach eni-1" {
		t.Errorf("planned %v", got)
	}
	w.do(DetachENI{ENI: "eni-1", AttachmentID: "att-eni-1"})
	if got := w.plan(); !slices.Contains(got, "delete eni-1") || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "attach") }) {
		t.Errorf("planned %v, want the ENI with the broken link deleted and not attached", got)
	}
}

func TestNothingIsPlannedBeforeTheFirstReading(t *testing.T) {
	w := newWorld(t, Settings{WarmENI: 1})
	if got := w.plan(); len(got) != 0 || w.p.NeedObserve("", w.now) == "" {
		t.Errorf("planned %v", got)
	}
	if why := w.refuse("s1", "u1"); !strings.Contains(why, "EC2 has not been read yet") {
		t.Errorf("%q", why)
	}
	w.p.ObserveFailed(refused(ClassDenied), w.now)
	if why := w.refuse("s1", "u1"); !strings.Contains(why, "because") {
		t.Errorf("%q does not say why", why)
	}
	if w.p.NeedObserve("audit", w.now) != "" {
		t.Error("read again at once after a failure")
	}
}

func TestRefusalSaysWhatIsFull(t *testing.T) {
	w := newWorld(t, Settings{WarmENI: 1, MaxENI: 1, Cooldown: time.Minute})
	w.settle()
	for i := range 4 {
		w.run(fmt.Sprint("s", i), fmt.Sprint("u", i))
	}
	w.end("s0")
	want := "no free address among 4 (3 in use, 1 cooling down); all 1 ENIs that are allowed (instance type test.kind, MAX_ENI) are full"
	if why := w.refuse("s9", "u9"); why != want {
		t.Errorf("%q\nwant %q", why, want)
	}
	w = newWorld(t, Settings{MinimumIP: 1})
	w.settle()
	w.run("s1", "u1")
	w.p.Demand(1)
	w.settle()
	if why := w.refuse("s2", "u2"); !strings.Contains(why, "MINIMUM_IP_TARGET=1 without WARM_IP_TARGET") {
		t.Errorf("%q", why)
	}
}

func TestCreationWantsNoMoreThanOneENIAtATime(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 12})
	w.sync()
	got := w.p.Plan(w.now)
	if len(got) != 2 {
		t.Fatalf("%v", got)
	}
	create := got[1].(CreateENI)
	if create.Secondary != 4 || create.Groups != "sg-1,sg-2" || create.Subnet != "subnet-1" || create.Token == "" || len(create.Token) > 64 {
		t.Errorf("%+v", create)
	}
}
