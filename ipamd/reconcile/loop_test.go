package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// rig is a loop over the VPC model in a synctest bubble, whose effects take what slow says and fail as fail says.
type rig struct {
	t     *testing.T
	cloud *simCloud
	host  *simHost
	disk  *store.Memory
	loop  *reconcile.Loop
	stop  func()

	mu      sync.Mutex
	effects []string
	slow    map[string]time.Duration // by kind
	fail    map[string]error         // by kind: the effect is not carried out
	records []pool.Annotation
}

func newRig(t *testing.T, settings pool.Settings) *rig {
	t.Helper()
	cloud, err := newSimCloud(1, vpc.InstanceType{Name: "rig", ENIs: 4, IPv4: 50}, "10.0.0.0/20")
	if err != nil {
		t.Fatal(err)
	}
	first := &rig{t: t, cloud: cloud, host: newSimHost(cloud), disk: store.NewMemory(), slow: map[string]time.Duration{}, fail: map[string]error{}}
	return first.with(settings)
}

// with is the next life in the same world.
func (r *rig) with(settings pool.Settings) *rig {
	out := &rig{t: r.t, cloud: r.cloud, host: r.host, disk: r.disk, slow: r.slow, fail: r.fail, stop: func() {}}
	if settings.BootID == "" {
		settings.BootID = "boot"
	}
	out.loop = reconcile.New(reconcile.Config{
		Settings: settings, Cloud: out.cloud, Host: out.host, Store: store.New(out.disk, "/state"), Annotator: out, Seam: out.seam,
	})
	return out
}

// Submit implements reconcile.Annotator.
func (r *rig) Submit(record pool.Annotation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
}

func (r *rig) seam(ctx context.Context, e reconcile.Effect, run func(context.Context) error) error {
	r.mu.Lock()
	slow, fail := r.slow[e.Kind], r.fail[e.Kind]
	r.mu.Unlock()
	if slow > 0 {
		if err := wait(ctx, slow); err != nil {
			return err
		}
	}
	if fail != nil {
		r.saw(e.Kind + " failed")
		return fail
	}
	err := run(ctx)
	r.saw(e.Kind + " " + e.Name)
	return err
}

func (r *rig) saw(effect string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = append(r.effects, effect)
}

func (r *rig) set(kind string, slow time.Duration, fail error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow[kind], r.fail[kind] = slow, fail
}

// seen counts effects, and forgets them.
func (r *rig) seen() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, e := range r.effects {
		out[e]++
	}
	r.effects = nil
	return out
}

// start runs the loop; stop ends it and waits.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	a := newAgenda()
	running.Go(func() { r.cloud.drive(ctx, a, r.host) })
	running.Go(func() {
		if err := r.loop.Run(ctx); err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.stop = func() { cancel(); running.Wait(); a.stop() }
}

// ready starts the loop and lets it reach its targets.
func (r *rig) ready() {
	r.start()
	pass(20 * time.Second)
	synctest.Wait()
	select {
	case <-r.loop.Ready():
	default:
		r.t.Error("not ready after 20 s")
	}
	r.seen()
}

func sandboxKey(i int) pool.Key {
	return pool.Key{Network: "net", Sandbox: fmt.Sprint("s", i), IfName: "eth0"}
}

func podOf(i int) pool.Pod {
	return pool.Pod{Namespace: "ns", Name: fmt.Sprint("p", i), UID: fmt.Sprint("u", i)}
}

func (r *rig) assign(i int, limit time.Duration) (reconcile.Lease, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return r.loop.Assign(ctx, sandboxKey(i), podOf(i), "/netns")
}

func (r *rig) mustAssign(i int) reconcile.Lease {
	r.t.Helper()
	lease, err := r.assign(i, time.Minute)
	if err != nil {
		r.t.Fatalf("assign %d: %v", i, err)
	}
	return lease
}

// onDisk gives what a restart would find.
func (r *rig) onDisk() pool.Snapshot {
	snapshot, _, err := store.New(r.disk, "/state").Load()
	if err != nil {
		r.t.Error(err)
	}
	return snapshot
}

func held(snapshot pool.Snapshot, i int) (pool.Assignment, bool) {
	for _, a := range snapshot.Assignments {
		if a.Key == sandboxKey(i) {
			return a, true
		}
	}
	return pool.Assignment{}, false
}

func inBubble(t *testing.T, settings pool.Settings, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, settings)
		defer func() { r.stop() }()
		test(t, r)
	})
}

