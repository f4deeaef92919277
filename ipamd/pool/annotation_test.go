package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func annotated() Settings {
	return Settings{Cooldown: 30 * time.Second, Annotate: true, Keys: []string{"k"}}
}

// records gives the records as text: sandbox wish keys/stale.
func (w *world) records() []string {
	out := []string{}
	for _, r := range w.p.Snapshot().Annotations {
		text := fmt.Sprintf("%s %s %s", r.Sandbox, r.Wish, strings.Join(r.Keys, "+"))
		if len(r.Stale) > 0 {
			text += " stale " + strings.Join(r.Stale, "+")
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func (w *world) wantRecords(want ...string) {
	w.t.Helper()
	if got := w.records(); !slices.Equal(got, want) {
		w.t.Errorf("records %q, want %q", got, want)
	}
}

// restart begins another life with other settings.
func (w *world) restart(s Settings) {
	snap := w.p.Snapshot()
	s.BootID = "boot"
	w.p = New(s)
	w.p.Restore(snap, w.now)
	w.sync()
}

func (w *world) answer(sandbox string, wish Wish, v Verdict, keys ...string) {
	for _, r := range w.p.Snapshot().Annotations {
		if r.Sandbox == sandbox {
			w.p.Answer(Answer{Owner: r.Owner, Wish: wish, Verdict: v, Keys: keys})
		}
	}
}

func TestRecordIsThereBeforeAnythingIsSubmitted(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 4)
	w.sync()
	before := w.p.Revision()
	w.assign("s1", "u1")
	w.wantRecords("s1 present k")
	if w.p.Revision() == before {
		t.Error("the state did not change")
	}
	if got := w.p.Submissions(); len(got) != 1 || got[0].Wish != WishPresent {
		t.Errorf("submissions %v", got)
	}
	if got := w.p.Submissions(); len(got) != 0 {
		t.Errorf("submitted twice: %v", got)
	}
	w.end("s1")
	recs := w.p.Submissions()
	w.p.Resubmit(recs)
	if again := w.p.Submissions(); len(again) != 1 || again[0].Wish != WishEmpty {
		t.Errorf("after a failed save: %v", again)
	}
}

func TestPodThatNeverHadTheKeyIsNotCleared(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 4)
	w.sync()
	w.run("s1", "u1")
	w.end("s1")
	w.wantRecords()
}

func TestSettingsChange(t *testing.T) {
	off := Settings{Cooldown: 30 * time.Second}
	two := annotated()
	two.Keys = []string{"n"}
	both := annotated()
	both.Keys = []string{"k", "n"}
	cases := map[string]struct {
		first, second Settings
		want          []string // of a running pod and one whose clear is pending
		thenDEL       []string
	}{
		"unchanged":  {annotated(), annotated(), []string{"s1 present k", "s2 empty k"}, []string{"s1 empty k", "s2 empty k"}},
		"off":        {annotated(), off, []string{"s1 absent k", "s2 empty k"}, []string{"s1 empty k", "s2 empty k"}},
		"on":         {off, annotated(), []string{"s1 present k"}, []string{"s1 empty k"}},
		"renamed":    {annotated(), two, []string{"s1 present n stale k", "s2 empty k"}, []string{"s1 empty k+n", "s2 empty k"}},
		"key added":  {annotated(), both, []string{"s1 present k+n", "s2 empty k"}, []string{"s1 empty k+n", "s2 empty k"}},
		"key gone":   {both, annotated(), []string{"s1 present k stale n", "s2 empty k+n"}, []string{"s1 empty k+n", "s2 empty k+n"}},
		"stays off":  {off, off, []string{}, []string{}},
		"on no keys": {annotated(), Settings{Annotate: true}, []string{"s1 absent k", "s2 empty k"}, []string{"s1 empty k", "s2 empty k"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.first)
			w.eni("eni-1", 1, 4)
			w.sync()
			w.run("s1", "u1")
			w.run("s2", "u2")
			w.end("s2")
			w.pass(time.Minute)
			w.restart(c.second)
			w.wantRecords(c.want...)
			submitted := w.p.Submissions()
			if len(submitted) != len(c.want) {
				t.Errorf("%d records submitted at start, want all %d", len(submitted), len(c.want))
			}
			for _, rec := range submitted {
				if rec.Wish == WishPresent && w.now.Sub(rec.Since) < time.Minute {
					t.Errorf("%s: a running pod's value is submitted as news, before those of new pods", rec.Sandbox)
				}
			}
			w.end("s1")
			got := w.records()
			for i := range got { // the order of united keys does not matter
				got[i] = sortKeys(got[i])
			}
			if !slices.Equal(got, c.thenDEL) {
				t.Errorf("after DEL %q, want %q", got, c.thenDEL)
			}
		})
	}
}

