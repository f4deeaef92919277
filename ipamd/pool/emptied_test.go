package pool

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// emptied runs a pod and ends it, until its key holds "".
func emptied(t *testing.T) *world {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 4)
	w.sync()
	w.run("s1", "u1")
	w.end("s1")
	w.answer("s1", WishEmpty, VerdictDone)
	w.wantRecords()
	if got := w.p.Snapshot().Emptied; len(got) != 1 || got[0].Pod.UID != "u1" || !slices.Equal(got[0].Keys, []string{"k"}) {
		t.Fatalf("remembered: %v", got)
	}
	return w
}

func (w *world) wantEmptied(keys ...string) {
	w.t.Helper()
	recs := w.p.Snapshot().Annotations
	if len(recs) != 1 || !slices.Equal(recs[0].Emptied, keys) {
		w.t.Errorf("records %v, emptied keys wanted: %v", recs, keys)
	}
}

func TestEmptiedKeysAreTheNextSandboxesToRemove(t *testing.T) {
	renamed := annotated()
	renamed.Keys = []string{"n"}
	for name, c := range map[string]struct {
		set   Settings
		want  []string
		empty []string
	}{
		"off":        {set: Settings{Cooldown: 30 * time.Second}, want: []string{"s2 absent k"}, empty: []string{"k"}},
		"other keys": {set: renamed, want: []string{"s2 present n stale k"}, empty: []string{"k"}},
		"as before":  {set: annotated(), want: []string{"s2 present k"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := emptied(t)
			w.restart(c.set)
			w.run("s2", "u1")
			w.wantRecords(c.want...)
			w.wantEmptied(c.empty...)
			if got := w.p.Snapshot().Emptied; len(got) != 0 {
				t.Errorf("still remembered: %v", got)
			}
		})
	}
	t.Run("the next sandbox ends before the removal: remembered again", func(t *testing.T) {
		w := emptied(t)
		w.restart(Settings{Cooldown: 30 * time.Second})
		w.run("s2", "u1")
		w.end("s2")
		w.wantRecords("s2 empty k")
		w.answer("s2", WishEmpty, VerdictDone)
		if got := w.p.Snapshot().Emptied; len(got) != 1 {
			t.Errorf("remembered: %v", got)
		}
	})
	t.Run("removed: forgotten", func(t *testing.T) {
		w := emptied(t)
		w.restart(Settings{Cooldown: 30 * time.Second})
		w.run("s2", "u1")
		w.answer("s2", WishAbsent, VerdictDone)
		w.wantRecords()
		if got := w.p.Snapshot().Emptied; len(got) != 0 {
			t.Errorf("remembered: %v", got)
		}
	})
	t.Run("another pod of the name", func(t *testing.T) {
		w := emptied(t)
		w.restart(Settings{Cooldown: 30 * time.Second})
		w.run("s2", "u2")
		w.wantRecords()
	})
	t.Run("a day later", func(t *testing.T) {
		w := emptied(t)
		w.now = w.now.Add(emptiedMemory + time.Minute)
		w.restart(Settings{Cooldown: 30 * time.Second})
		w.run("s2", "u1")
		w.wantRecords()
	})
}

// The clear of the earlier sandbox may have been carried out though its answer never came: "" is ours there, too.
func TestPendingClearMayHaveEmptiedTheKey(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 4)
	w.sync()
	w.run("s1", "u1")
	w.end("s1")
	w.restart(Settings{Cooldown: 30 * time.Second})
	w.run("s2", "u1")
	w.wantRecords("s1 absent k")
	w.wantEmptied("k")
}

// A clear that ends when the pod has another sandbox already, under other keys: that one's record removes what it left.
func TestClearThatEndsLateIsTheNextSandboxesToRemove(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 4)
	w.sync()
	first := w.run("s1", "u1")
	w.end("s1")
	renamed := annotated()
	renamed.Keys = []string{"n"}
	w.restart(renamed)
	w.p.addrs[first].occupied = true // so that the pod does not get it again
	w.run("s2", "u1")
	w.wantRecords("s1 empty k", "s2 present n")
	w.answer("s1", WishEmpty, VerdictDone)
	w.wantRecords("s2 present n stale k")
	w.wantEmptied("k")
}

func TestEmptiedKeysOfSoManyPodsAreRemembered(t *testing.T) {
	p := New(annotated())
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range emptiedLimit + 10 {
		rec := &Annotation{Owner: Owner{Pod: Pod{UID: fmt.Sprint(i)}}, Since: began.Add(time.Duration(i) * time.Second)}
		p.remember(rec, []string{"k"})
	}
	p.remember(&Annotation{Since: began}, []string{"k"}) // without a UID
	list := p.Snapshot().Emptied
	if len(list) != emptiedLimit || list[0].Pod.UID != "10" {
		t.Errorf("%d, from %v", len(list), list[0])
	}
}
