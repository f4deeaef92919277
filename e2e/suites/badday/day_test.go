package badday_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vpc-cni/vpc-cni/e2e/badday"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/e2e/suites/harness"
)

// day is one bad day. The suite's goroutine and those that it waits for are the only ones that change pods.
type day struct {
	*harness.Cluster
	seed   uint64
	size   int
	random *rand.Rand
	sets   [][]*member   // the StatefulSets
	done   []*corev1.Pod // of the last storm of Jobs: finished, and still there
	next   int           // number of the next Job
	keys   []string      // present setting; none: the knob is off
	roles  *refuser

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something was heard
	ledger  policygate.Ledger
	starts  map[string]int // how often a pod's container was started, by UID
	stopped map[string]bool
	boxes   map[string]*badday.Sandbox
	history badday.History
	made    int
}

// member is one pod of a StatefulSet, by its name; the pod behind it changes.
type member struct {
	node int
	name string
	pod  *corev1.Pod
}

func newDay(c *harness.Cluster, seed uint64, pods int) *day {
	d := &day{
		Cluster: c, seed: seed, size: pods, random: rand.New(rand.NewPCG(seed, 0)), keys: []string{awsKey},
		changed: make(chan struct{}), starts: map[string]int{}, stopped: map[string]bool{}, boxes: map[string]*badday.Sandbox{},
	}
	d.history = badday.History{
		Starts: len(c.Info().Nodes), Gone: map[string]time.Time{}, Settings: map[string][]badday.Setting{}, Away: map[string][]badday.Span{},
	}
	d.noteSetting()
	return d
}

func (d *day) replay() string {
	return fmt.Sprintf("replay this day: make e2e CLUSTER=netns LABELS=badday SEED=%d PODS=%d (logs: %s)", d.seed, d.size, d.Info().Logs)
}

func (d *day) say(format string, args ...any) {
	_, _ = fmt.Fprintf(GinkgoWriter, "  "+format+"\n", args...) // the report must not fail for its paper
}

// live is the whole day.
func (d *day) live(ctx context.Context) error {
	ctx, cancel := d.Guard(ctx)
	defer cancel()
	defer d.Follow(d.take)()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- d.API.Watch(watching, "", (*watcher)(d), nil) }()
	err := d.all(ctx)
	stop()
	return errors.Join(err, <-watched)
}

func (d *day) all(ctx context.Context) error {
	began := time.Now()
	var err error
	if d.roles, err = newRefuser(d.Config(), d.Info()); err != nil {
		return err
	}
	if err := d.populate(ctx); err != nil {
		return err
	}
	for _, s := range d.script() {
		if err := d.step(ctx, s); err != nil {
			return err
		}
	}
	if err := d.step(ctx, step{"the knob is turned off for good", d.turnOff}); err != nil {
		return err
	}
	d.say("%-44s %6.1f s", "the day", time.Since(began).Seconds())
	return d.judge()
}

// step does one thing and then waits for quiet.
func (d *day) step(ctx context.Context, s step) error {
	began := time.Now()
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	acted := time.Now()
	if err := d.quiet(ctx); err != nil {
		return fmt.Errorf("after %q: %w", s.name, err)
	}
	d.say("%-44s %6.1f s, quiet after %4.1f s more", s.name, acted.Sub(began).Seconds(), time.Since(acted).Seconds())
	return nil
}

// setSize is how many pods a StatefulSet has.
func (d *day) setSize() int { return max(3, d.size/20) }

// populate starts seven tenths of the pods; the others are Jobs that come and go.
func (d *day) populate(ctx context.Context) error {
	return d.step(ctx, step{"StatefulSets start", func(ctx context.Context) error {
		var all []*member
		for len(all) < d.size*7/10 {
			var set []*member
			for i := range d.setSize() {
				set = append(set, &member{node: (len(d.sets) + i) % len(d.Info().Nodes), name: fmt.Sprintf("set%d-%d", len(d.sets), i)})
			}
			d.sets = append(d.sets, set)
			all = append(all, set...)
		}
		return each(ctx, all, d.begin)
	}})
}

// together is how many pods are acted on at once: as a kubelet's and a controller's own workers, more or less.
const together = 30

func each[T any](ctx context.Context, list []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for _, one := range list {
		group.Go(func() error { return do(ctx, one) })
	}
	return group.Wait()
}

// begin creates a member's pod, and waits until it runs. An earlier pod of the name may be on its way out.
func (d *day) begin(ctx context.Context, m *member) error {
	for {
		pod, err := d.Create(ctx, m.node, m.name)
		if err == nil {
			m.pod = pod
			d.count()
			return d.await(ctx, "start of pod "+m.name, func() bool { return d.starts[string(pod.UID)] > 0 })
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *day) count() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
}

// replace does what a StatefulSet's controller does after a deletion, which is done here too.
func (d *day) replace(ctx context.Context, m *member, force bool) error {
	old := string(m.pod.UID)
	if err := d.Delete(ctx, m.pod, force); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err := d.await(ctx, "end of pod "+m.name, func() bool { return !d.history.Gone[old].IsZero() })
	if err != nil {
		return err
	}
	return d.begin(ctx, m)
}

// eventually is how long anything may take: the machine may be busy with something else.
const eventually = 3 * time.Minute

// await waits until something is so of what was heard; ok is called with mu held.
func (d *day) await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	for {
		d.mu.Lock()
		changed, is := d.changed, ok()
		d.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// take hears an event.
func (d *day) take(e event.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.Take(e)
	switch e.Kind {
	case event.AddDone:
		d.boxes[e.Sandbox] = &badday.Sandbox{UID: e.UID, Node: e.Node, From: e.At}
	case event.ContainerStarted:
		d.starts[e.UID]++
	case event.ContainerStopped:
		d.stopped[e.UID] = true
	case event.DelExec:
		if box := d.boxes[e.Sandbox]; box != nil && box.To.IsZero() {
			box.To = e.At
		}
	default:
	}
	d.change()
}

func (d *day) change() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// watcher is the day as a handler of pods.
type watcher day

func (*watcher) Present(*corev1.Pod, time.Time) {}

func (w *watcher) Absent(pod *corev1.Pod, at time.Time) {
	d := (*day)(w)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.history.Gone[string(pod.UID)] = at
	d.change()
}