func sortKeys(line string) string {
	f := strings.Fields(line)
	keys := strings.Split(f[2], "+")
	slices.Sort(keys)
	f[2] = strings.Join(keys, "+")
	return strings.Join(f, " ")
}

func TestAnswers(t *testing.T) {
	renamed := annotated()
	renamed.Keys = []string{"n"}
	cases := map[string]struct {
		prepare func(w *world)
		wish    Wish
		verdict Verdict
		keys    []string
		want    []string
	}{
		"written":                     {func(*world) {}, WishPresent, VerdictDone, nil, []string{"s1 present k"}},
		"write refused stays owned":   {func(*world) {}, WishPresent, VerdictRefused, nil, []string{"s1 present k"}},
		"write, pod gone":             {func(*world) {}, WishPresent, VerdictGone, nil, nil},
		"write pending":               {func(*world) {}, WishPresent, VerdictPending, nil, []string{"s1 present k"}},
		"stale key gone":              {func(w *world) { w.restart(renamed) }, WishPresent, VerdictDone, []string{"n", "k"}, []string{"s1 present n"}},
		"stale key not yet":           {func(w *world) { w.restart(renamed) }, WishPresent, VerdictDone, []string{"n"}, []string{"s1 present n stale k"}},
		"cleared":                     {func(w *world) { w.end("s1") }, WishEmpty, VerdictDone, nil, nil},
		"clear refused stays owned":   {func(w *world) { w.end("s1") }, WishEmpty, VerdictRefused, nil, []string{"s1 empty  stale k"}},
		"one key of two refused":      {func(w *world) { w.restart(renamed); w.end("s1") }, WishEmpty, VerdictRefused, []string{"n"}, []string{"s1 empty k stale n"}},
		"clear, pod gone":             {func(w *world) { w.end("s1") }, WishEmpty, VerdictGone, []string{"k"}, nil},
		"clear pending":               {func(w *world) { w.end("s1") }, WishEmpty, VerdictPending, nil, []string{"s1 empty k"}},
		"late answer to the write":    {func(w *world) { w.end("s1") }, WishPresent, VerdictGone, nil, []string{"s1 empty k"}},
		"one key of two cleared":      {func(w *world) { w.restart(renamed); w.end("s1") }, WishEmpty, VerdictDone, []string{"n"}, []string{"s1 empty k"}},
		"removed":                     {func(w *world) { w.restart(Settings{}) }, WishAbsent, VerdictDone, nil, nil},
		"removal refused stays owned": {func(w *world) { w.restart(Settings{}) }, WishAbsent, VerdictRefused, nil, []string{"s1 absent k"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, annotated())
			w.eni("eni-1", 1, 4)
			w.sync()
			w.run("s1", "u1")
			c.prepare(w)
			w.answer("s1", c.wish, c.verdict, c.keys...)
			w.wantRecords(c.want...)
		})
	}
}

