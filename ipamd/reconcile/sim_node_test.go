package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// node is a simulated node: the world, which outlives the daemon, and the daemon's present life.
type node struct {
	t        *testing.T
	seed     uint64
	settings pool.Settings
	kind     vpc.InstanceType

	cloud *simCloud
	host  *simHost
	api   *simAPI
	disk  *store.Memory
	saves time.Time // until then the disk is full

	mu     sync.Mutex
	log    []string
	counts map[string]int // effects by kind, over all lives
	taken  map[int64]bool // virtual nanoseconds that are spoken for
	faults []string

	life  *life
	lives int
	all   sync.WaitGroup // every goroutine of the simulation

	sandboxes []*sandbox
	released  map[netip.Addr]release
	thefts    map[netip.Addr]time.Time
	pods      int
	over      bool // a law was broken and the run is being wound up
}

// life is one run of the daemon.
type life struct {
	loop   *reconcile.Loop
	cancel context.CancelFunc
	ended  chan struct{}
}

// release is when an address was last given back, and whose it was.
type release struct {
	at  time.Time
	uid string
}

func (n *node) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, fmt.Sprintf("%12s ", time.Since(epoch()))+fmt.Sprintf(format, args...))
}

func (n *node) fault(format string, args ...any) {
	n.mu.Lock()
	first := len(n.faults) == 0
	n.mu.Unlock()
	if !first && n.over {
		return // the driver has stopped looking after things
	}
	n.note("FAULT "+format, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, fmt.Sprintf(format, args...))
}

// epoch is when every synctest bubble begins.
func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// pause lets an effect take its own time: drawn from the seed, the effect's name and its number, and ending at a nanosecond
// that nothing else ends at, so that one seed is one order of things.
func (n *node) pause(ctx context.Context, name string) error {
	n.mu.Lock()
	n.counts[name]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", n.seed, name, n.counts[name])
	x := h.Sum64()
	longest := map[string]int64{"cloud": 1_500_000_000, "host": 40_000_000, "save": 20_000_000, "annotate": 1000, "patch": 200_000_000, "patched": 50_000_000}[name]
	if longest == 0 {
		longest = 300_000_000
	}
	end := time.Since(epoch()).Nanoseconds() + 1 + int64(x%uint64(longest))
	for n.taken[end] {
		end++
	}
	n.taken[end] = true
	n.mu.Unlock()
	return wait(ctx, time.Duration(end)-time.Since(epoch()))
}

// seam gives every effect a time before and a time after. A crash in the first one undoes it; in the second one it has
// happened, and nobody was told.
func (n *node) seam(ctx context.Context, e reconcile.Effect, run func(context.Context) error) error {
	if err := n.pause(ctx, e.Kind); err != nil {
		return err
	}
	err := run(ctx)
	n.note("%s %s: %v", e.Kind, e.Name, err)
	if err := n.pause(ctx, e.Kind); err != nil {
		return err
	}
	return err
}

func (n *node) start() {
	n.lives++
	ctx, cancel := context.WithCancel(context.Background())
	annotator := newSimAnnotator(n.api)
	settings := n.settings
	settings.Seed = n.seed<<8 + uint64(n.lives)
	loop := reconcile.New(reconcile.Config{
		Settings: settings, Cloud: n.cloud, Host: n.host, Store: store.New(n.disk, "/run/state.json"), Annotator: annotator, Seam: n.seam,
	})
	annotator.answer = loop.Answered
	l := &life{loop: loop, cancel: cancel, ended: make(chan struct{})}
	n.life = l
	n.all.Go(func() { annotator.run(ctx, n.pause) })
	n.all.Go(func() {
		defer close(l.ended)
		if err := loop.Run(ctx); err != nil {
			n.fault("Run: %v", err)
		}
	})
}

func (n *node) crash() {
	n.life.cancel()
	<-n.life.ended
}

// sandbox is one pod sandbox, as the runtime and the plugin see it.
type sandbox struct {
	pod   pool.Pod
	key   pool.Key
	addr  netip.Addr
	using bool // from the address's assignment to the removal of its veth
	runs  bool // its ADD succeeded and its DEL has not begun
	taken bool // its address was taken away out of band
	dels  int  // DELs that began
	dead  bool // the machine was rebooted under it
}

func (n *node) newPod(name string) pool.Pod {
	n.pods++
	if name == "" {
		name = fmt.Sprintf("pod-%d", n.pods)
	}
	p := pool.Pod{Namespace: "default", Name: name, UID: fmt.Sprintf("uid-%d", n.pods)}
	n.api.create(p)
	return p
}

// add runs one ADD, as runtime, plugin and server do together.
func (n *node) add(p pool.Pod) *sandbox {
	n.mu.Lock()
	s := &sandbox{pod: p, key: pool.Key{Network: "aws-cni", Sandbox: fmt.Sprintf("s%d", len(n.sandboxes)+1), IfName: "eth0"}}
	n.sandboxes = append(n.sandboxes, s)
	n.mu.Unlock()
	n.all.Go(func() {
		_ = n.pause(context.Background(), "exec/"+s.key.Sandbox)
		if s.dead {
			return
		}
		loop := n.life.loop
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		lease, err := loop.Assign(ctx, s.key, p, "/run/netns/"+s.key.Sandbox)
		if err != nil {
			n.note("ADD %s %s: %v", s.key.Sandbox, p.UID, err)
			n.refused(err)
			return
		}
		n.granted(s, lease)
		_ = n.pause(context.Background(), "again/"+s.key.Sandbox)
		if again, err := loop.Assign(ctx, s.key, p, ""); err == nil && again.Assignment.Addr != s.addr {
			n.fault("ADD of %s again gave %s, not %s", s.key.Sandbox, again.Assignment.Addr, s.addr)
		}
		n.finish(ctx, loop, s)
	})
	return s
}

