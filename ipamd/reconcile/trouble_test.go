package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

var errDisk = errors.New("no space left on device")

func TestADDIsRefusedWhenItCannotBeSaved(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.ready()
		r.set(reconcile.KindSave, 0, errDisk)
		_, err := r.assign(1, time.Minute)
		var save *reconcile.SaveError
		if !errors.As(err, &save) || !errors.Is(err, errDisk) {
			t.Fatalf("%v", err)
		}
		if _, err := r.loop.Check(t.Context(), sandboxKey(1)); !errors.Is(err, reconcile.ErrUnknown) {
			t.Errorf("the address is still held: %v", err)
		}
		status, _ := r.loop.Status(t.Context())
		if status.Errors.Save == "" {
			t.Error("status does not tell")
		}
		r.set(reconcile.KindSave, 0, nil)
		pass(time.Minute)
		r.mustAssign(2)
		if got := len(r.onDisk().Assignments); got != 1 {
			t.Errorf("%d assignments on disk", got)
		}
	})
}

func TestRepeatedADDThatCannotBeSavedKeepsTheFirstOnesAddress(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 3}, func(t *testing.T, r *rig) {
		r.ready()
		first := r.mustAssign(1)
		r.set(reconcile.KindSave, 0, errDisk)
		_, _ = r.assign(2, time.Second) // leaves something unsaved
		_, _ = r.assign(1, time.Second)
		if got, err := r.loop.Check(t.Context(), sandboxKey(1)); err != nil || got.Assignment.Addr != first.Assignment.Addr {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestDoneThatCannotBeSavedIsUndone(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(1)
		r.set(reconcile.KindSave, 0, errDisk)
		var save *reconcile.SaveError
		if err := r.loop.Done(t.Context(), sandboxKey(1)); !errors.As(err, &save) {
			t.Fatalf("%v", err)
		}
		if got, err := r.loop.Check(t.Context(), sandboxKey(1)); err != nil || got.Assignment.Done {
			t.Errorf("%+v, %v: want it held until the plugin has gone, and not done", got, err)
		}
		if err := r.loop.Abort(t.Context(), sandboxKey(1)); err != nil {
			t.Errorf("abort: %v", err)
		}
		if _, err := r.loop.Check(t.Context(), sandboxKey(1)); !errors.Is(err, reconcile.ErrUnknown) {
			t.Errorf("after abort: %v", err)
		}
	})
}

func TestDELSucceedsWhenItCannotBeSaved(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(1)
		r.set(reconcile.KindSave, 0, errDisk)
		if _, found, err := r.loop.Release(t.Context(), sandboxKey(1)); err != nil || !found {
			t.Errorf("%v %v", found, err)
		}
		if _, found, err := r.loop.Release(t.Context(), sandboxKey(1)); err != nil || found {
			t.Errorf("twice: %v %v", found, err)
		}
		r.set(reconcile.KindSave, 0, nil)
		pass(time.Minute)
		synctest.Wait()
		if got := len(r.onDisk().Assignments); got != 0 {
			t.Errorf("%d assignments on disk: the save was not tried again", got)
		}
	})
}

func TestFailedSavesAreNotABusyLoop(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.ready()
		r.set(reconcile.KindSave, 0, errDisk)
		_, _ = r.assign(1, time.Second)
		pass(10 * time.Minute)
		if n := r.seen()["save failed"]; n < 3 || n > 40 {
			t.Errorf("%d tries in 10 minutes", n)
		}
	})
}

func TestEndedCallersStillEndTheirSandbox(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(1)
		r.mustAssign(2)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.loop.Abort(over, sandboxKey(1)); err != nil {
			t.Errorf("abort: %v", err)
		}
		if err := r.loop.Done(over, sandboxKey(2)); err != nil {
			t.Errorf("done: %v", err)
		}
		if _, _, err := r.loop.Release(over, sandboxKey(2)); err != nil {
			t.Errorf("release: %v", err)
		}
		if got := len(r.onDisk().Assignments); got != 0 {
			t.Errorf("%d assignments are left", got)
		}
	})
}

func TestKernelIsNotTouchedBeforeEC2IsRead(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.cloud.throttled = time.Now().Add(5 * time.Minute)
		r.start()
		r.host.notify()
		_, err := r.assign(1, 10*time.Second)
		var none *reconcile.NoAddressError
		if !errors.As(err, &none) || !strings.Contains(none.Reason, "Request limit exceeded") {
			t.Errorf("%v", err)
		}
		pass(3 * time.Minute)
		if n := r.seen()["host Apply"]; n != 0 {
			t.Errorf("%d passes over the kernel", n)
		}
		select {
		case <-r.loop.Ready():
			t.Error("ready")
		default:
		}
		pass(5 * time.Minute)
		r.mustAssign(1)
	})
}

func TestIdleNodeIsQuiet(t *testing.T) {
	inBubble(t, pool.Settings{WarmENI: 1}, func(t *testing.T, r *rig) {
		r.ready()
		pass(10 * time.Minute)
		synctest.Wait()
		seen := r.seen()
		if seen["cloud Observe"] > 11 || seen["host Apply"] > 22 || seen["save state"] > 0 || seen["cloud Observe"] < 9 || seen["host Apply"] < 19 {
			t.Errorf("in 10 minutes: %v", seen)
		}
	})
}

func TestStormOfKernelNoticesIsMerged(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 1}, func(t *testing.T, r *rig) {
		r.ready()
		for range 1000 {
			r.host.notify()
			pass(time.Millisecond)
		}
		if n := r.seen()["host Apply"]; n < 5 || n > 11 {
			t.Errorf("%d passes over the kernel in a second", n)
		}
	})
}