func TestAddressWhoseClearIsPendingGoesLast(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 2)
	w.sync()
	first := w.run("s1", "u1")
	w.end("s1")
	w.pass(31 * time.Second)
	if got := w.condition(first); got != Clearing {
		t.Fatalf("%s, want clearing", got)
	}
	if other := w.assign("s2", "u2"); other == first {
		t.Error("given out before the other one")
	}
	if last := w.assign("s3", "u3"); last != first {
		t.Errorf("got %s", last)
	}
	if n := w.p.View(w.now).TookClearing; n != 1 {
		t.Errorf("%d counted", n)
	}
	w.wantRecords("s1 empty k", "s2 present k", "s3 present k")
}

func TestPendingClearHoldsAnAddressForTenMinutes(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 1)
	w.sync()
	addr := w.run("s1", "u1")
	w.end("s1")
	w.pass(clearPatience - time.Second)
	if got := w.condition(addr); got != Clearing {
		t.Errorf("%s, want clearing", got)
	}
	w.pass(time.Second)
	if got := w.condition(addr); got != Free {
		t.Errorf("%s, want free", got)
	}
	w.wantRecords("s1 empty k") // still tried
}

// A refusal is an answer, so the address is free; but the dead address still stands on the pod, so the record stays, over
// restarts, until the clear is done, the pod is gone, or a later sandbox of the pod has the value.
func TestA23RefusedClearFreesTheAddressAndStaysOwned(t *testing.T) {
	begin := func(t *testing.T) (*world, netip.Addr) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 2)
		w.sync()
		addr := w.run("s1", "u1")
		w.end("s1")
		w.pass(31 * time.Second)
		if got := w.condition(addr); got != Clearing {
			t.Fatalf("%s before the answer, want clearing", got)
		}
		before := w.p.Revision()
		w.answer("s1", WishEmpty, VerdictRefused)
		if got := w.condition(addr); got != Free {
			t.Errorf("%s after the refusal, want free", got)
		}
		if w.p.Revision() == before {
			t.Error("the refusal is not saved")
		}
		w.wantRecords("s1 empty  stale k")
		return w, addr
	}
	for verdict, after := range map[Verdict][]string{
		VerdictDone: nil, VerdictGone: nil, VerdictRefused: {"s1 empty  stale k"}, VerdictPending: {"s1 empty  stale k"},
	} {
		t.Run("then "+string(verdict), func(t *testing.T) {
			w, _ := begin(t)
			w.answer("s1", WishEmpty, verdict, "k")
			w.wantRecords(after...)
		})
	}
	t.Run("restart", func(t *testing.T) {
		w, addr := begin(t)
		since := w.p.Snapshot().Annotations[0].Since
		w.restart(annotated())
		w.wantRecords("s1 empty  stale k")
		if got := w.condition(addr); got != Free {
			t.Errorf("%s, want free", got)
		}
		if got := w.p.Submissions(); len(got) != 1 || got[0].Wish != WishEmpty || !got[0].Since.Equal(since) {
			t.Errorf("submitted %v, want the clear, as old as it is", got)
		}
	})
	t.Run("the address goes to another pod", func(t *testing.T) {
		w, addr := begin(t)
		w.run("s2", "u2")
		if got := w.run("s3", "u3"); got != addr {
			t.Fatalf("got %s", got)
		}
		w.wantRecords("s1 empty  stale k", "s2 present k", "s3 present k")
		w.answer("s1", WishEmpty, VerdictDone, "k")
		w.wantRecords("s2 present k", "s3 present k")
	})
	t.Run("new sandbox of the pod, same address", func(t *testing.T) {
		w, addr := begin(t)
		if got := w.run("s2", "u1"); got != addr {
			t.Fatalf("got %s", got)
		}
		w.wantRecords("s2 present k")
		w.end("s2") // its own clear counts anew
		w.wantRecords("s2 empty k")
		w.pass(31 * time.Second)
		if got := w.condition(addr); got != Clearing {
			t.Errorf("%s, want clearing", got)
		}
	})
	t.Run("the knob goes off and the pod runs again", func(t *testing.T) {
		w, _ := begin(t)
		w.restart(Settings{Cooldown: 30 * time.Second})
		w.wantRecords("s1 empty  stale k")
		w.run("s2", "u1")
		w.wantRecords("s1 absent k")
	})
}

