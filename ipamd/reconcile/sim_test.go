package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

const simSeeds = 100

// TestSimulation runs the loop and the pool against the VPC model under virtual time, with everything that goes wrong on a
// node drawn from the seed. SIM_SEED=n runs one seed and prints its operations, SIM_SEEDS=n the first n.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(simSeeds)
	if many, err := strconv.ParseUint(os.Getenv("SIM_SEEDS"), 10, 64); err == nil {
		last = many
	}
	if one, err := strconv.ParseUint(os.Getenv("SIM_SEED"), 10, 64); err == nil {
		first, last = one, one
	}
	for seed := first; seed <= last; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			log := simulate(t, seed)
			if os.Getenv("SIM_SEED") != "" {
				t.Log("\n" + strings.Join(log, "\n"))
			}
		})
	}
}

// TestSimulationRepeats shows that a seed is one run: what fails once fails again.
func TestSimulationRepeats(t *testing.T) {
	for _, seed := range []uint64{3, 7, 21, 34, 55} {
		first, second := simulate(t, seed), simulate(t, seed)
		slices.Sort(first) // lines of one instant come in any order
		slices.Sort(second)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("seed %d ran differently the second time:\n%s", seed, diff)
		}
	}
}

func simulate(t *testing.T, seed uint64) (log []string) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, seed)
		ctx, cancel := context.WithCancel(context.Background())
		n.all.Go(func() { n.cloud.drive(ctx, n.host) })
		n.start()
		rng := rand.New(rand.NewPCG(seed, 99))
		for range 80 + rng.IntN(120) {
			n.step(rng)
			if n.check() {
				break
			}
		}
		if len(n.faults) == 0 {
			n.quiet()
		}
		n.over = true
		n.crash()
		cancel()
		n.all.Wait()
		log = n.log
		n.report()
	})
	return log
}

func newNode(t *testing.T, seed uint64) *node {
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := []vpc.InstanceType{{Name: "sim.small", ENIs: 3, IPv4: 4}, {Name: "sim.medium", ENIs: 3, IPv4: 6}, {Name: "sim.large", ENIs: 4, IPv4: 10}}
	targets := []pool.Settings{{WarmENI: 1}, {WarmENI: 0}, {WarmIP: 2}, {WarmIP: 3, MinimumIP: 8}, {MinimumIP: 6}, {WarmENI: 1, MaxENI: 2}, {WarmIP: 1, MaxENI: 2}}
	cooldowns := []time.Duration{0, 5 * time.Second, 30 * time.Second, 30 * time.Second}
	cidrs := []string{"10.0.1.0/24", "10.0.1.0/24", "10.0.1.0/27", "10.0.1.0/28"}
	kind := kinds[rng.IntN(len(kinds))]
	cloud, err := newSimCloud(seed, kind, cidrs[rng.IntN(len(cidrs))])
	if err != nil {
		t.Fatal(err)
	}
	settings := targets[rng.IntN(len(targets))]
	settings.Cooldown = cooldowns[rng.IntN(len(cooldowns))]
	settings.BootID = "boot-1"
	settings.Annotate, settings.Keys = rng.IntN(3) > 0, []string{"a/ip"}
	n := &node{
		t: t, seed: seed, settings: settings, kind: kind, cloud: cloud, host: newSimHost(cloud), api: newSimAPI(), disk: store.NewMemory(),
		counts: map[string]int{}, taken: map[int64]bool{}, released: map[netip.Addr]release{}, thefts: map[netip.Addr]time.Time{},
	}
	n.disk.Fail = func(op, _ string) error {
		if op != "read" && time.Now().Before(n.saves) {
			return fmt.Errorf("no space left on device")
		}
		return nil
	}
	n.note("seed %d type %s settings %+v", seed, kind.Name, settings)
	return n
}

// step lets some time pass and then draws an operation.
func (n *node) step(rng *rand.Rand) {
	_ = n.pause(context.Background(), "driver")
	if rng.IntN(3) == 0 {
		pass(time.Duration(rng.Int64N(int64(12 * time.Second))))
	}
	synctest.Wait()
	switch k := rng.IntN(100); {
	case k < 40:
		n.add(n.newPod(""))
	case k < 60:
		n.delete(rng)
	case k < 66:
		n.replace(rng)
	case k < 72:
		n.again(rng)
	case k < 76:
		n.vanish(rng)
	case k < 82:
		n.restart(rng)
	case k < 85:
		n.cloud.throttled = time.Now().Add(time.Duration(rng.IntN(20)) * time.Second)
		n.note("throttled for %s", time.Until(n.cloud.throttled))
	case k < 88:
		n.cloud.lost += 1 + rng.IntN(2)
		n.note("%d answers will be lost", n.cloud.lost)
	case k < 91:
		n.slow(rng)
	case k < 93:
		n.api.down = time.Now().Add(time.Duration(rng.IntN(60)) * time.Second)
		n.note("API down for %s", time.Until(n.api.down))
	case k < 95:
		n.saves = time.Now().Add(time.Duration(rng.IntN(5000)) * time.Millisecond)
		n.note("disk full for %s", time.Until(n.saves))
	case k < 97:
		n.steal(rng)
	case k < 98:
		n.lag(rng)
	default:
		for range 3 + rng.IntN(5) {
			n.add(n.newPod(""))
		}
	}
	synctest.Wait()
}

