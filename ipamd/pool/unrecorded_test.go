package pool

import (
	"fmt"
	"testing"
	"time"
)

// unrecorded is a pool without a record of the pod that is seen on the address that it gives.
func unrecorded(t *testing.T) (*world, PodRoute) {
	w := newWorld(t, Settings{Annotate: true, Keys: []string{"a/b"}, Cooldown: time.Minute})
	e := w.eni("eni-1", 1, 2)
	seen := PodRoute{Addr: e.Secondary[0], Link: "eni-of-web"}
	w.pods = []PodRoute{seen}
	w.sync()
	return w, seen
}

func TestDepartureOfAnUnrecordedPodFreesItsAddressAndClearsItsAnnotation(t *testing.T) {
	w, seen := unrecorded(t)
	w.p.Departed(pod("web"), "s1", seen.Link, w.now)
	w.p.Departed(pod("web"), "s1", seen.Link, w.now) // runtimes say it twice
	if !w.p.NeedHost(w.now) {
		t.Fatal("the kernel is not to be read")
	}
	w.pods = nil
	w.kernel(false)
	if got := w.condition(seen.Addr); got != Resting || w.p.NeedHost(w.now) {
		t.Errorf("the address is %s, kernel to be read: %v", got, w.p.NeedHost(w.now))
	}
	want := Owner{Pod: pod("web"), Sandbox: "s1", Addr: seen.Addr}
	if list := w.p.Submissions(); len(list) != 1 || list[0].Owner != want || list[0].Wish != WishEmpty || len(list[0].Keys) != 1 {
		t.Errorf("submitted: %+v", list)
	}
	w.pass(2 * time.Minute)
	if got := w.condition(seen.Addr); got != Clearing {
		t.Errorf("while the clear is pending the address is %s", got)
	}
	w.p.Answer(Answer{Owner: want, Wish: WishEmpty, Verdict: VerdictDone})
	if got := w.condition(seen.Addr); got != Free {
		t.Errorf("then it is %s", got)
	}
}

// A late DEL of the older of two unrecorded sandboxes: the link is the newer one's.
func TestDepartureWhileTheLinkStandsIsOfAnOlderSandbox(t *testing.T) {
	w, seen := unrecorded(t)
	w.p.Departed(pod("web"), "older", seen.Link, w.now)
	asked := 0
	for range 1000 {
		if w.p.NeedHost(w.now) {
			asked++
			w.kernel(false)
		}
		w.pass(10 * time.Millisecond)
	}
	if asked != departTries {
		t.Errorf("the kernel was read %d times", asked)
	}
	w.pods = nil
	w.kernel(false)
	if list := w.p.Submissions(); len(list) != 0 {
		t.Errorf("submitted: %+v", list)
	}
}

// The namespace was gone before DEL, and the kernel takes its time with the veth.
func TestDepartureAheadOfTheVethsEnd(t *testing.T) {
	w, seen := unrecorded(t)
	w.p.Departed(pod("web"), "s1", seen.Link, w.now)
	w.kernel(false)
	w.pods = nil
	next, ok := w.p.NextWake(w.now)
	if !ok || next.Sub(w.now) > time.Second || w.p.NeedHost(w.now) {
		t.Fatalf("next look at %v, %v", next, ok)
	}
	w.now = next
	if !w.p.NeedHost(w.now) {
		t.Error("the kernel is not to be read again")
	}
	w.kernel(false)
	if got := w.condition(seen.Addr); got != Resting || len(w.p.Submissions()) != 1 {
		t.Errorf("the address is %s", got)
	}
}

func TestReportThatBeganBeforeADepartureSaysNothingOfIt(t *testing.T) {
	w, seen := unrecorded(t)
	began := w.now
	w.pass(time.Second)
	w.p.Departed(pod("web"), "s1", seen.Link, w.now)
	w.p.FoldHost(HostReport{Pods: w.pods}, HostReading{Began: began, Now: w.now})
	if !w.p.NeedHost(w.now) {
		t.Error("the kernel need not be read again")
	}
}

func TestDepartureOfWhatNobodySawAsksForNothing(t *testing.T) {
	w, _ := unrecorded(t)
	w.p.Departed(pod("other"), "s2", "eni-of-other", w.now)
	w.p.Departed(pod("other"), "s2", "", w.now)
	if w.p.NeedHost(w.now) {
		t.Error("the kernel is to be read")
	}
}

// The same pod object runs again by the time its unrecorded sandbox is gone: its annotation is the new sandbox's.
func TestDepartureOfAPodThatRunsAgainClearsNothing(t *testing.T) {
	w, seen := unrecorded(t)
	w.run("s2", "web")
	w.p.Submissions()
	w.p.Departed(pod("web"), "s1", seen.Link, w.now)
	w.pods = w.pods[1:]
	w.kernel(false)
	if list := w.p.Submissions(); len(list) != 0 {
		t.Errorf("submitted: %+v", list)
	}
}

// A host veth is named by its pod's name: what departs by it may be a sandbox of the pod, or one of its successor that never
// had an address. Whoever it was, the address rests for everybody.
func TestDepartureGivesNobodyTheAddressBeforeItsCooldown(t *testing.T) {
	cases := []struct {
		name     string
		departed []string // pods whose sandboxes were deleted, the first while the veth stood
	}{
		{"the pod itself", []string{"web"}},
		{"its successor, whose ADD failed", []string{"next"}},
		{"the successor twice, then the pod", []string{"next", "next", "web"}},
		{"the pod, then its successor", []string{"web", "next"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, seen := unrecorded(t)
			w.obs.ENIs[1].Secondary = w.obs.ENIs[1].Secondary[:1]
			w.sync()
			for k, name := range c.departed {
				w.p.Departed(pod(name), fmt.Sprint(name, k), seen.Link, w.now)
			}
			w.kernel(false)
			w.pods = nil
			w.pass(departFirst)
			w.kernel(false)
			w.pass(10 * time.Second) // all departures are over
			w.kernel(false)
			for _, name := range append(c.departed, "other") {
				w.refuse("s9", name)
			}
			w.pass(time.Minute)
			if got := w.assign("s9", "next"); got != seen.Addr {
				t.Errorf("after the cooldown: %s", got)
			}
		})
	}
}