func TestPendingClearDoesNotSkipCooldown(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 1)
	w.sync()
	w.run("s1", "u1")
	w.end("s1")
	w.refuse("s2", "u2")
}

func TestNewSandboxOfAPodTakesOverItsValue(t *testing.T) {
	t.Run("same address: the old clear is void", func(t *testing.T) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 1)
		w.sync()
		w.run("s1", "u1")
		w.end("s1")
		w.run("s2", "u1")
		w.wantRecords("s2 present k")
		w.answer("s1", WishEmpty, VerdictDone)
		w.wantRecords("s2 present k")
	})
	t.Run("same address, key renamed meanwhile: the old key is stale", func(t *testing.T) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 1)
		w.sync()
		w.run("s1", "u1")
		w.end("s1")
		renamed := annotated()
		renamed.Keys = []string{"n"}
		w.restart(renamed)
		w.run("s2", "u1")
		w.wantRecords("s2 present n stale k")
	})
	t.Run("other address: records of their own", func(t *testing.T) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 2)
		w.sync()
		w.run("s1", "u1")
		w.run("s2", "u1")
		w.end("s1")
		w.wantRecords("s1 empty k", "s2 present k")
	})
	t.Run("knob off: the key goes, it is not emptied", func(t *testing.T) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 2)
		w.sync()
		w.run("s1", "u1")
		w.restart(Settings{})
		w.run("s2", "u1")
		w.end("s1")
		w.wantRecords("s1 absent k")
	})
	t.Run("knob off, DEL first", func(t *testing.T) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 2)
		w.sync()
		w.run("s1", "u1")
		w.restart(Settings{})
		w.end("s1")
		w.run("s2", "u1")
		w.wantRecords("s1 absent k")
	})
	t.Run("another pod of the name: both stand", func(t *testing.T) {
		w := newWorld(t, annotated())
		w.eni("eni-1", 1, 1)
		w.sync()
		w.run("s1", "u1")
		w.end("s1")
		w.pass(time.Minute)
		if _, err := w.p.Assign(Request{Key: key("s2"), Pod: Pod{"ns", "pod-u1", "u2"}}, w.now); err != nil {
			t.Fatal(err)
		}
		w.wantRecords("s1 empty k", "s2 present k")
	})
}

func TestClearingAddressesServeWaitingADDsInsteadOfEC2(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: time.Second, Annotate: true, Keys: []string{"k"}, WarmIP: 1})
	w.eni("eni-1", 1, 0)
	w.settle()
	w.run("s1", "u1")
	w.end("s1")
	w.pass(2 * time.Second)
	w.p.Demand(1)
	w.p.Plan(w.now)
	if got := w.p.Decision().Short; got != 1 {
		t.Errorf("%d short, want 1: a clearing address is not warm, but it serves the ADD that waits", got)
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 4)
	w.sync()
	w.run("s1", "u1")
	w.run("s2", "u2")
	w.assign("s3", "u3")
	w.end("s2")
	w.run("s4", "u4")
	w.end("s4")
	w.answer("s4", WishEmpty, VerdictRefused)
	snap := w.p.Snapshot()
	again := New(Settings{Cooldown: 30 * time.Second, Annotate: true, Keys: []string{"k"}, BootID: "boot"})
	again.Restore(snap, w.now)
	if got, want := fmt.Sprint(again.Snapshot()), fmt.Sprint(snap); got != want {
		t.Errorf("restored\n%s\nsaved\n%s", got, want)
	}
	if !slices.IsSortedFunc(snap.Assignments, func(a, b Assignment) int { return a.Addr.Compare(b.Addr) }) {
		t.Error("not in a fixed order")
	}
	again.Restore(Snapshot{BootID: "boot", Assignments: []Assignment{{}}, Cooling: []Cooling{{}}, Annotations: []Annotation{{}}}, w.now)
	if again.addrs[netip.Addr{}] != nil {
		t.Error("an entry without an address was taken")
	}
}