func TestENIThatIsDetachingIsReadAtEveryAudit(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 1, SurplusAge: time.Minute}, func(t *testing.T, r *rig) {
		r.cloud.v.SetDelays(vpc.Delays{Detach: 5 * time.Minute})
		r.ready()
		for i := range 55 {
			r.mustAssign(i)
		}
		for i := range 55 {
			_ = r.loop.Abort(t.Context(), sandboxKey(i))
		}
		for range 20 {
			pass(30 * time.Second)
			if r.seen()["cloud DetachENI"] > 0 {
				break
			}
		}
		pass(4 * time.Minute)
		if n := r.seen()["cloud Observe"]; n < 7 {
			t.Errorf("%d readings in 4 minutes", n)
		}
	})
}

func TestKernelPassThatFailsIsRepeatedAndStaysAnAudit(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(1)
		if err := r.loop.Done(t.Context(), sandboxKey(1)); err != nil {
			t.Fatal(err)
		}
		r.set(reconcile.KindHost, 0, errors.New("netlink: interrupted"))
		pass(3 * time.Minute)
		if n := r.seen()["host failed"]; n < 4 || n > 20 {
			t.Errorf("%d tries in 3 minutes", n)
		}
		if _, err := r.loop.Check(t.Context(), sandboxKey(1)); err != nil {
			t.Errorf("ended without evidence: %v", err)
		}
		r.set(reconcile.KindHost, 0, nil)
		pass(75 * time.Second)
		if _, err := r.loop.Check(t.Context(), sandboxKey(1)); !errors.Is(err, reconcile.ErrUnknown) {
			t.Errorf("no route in two audits, and still held: %v", err)
		}
	})
}

func TestRestartKeepsRunningPods(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2, Annotate: true, Keys: []string{"k"}}, func(t *testing.T, r *rig) {
		r.ready()
		lease := r.mustAssign(1)
		r.host.addRoute(lease.Assignment.Addr, "s1")
		if err := r.loop.Done(t.Context(), sandboxKey(1)); err != nil {
			t.Fatal(err)
		}
		r.stop()
		again := r.with(pool.Settings{WarmIP: 2})
		again.ready()
		defer again.stop()
		got, err := again.loop.Check(t.Context(), sandboxKey(1))
		if err != nil || got.Assignment.Addr != lease.Assignment.Addr {
			t.Errorf("%+v, %v", got, err)
		}
		if len(again.records) != 1 || again.records[0].Wish != pool.WishAbsent {
			t.Errorf("the knob is off now; submitted %+v", again.records)
		}
		again.loop.Answered(pool.Answer{Owner: again.records[0].Owner, Wish: pool.WishAbsent, Verdict: pool.VerdictDone})
		synctest.Wait()
		if n := len(again.onDisk().Annotations); n != 0 {
			t.Errorf("%d records on disk after the answer", n)
		}
		r.stop = func() {}
	})
}

func TestUnreadableStateDoesNotKeepTheDaemonFromStarting(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		if err := r.disk.WriteFile("/state", []byte("{\"ver"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.ready()
		r.mustAssign(1)
		status, err := r.loop.Status(t.Context())
		if err != nil || !strings.Contains(status.Errors.Load, "/state.unreadable-") {
			t.Errorf("status: %q, %v", status.Errors.Load, err)
		}
		if names := r.disk.Names(); len(names) != 2 {
			t.Errorf("files %v", names)
		}
	})
}

func TestStoppedLoopAnswers(t *testing.T) {
	inBubble(t, pool.Settings{MinimumIP: 1}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(0)
		waiting := make(chan error, 1)
		go func() {
			_, err := r.assign(1, time.Minute)
			waiting <- err
		}()
		pass(time.Second)
		r.stop()
		if err := <-waiting; !errors.Is(err, reconcile.ErrStopped) {
			t.Errorf("a waiting ADD got %v", err)
		}
		r.loop.Answered(pool.Answer{}) // never blocks
		_, err := r.assign(2, time.Minute)
		_, _, release := r.loop.Release(t.Context(), sandboxKey(0))
		_, status := r.loop.Status(t.Context())
		for _, err := range []error{err, r.loop.Done(t.Context(), sandboxKey(0)), release, status} {
			if !errors.Is(err, reconcile.ErrStopped) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestGCAndCheck(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 5}, func(t *testing.T, r *rig) {
		r.ready()
		for i := range 3 {
			r.mustAssign(i)
		}
		for i := range 2 {
			if err := r.loop.Done(t.Context(), sandboxKey(i)); err != nil {
				t.Fatal(err)
			}
		}
		freed, err := r.loop.GC(t.Context(), "net", []pool.Key{sandboxKey(1)})
		if err != nil || !slices.Equal(freed, []pool.Key{sandboxKey(0)}) {
			t.Errorf("freed %v, %v", freed, err)
		}
		if got := len(r.onDisk().Assignments); got != 2 {
			t.Errorf("%d on disk", got)
		}
		if err := r.loop.Done(t.Context(), sandboxKey(0)); !errors.Is(err, reconcile.ErrUnknown) {
			t.Errorf("done of a freed sandbox: %v", err)
		}
	})
}

func TestEveryEffectGoesThroughTheSeam(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 1, Annotate: true, Keys: []string{"k"}}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(1)
		pass(10 * time.Second)
		seen := r.seen()
		for _, effect := range []string{"cloud AssignAddresses", "save state", "host Apply", "annotate Submit"} {
			if seen[effect] == 0 {
				t.Errorf("no %q among %v", effect, seen)
			}
		}
	})
}