// running gives a sandbox that runs, or nil.
func (n *node) running(rng *rand.Rand) *sandbox {
	var list []*sandbox
	for _, s := range n.sandboxes {
		if s.runs {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[rng.IntN(len(list))]
}

func (n *node) delete(rng *rand.Rand) {
	if s := n.running(rng); s != nil {
		n.note("delete %s", s.key.Sandbox)
		n.del(s)
	}
}

// replace is a StatefulSet's rolling update: a pod of the same name and another UID, the old sandbox's DEL late or twice.
func (n *node) replace(rng *rand.Rand) {
	s := n.running(rng)
	if s == nil {
		return
	}
	n.note("replace %s", s.key.Sandbox)
	n.gone(s)
	n.add(n.newPod(s.pod.Name))
	late := time.Duration(rng.Int64N(int64(50 * time.Second)))
	n.all.Go(func() {
		pass(late)
		n.del(s)
		n.del(s)
	})
}

// again is a new sandbox of the same pod; the old one's DEL comes before or after.
func (n *node) again(rng *rand.Rand) {
	s := n.running(rng)
	if s == nil {
		return
	}
	n.note("again %s", s.key.Sandbox)
	if rng.IntN(2) == 0 {
		n.del(s)
		pass(time.Duration(rng.Int64N(int64(2 * time.Second))))
		n.add(s.pod)
		return
	}
	n.gone(s)
	n.add(s.pod)
	late := time.Duration(rng.Int64N(int64(20 * time.Second)))
	n.all.Go(func() {
		pass(late)
		n.del(s)
	})
}

// vanish ends a sandbox of which no DEL will ever tell.
func (n *node) vanish(rng *rand.Rand) {
	if s := n.running(rng); s != nil {
		n.note("vanish %s", s.key.Sandbox)
		n.gone(s)
	}
}

func (n *node) restart(rng *rand.Rand) {
	n.note("crash")
	n.crash()
	if rng.IntN(2) == 0 {
		pass(time.Duration(rng.Int64N(int64(20 * time.Second))))
	}
	switch rng.IntN(8) {
	case 0:
		n.settings.Annotate = !n.settings.Annotate
	case 1:
		n.settings.Keys = [][]string{{"a/ip"}, {"b/ip"}, {"a/ip", "b/ip"}}[rng.IntN(3)]
	case 2:
		n.reboot()
	}
	n.note("start, annotate %v %v", n.settings.Annotate, n.settings.Keys)
	n.start()
}

// reboot ends every sandbox and all that the kernel held.
func (n *node) reboot() {
	n.settings.BootID += "+"
	for _, s := range n.sandboxes {
		n.gone(s)
		s.dead = true
	}
	n.mu.Lock()
	clear(n.released) // nobody is left to confuse: addresses of before the reboot do not cool down
	n.mu.Unlock()
	n.note("reboot")
}

func (n *node) slow(rng *rand.Rand) {
	d := n.cloud.v.Delays()
	d.Link = time.Duration(rng.Int64N(int64(30 * time.Second)))
	d.Detach = time.Duration(rng.Int64N(int64(40 * time.Second)))
	n.cloud.v.SetDelays(d)
	n.note("links take %s, detaching %s", d.Link, d.Detach)
}

// steal unassigns a free address behind the daemon's back.
func (n *node) steal(rng *rand.Rand) {
	var list []netip.Addr
	for _, e := range n.cloud.own() {
		for _, addr := range e.Secondary {
			if !slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.using && s.addr == addr }) && len(list) < 50 {
				list = append(list, addr)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	addr := list[rng.IntN(len(list))]
	for _, e := range n.cloud.own() {
		if e.Holds(addr) {
			n.cloud.remember()
			if err := n.cloud.v.UnassignPrivateIpAddresses(time.Now(), vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: []netip.Addr{addr}}); err != nil {
				n.fault("steal: %v", err)
			}
		}
	}
	n.note("stolen %s", addr)
	n.released[addr] = release{}
	n.stolen(addr)
}

// lag makes readings of EC2 stale for a while.
func (n *node) lag(rng *rand.Rand) {
	n.cloud.lag = time.Duration(rng.Int64N(int64(9 * time.Second)))
	n.note("readings lag by up to %s", n.cloud.lag)
}