func TestAnswersComeAfterTheSave(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 5, Annotate: true, Keys: []string{"k"}}, func(t *testing.T, r *rig) {
		r.ready()
		r.set(reconcile.KindSave, time.Second, nil)
		start := time.Now()
		lease := r.mustAssign(1)
		if took := time.Since(start); took != time.Second {
			t.Errorf("assign took %s, the save 1 s", took)
		}
		if a, ok := held(r.onDisk(), 1); !ok || a.Addr != lease.Assignment.Addr || a.Done {
			t.Errorf("on disk: %+v %v", a, ok)
		}
		if len(r.records) != 1 || r.records[0].Wish != pool.WishPresent || len(r.onDisk().Annotations) != 1 {
			t.Errorf("records %+v", r.records)
		}
		if lease.ENI.ID != lease.Assignment.ENI || lease.ENI.MAC == "" {
			t.Errorf("ENI %+v", lease.ENI)
		}
		if err := r.loop.Done(t.Context(), sandboxKey(1)); err != nil {
			t.Fatal(err)
		}
		if a, _ := held(r.onDisk(), 1); !a.Done {
			t.Error("done was answered before it was saved")
		}
		if _, found, err := r.loop.Release(t.Context(), sandboxKey(1)); !found || err != nil {
			t.Errorf("release: %v %v", found, err)
		}
		if _, ok := held(r.onDisk(), 1); ok {
			t.Error("release was answered before it was saved")
		}
		if len(r.records) != 2 || r.records[1].Wish != pool.WishEmpty {
			t.Errorf("records %+v", r.records)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("three saves took %s", took)
		}
	})
}

func TestBurstOfADDsSharesSaves(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 110}, func(t *testing.T, r *rig) {
		r.ready()
		r.set(reconcile.KindSave, 10*time.Millisecond, nil)
		start := time.Now()
		var all sync.WaitGroup
		for i := range 110 {
			all.Go(func() {
				if _, err := r.assign(i, time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > 30*time.Millisecond {
			t.Errorf("110 ADDs took %s with saves of 10 ms", took)
		}
		if n := len(r.onDisk().Assignments); n != 110 {
			t.Errorf("%d on disk", n)
		}
	})
}

func TestNothingSlowStandsInTheWayOfAnADD(t *testing.T) {
	for _, kind := range []string{reconcile.KindCloud, reconcile.KindHost} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, pool.Settings{WarmIP: 3}, func(t *testing.T, r *rig) {
				r.ready()
				r.set(kind, 40*time.Second, nil)
				r.mustAssign(1) // starts a call, or a pass over the kernel
				r.host.notify()
				pass(time.Second)
				start := time.Now()
				r.mustAssign(2)
				if took := time.Since(start); took > 0 {
					t.Errorf("the ADD took %s", took)
				}
				status, err := r.loop.Status(t.Context())
				if err != nil || !slices.Contains(status.Busy, kind) {
					t.Errorf("busy with %v, %v: the test shows nothing", status.Busy, err)
				}
			})
		})
	}
}

func TestEmptyPoolIsWaitedFor(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 1}, func(t *testing.T, r *rig) {
		r.ready()
		for i := range 49 { // the primary ENI
			r.mustAssign(i)
		}
		start := time.Now()
		lease := r.mustAssign(100)
		if lease.ENI.Device != 1 {
			t.Errorf("on device %d, want the second ENI", lease.ENI.Device)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s: link and attachment take 2 s", took)
		}
	})
}

func TestADDsAreServedInTheirOrder(t *testing.T) {
	inBubble(t, pool.Settings{MinimumIP: 1, Cooldown: time.Second}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(0)
		var order []int
		var all sync.WaitGroup
		for i := 1; i <= 3; i++ {
			pass(time.Millisecond)
			all.Go(func() {
				if _, err := r.assign(i, 30*time.Second); err != nil {
					t.Error(err)
				}
				order = append(order, i)
				pass(time.Second)
				_ = r.loop.Abort(t.Context(), sandboxKey(i))
			})
		}
		pass(time.Millisecond)
		_ = r.loop.Abort(t.Context(), sandboxKey(0))
		all.Wait()
		if !slices.Equal(order, []int{1, 2, 3}) {
			t.Errorf("order %v", order)
		}
	})
}

func TestADDThatGetsNothingSaysWhy(t *testing.T) {
	inBubble(t, pool.Settings{MinimumIP: 1}, func(t *testing.T, r *rig) {
		r.ready()
		r.mustAssign(0)
		start := time.Now()
		_, err := r.assign(1, 7*time.Second)
		var none *reconcile.NoAddressError
		if !errors.As(err, &none) || none.Waited != 7*time.Second || time.Since(start) != 7*time.Second ||
			!strings.Contains(none.Reason, "MINIMUM_IP_TARGET=1") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := r.loop.Assign(ctx, sandboxKey(2), podOf(2), ""); !errors.As(err, &none) || none.Waited != time.Minute {
			t.Errorf("with an hour's time: %v", err)
		}
		if status, _ := r.loop.Status(t.Context()); len(status.Waiting) != 0 {
			t.Errorf("still waiting: %v", status.Waiting)
		}
	})
}