// finish is the rest of an ADD: kernel work, then done; the veth goes away again unless that was answered.
func (n *node) finish(ctx context.Context, loop *reconcile.Loop, s *sandbox) {
	_ = n.pause(context.Background(), "plugin/"+s.key.Sandbox)
	if s.dead {
		return
	}
	n.host.addRoute(s.addr, s.key.Sandbox)
	if n.hash("killed", s.key.Sandbox)%20 == 0 { // the plugin was killed: the connection closes, the veth stays a little
		n.note("plugin of %s killed", s.key.Sandbox)
		n.gone(s)
		_ = loop.Abort(ctx, s.key)
		return
	}
	if err := loop.Done(ctx, s.key); err != nil {
		n.note("done %s: %v", s.key.Sandbox, err)
		n.gone(s)
		_ = loop.Abort(ctx, s.key)
		return
	}
	n.note("runs %s %s %s", s.key.Sandbox, s.pod.UID, s.addr)
	s.runs = true
	n.api.started(s.pod, s.key.Sandbox, s.addr.String(), true)
}

func (n *node) hash(parts ...string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, n.seed, parts)
	return h.Sum64()
}

// refused checks that an ADD that failed says why.
func (n *node) refused(err error) {
	var none *reconcile.NoAddressError
	var save *reconcile.SaveError
	switch {
	case errors.As(err, &none):
		if len(none.Reason) < 20 {
			n.fault("ADD refused without a reason: %v", err)
		}
	case errors.As(err, &save), errors.Is(err, reconcile.ErrStopped):
	default:
		n.fault("ADD failed with %v", err)
	}
}

// granted checks the laws about an address that was just given out.
func (n *node) granted(s *sandbox, lease reconcile.Lease) {
	a := lease.Assignment
	n.note("ADD %s %s: %s on %s", s.key.Sandbox, s.pod.UID, a.Addr, a.ENI)
	n.mu.Lock()
	r := n.released[a.Addr]
	for _, other := range n.sandboxes {
		if other != s && other.using && other.addr == a.Addr {
			defer n.fault("%s given to %s while %s uses it", a.Addr, s.key.Sandbox, other.key.Sandbox)
		}
	}
	s.addr, s.using = a.Addr, true
	n.mu.Unlock()
	if !r.at.IsZero() && r.uid != s.pod.UID && a.Since.Before(r.at.Add(n.settings.Cooldown)) {
		n.fault("%s given to %s at %s, in cooldown since %s", a.Addr, s.pod.UID, a.Since.Sub(epoch()), r.at.Sub(epoch()))
	}
	if n.excused(a.Addr, a.Since) {
		s.taken = true
		return
	}
	if !n.host.confirmed(a.Addr, a.ENI) {
		n.fault("%s on %s given out before the kernel had it", a.Addr, a.ENI)
	}
	if problem := n.atEC2(a.Addr); problem != "" {
		n.fault("%s given out: %s", a.Addr, problem)
	}
}

// atEC2 tells what keeps an address from working; "" when it is a secondary address of an ENI of this instance.
func (n *node) atEC2(addr netip.Addr) string {
	for _, e := range n.cloud.own() {
		if e.Primary == addr {
			return "it is the primary address of " + e.ID
		}
		if e.Holds(addr) {
			if e.Attachment == nil || e.Attachment.Status == vpc.Detaching {
				return "its ENI " + e.ID + " is not attached"
			}
			return ""
		}
	}
	return "EC2 does not say that it is ours"
}

// gone removes a sandbox's kernel state: from here on nothing of it is left on the node.
func (n *node) gone(s *sandbox) {
	if !s.using {
		return
	}
	n.host.removeRoute(s.addr, s.key.Sandbox)
	n.api.started(s.pod, s.key.Sandbox, "", false)
	n.mu.Lock()
	if s.runs { // one whose ADD failed has never spoken to anybody
		n.released[s.addr] = release{time.Now(), s.pod.UID}
	}
	s.using, s.runs = false, false
	n.mu.Unlock()
}

// del runs one DEL; while the daemon is down it is kept and tried again.
func (n *node) del(s *sandbox) {
	n.gone(s)
	s.dels++
	name := fmt.Sprintf("del/%s/%d", s.key.Sandbox, s.dels)
	n.all.Go(func() {
		for try := range 100 {
			if try > 0 {
				pass(3 * time.Second)
			}
			_ = n.pause(context.Background(), name)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			_, found, err := n.life.loop.Release(ctx, s.key)
			cancel()
			if err == nil {
				n.note("DEL %s: known %v", s.key.Sandbox, found)
				return
			}
		}
		n.fault("DEL of %s never succeeded", s.key.Sandbox)
	})
}
