package pool

import (
	"testing"
	"time"
)

// The kernel is told to keep the host's end of pods whose network is in place, and only of those that nobody disputes.
func TestB34OnlyUndisputedPodsAreWantedInTheKernel(t *testing.T) {
	w := newWorld(t, Settings{Cooldown: time.Minute})
	w.eni("eni-1", 1, 6)
	w.sync()
	addr := w.run("s1", "u1")
	w.assign("s2", "u2") // its plugin is at work
	want := []HostPod{{Key: key("s1"), Pod: Pod{"ns", "pod-u1", "u1"}, Addr: addr}}
	if got := w.p.HostState().Pods; len(got) != 1 || got[0] != want[0] {
		t.Errorf("wanted %v, not %v", got, want)
	}
	if _, err := w.p.Assign(Request{Key: key("s3"), Pod: Pod{"ns", "pod-u1", "u3"}}, w.now); err != nil {
		t.Fatal(err)
	}
	if got := w.p.HostState().Pods; len(got) != 0 {
		t.Errorf("two sandboxes of one pod, and %v is wanted", got)
	}
	w.p.Release(key("s3"), w.now)
	if got := w.p.HostState().Pods; len(got) != 1 {
		t.Errorf("the newer sandbox has ended, wanted %v", got)
	}
}
