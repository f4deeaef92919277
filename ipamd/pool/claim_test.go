package pool

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// An address that a pod's object still names, though no sandbox of ours has it (its record is lost, or its pod is somebody
// else's), goes last; its own pod may have it at once, and who must take it is told of.
func TestAddressThatAPodStillNamesGoesLast(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1})
	w.eni("eni-1", 1, 3)
	w.sync()
	named := w.get("eni-1").Secondary[0]
	ghost := Pod{Namespace: "ns", Name: "ghost", UID: "u-ghost"}
	w.p.Claim([]Claim{{Pod: ghost, Addr: named}, {Pod: ghost, Addr: netip.MustParseAddr("192.0.2.9")}})
	got := map[netip.Addr]bool{w.assign("s1", "u1"): true, w.assign("s2", "u2"): true}
	if got[named] {
		t.Errorf("%v: the one that is named is among the first two", got)
	}
	if taken := w.p.Taken(); taken != nil {
		t.Errorf("told of %v", taken)
	}
	if last := w.assign("s3", "u3"); last != named {
		t.Errorf("got %s", last)
	}
	taken := w.p.Taken()
	if len(taken) != 1 || taken[0].Addr != named || taken[0].By != "pod ns/ghost" || w.p.Taken() != nil {
		t.Errorf("told of %v", taken)
	}
	if v := w.p.View(w.now); v.TookClaimed != 1 || v.TookClearing != 0 {
		t.Errorf("counted %d and %d", v.TookClaimed, v.TookClearing)
	}
}

func TestClaimsEndWithTheNextListAndDoNotHoldTheirOwnPodBack(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1})
	w.eni("eni-1", 1, 2)
	w.sync()
	first := w.get("eni-1").Secondary[0]
	w.p.Claim([]Claim{{Pod: Pod{Namespace: "ns", Name: "ghost", UID: "x"}, Addr: first}})
	w.p.Claim(nil)
	if got := w.assign("s1", "u1"); got != first {
		t.Errorf("got %s, want %s: nobody names it any more", got, first)
	}
	second := w.get("eni-1").Secondary[1]
	a, err := w.p.Assign(Request{Key: Key{Sandbox: "s9"}, Pod: Pod{Namespace: "ns", Name: "own", UID: "u9"}}, w.now)
	if err != nil || a.Addr != second {
		t.Fatalf("%s, %v", a.Addr, err)
	}
	w.p.Claim([]Claim{{Pod: a.Pod, Addr: second}})
	w.p.Release(a.Key, w.now)
	w.pass(time.Minute)
	w.sync()
	b, err := w.p.Assign(Request{Key: Key{Sandbox: "s10"}, Pod: a.Pod}, w.now)
	if err != nil || b.Addr != second {
		t.Errorf("the pod's next sandbox gets %s, %v", b.Addr, err)
	}
	if diff := cmp.Diff([]Taken(nil), w.p.Taken()); diff != "" {
		t.Errorf("told of its own claim:\n%s", diff)
	}
}

// A clear that is pending is told of in the same words; the pod whose annotation it is may have the address at any time.
func TestTakingAnAddressWhoseClearIsPendingIsTold(t *testing.T) {
	w := newWorld(t, annotated())
	w.eni("eni-1", 1, 1)
	w.sync()
	addr := w.run("s1", "u1")
	w.end("s1")
	w.pass(31 * time.Second)
	w.sync()
	if got := w.assign("s2", "u2"); got != addr {
		t.Fatalf("got %s", got)
	}
	if taken := w.p.Taken(); len(taken) != 1 || taken[0].Addr != addr {
		t.Errorf("told of %v", taken)
	}
}
