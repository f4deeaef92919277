package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// node is a simulated node: the world, which outlives the daemon, and the daemon's present life.
type node struct {
	seed     uint64
	settings pool.Settings
	kind     vpc.InstanceType

	cloud *simCloud
	host  *simHost
	api   *simAPI
	disk  *store.Memory
	full  string    // step of a save that the disk refuses
	saves time.Time // until then
	slows time.Time // until then a save takes very long

	agenda *agenda

	mu     sync.Mutex
	log    []line
	counts map[string]int // effects by kind and period
	faults []breach
	cover  map[string]int // what came to pass, for TestSimulationCovers

	life      *life
	lives     int
	atStart   []func() // what changes before the next start
	armed     []*trap
	all       sync.WaitGroup // every goroutine of the simulation
	over      bool           // the run is being wound up
	trouble   time.Time      // faults may show until then
	sandboxes []*sandbox
	pods      []*simPod
	released  map[netip.Addr]release
	rested    map[netip.Addr]time.Time // when an address was last let go, also by those that never ran
	thefts    map[netip.Addr]time.Time
	used      []usage // of addresses over time
	limits    bool    // EC2 has spoken of a limit that is none
}

// line is one line of a trace.
type line struct {
	at   time.Duration
	text string
}

// breach is a law that was broken.
type breach struct {
	at        time.Duration
	law, text string
}

// release is when an address was last given back, and whose it was.
type release struct {
	at  time.Time
	uid string
}

type usage struct {
	at   time.Time
	used int
}

// trap crashes the daemon at an effect.
type trap struct {
	effect string
	after  bool
}

func (n *node) note(format string, args ...any) {
	at := now()
	n.agenda.shake()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, line{at, fmt.Sprintf(format, args...)})
}

// fault notes that a law is broken. Only the first moment counts: what follows may be a consequence.
func (n *node) fault(law, format string, args ...any) {
	n.note("BROKEN "+law+": "+format, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.faults) < 20 && !n.over {
		n.faults = append(n.faults, breach{time.Since(epoch()), law, fmt.Sprintf(format, args...)})
	}
}

func (n *node) covered(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cover[what]++
}

// epoch is when every synctest bubble begins.
func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func (n *node) hash(parts ...string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, n.seed, parts)
	return h.Sum64()
}

// effect gives an effect a time before and a time after. A crash in the first one undoes it; in the second one it has
// happened, and nobody was told. A trap crashes the daemon at either.
func (n *node) effect(ctx context.Context, kind, name string, run func(context.Context) error) error {
	if err := n.pause(ctx, kind); err != nil {
		return err
	}
	if kind == reconcile.KindSave && time.Now().Before(n.slows) {
		if err := n.pauseUpTo(ctx, "slow disk", int64(40*time.Second)); err != nil {
			return err
		}
	}
	if n.sprung(kind+" "+name, false) {
		return context.Canceled
	}
	err := run(ctx)
	if n.sprung(kind+" "+name, true) {
		return context.Canceled
	}
	if err := n.pause(ctx, kind); err != nil {
		return err
	}
	return err
}

// sprung crashes the daemon where a trap is set for the effect.
func (n *node) sprung(effect string, after bool) bool {
	n.mu.Lock()
	at := slices.IndexFunc(n.armed, func(t *trap) bool { return t.effect == effect && t.after == after })
	if at >= 0 {
		n.armed = slices.Delete(n.armed, at, at+1)
	}
	n.mu.Unlock()
	if at < 0 {
		return false
	}
	when := "before"
	if after {
		when = "after"
	}
	n.note("crash %s %s", when, effect)
	n.covered("crash " + when + " " + effect)
	n.life.cancel()
	return true
}

func (n *node) seam(ctx context.Context, e reconcile.Effect, run func(context.Context) error) error {
	return n.effect(ctx, e.Kind, e.Name, func(ctx context.Context) error {
		err := run(ctx)
		n.note("%s %s: %v", e.Kind, e.Name, err)
		return err
	})
}

// troubled tells that a fault may show until d from now.
func (n *node) troubled(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if until := time.Now().Add(d); until.After(n.trouble) {
		n.trouble = until
	}
}

func newNode(seed uint64) *node {
	rng := rand.New(rand.NewPCG(seed, 1))
	types := []vpc.InstanceType{{Name: "sim.small", ENIs: 3, IPv4: 4}, {Name: "sim.medium", ENIs: 3, IPv4: 6}, {Name: "sim.large", ENIs: 4, IPv4: 10}}
	targets := []pool.Settings{{WarmENI: 1}, {WarmENI: 0}, {WarmIP: 2}, {WarmIP: 3, MinimumIP: 8}, {MinimumIP: 6}, {WarmENI: 1, MaxENI: 2}, {WarmIP: 1, MaxENI: 2}}
	cooldowns := []time.Duration{0, 5 * time.Second, 30 * time.Second, 30 * time.Second}
	cidrs := []string{"10.0.1.0/24", "10.0.1.0/24", "10.0.1.0/27", "10.0.1.0/28"}
	n := &node{
		seed: seed, kind: types[rng.IntN(len(types))], settings: targets[rng.IntN(len(targets))], disk: store.NewMemory(),
		agenda: newAgenda(), counts: map[string]int{}, cover: map[string]int{},
		released: map[netip.Addr]release{}, rested: map[netip.Addr]time.Time{}, thefts: map[netip.Addr]time.Time{},
	}
	cloud, err := newSimCloud(seed, n.kind, cidrs[rng.IntN(len(cidrs))])
	if err != nil {
		panic(err) // the world of the test itself
	}
	n.settings.Cooldown = cooldowns[rng.IntN(len(cooldowns))]
	n.settings.BootID = "boot-1"
	n.settings.Annotate, n.settings.Keys = rng.IntN(3) > 0, []string{"a/ip"}
	if rng.IntN(8) == 0 {
		cloud.lies = 1
	}
	cloud.v.SetDelays(vpc.Delays{Attach: 2 * time.Second, Link: 2 * time.Second, Detach: 3 * time.Second})
	n.cloud, n.host, n.api = cloud, newSimHost(cloud), newSimAPI()
	n.cloud.n, n.host.n = n, n
	n.note("seed %d type %s lies %d settings %+v", seed, n.kind.Name, cloud.lies, n.settings)
	return n
}

// runs gives the sandboxes that run, and pass a test.
func (n *node) runs(test func(*sandbox) bool) []*sandbox {
	var list []*sandbox
	for _, s := range n.sandboxes {
		if s.runs && (test == nil || test(s)) {
			list = append(list, s)
		}
	}
	return list
}

// pick chooses one of a list by a number in such a way that the choice stays the same while others come and go.
func pick[T fmt.Stringer](list []T, number uint64) (T, bool) {
	var best T
	var most uint64
	for _, x := range list {
		h := fnv.New64a()
		fmt.Fprint(h, number, x.String())
		if sum := h.Sum64() | 1; sum > most {
			best, most = x, sum
		}
	}
	return best, most > 0
}

// refused checks that an ADD that failed says why.
func (n *node) refused(err error) {
	var none *reconcile.NoAddressError
	var save *reconcile.SaveError
	switch {
	case errors.As(err, &none):
		if len(none.Reason) < 20 {
			n.fault("reason", "ADD refused without a reason: %v", err)
		}
	case errors.As(err, &save), errors.Is(err, reconcile.ErrStopped), errors.Is(err, reconcile.ErrSuperseded):
	default:
		n.fault("reason", "ADD failed with %v", err)
	}
}

// pass lets virtual time pass: every caller is in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
