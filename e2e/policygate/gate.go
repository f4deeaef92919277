package policygate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// Pods is where the agent learns of pods.
type Pods interface {
	Watch(ctx context.Context, node string, handler podapi.Handler, synced func()) error
}

// Options say whose agent this is and how it behaves.
type Options struct {
	Node        string
	Reader      Reader
	DefaultDeny bool
	All         Reader // what views are made with
	Views       bool   // tell what each kind of reader makes of every pod
	Events      *event.Log
}

// Gate keeps the firewall at what the API says of one node's pods.
type Gate struct {
	options Options
	pods    Pods
	known   map[podKey]workload
	changes []change // not yet in the kernel
	listed  bool     // the first list is complete
	kernel  map[Workload]bool
	wall    *Firewall                     // nil until the first list is complete
	views   map[types.UID]map[string]view // by reader
}

type podKey struct {
	namespace, name string
}

// workload is what should pass for a pod.
type workload struct {
	uid    types.UID
	passes []Workload
}

// change is one step of a workload on its way to the kernel.
type change struct {
	kind event.Kind
	pod  podKey
	uid  types.UID
	pass Workload
}

// sighting is one message of the watch; a nil pod means that the first list is complete.
type sighting struct {
	pod  *corev1.Pod
	gone bool
}

// sightingQueue is how many sightings may wait for one transaction to end: a full node's pods at once.
const sightingQueue = 256

// New makes an agent that is not running yet. Its firewall will be in the network namespace of the program.
func New(options Options, pods Pods) *Gate {
	return &Gate{options: options, pods: pods, known: map[podKey]workload{}, kernel: map[Workload]bool{}, views: map[types.UID]map[string]view{}}
}

// Run watches and programs until ctx ends. It stops at the first failure of the kernel: a gate that does not hold what it
// says must not go on saying it.
func (g *Gate) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan sighting, sightingQueue)
	watched := make(chan error, 1)
	go func() {
		handler := watcher{ctx, seen}
		watched <- g.pods.Watch(ctx, g.options.Node, handler, func() { handler.send(sighting{}) })
	}()
	err := g.program(ctx, seen)
	cancel()
	err = errors.Join(err, <-watched)
	if g.wall != nil {
		err = errors.Join(err, g.wall.Close())
	}
	return err
}

// program is the one owner of the gate's state. Sightings that queued during a transaction go into the next one together.
func (g *Gate) program(ctx context.Context, seen <-chan sighting) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-seen:
			g.take(s)
		}
		for len(seen) > 0 {
			g.take(<-seen)
		}
		if err := g.flush(); err != nil {
			return err
		}
	}
}

func (g *Gate) take(s sighting) {
	if s.pod == nil {
		g.listed = true
		return
	}
	g.look(s)
	pod, key := s.pod, podKey{s.pod.Namespace, s.pod.Name}
	was := g.known[key]
	if s.gone {
		if was.uid == pod.UID {
			g.note(key, was, workload{uid: pod.UID})
			delete(g.known, key)
		}
		return // otherwise a later pod of that name is known already
	}
	want, err := g.read(pod)
	if err != nil {
		// The whole conversion fails, and with it the update: what was known of the pod stays.
		g.emit(event.Event{Kind: event.Unreadable, Detail: err.Error()}, key, pod.UID)
		return
	}
	g.note(key, was, want)
	g.known[key] = want
}

// read turns a pod into what the kernel should let pass for it.
func (g *Gate) read(pod *corev1.Pod) (workload, error) {
	want := workload{uid: pod.UID}
	if pod.Spec.HostNetwork || g.options.Reader.Finished(pod) {
		return want, nil
	}
	addresses, err := g.options.Reader.Addresses(pod)
	if err != nil {
		return workload{}, err
	}
	for _, address := range addresses {
		if !address.IsSingleIP() {
			return workload{}, fmt.Errorf("program pod %s/%s: %s is more than one address", pod.Namespace, pod.Name, address)
		}
		want.passes = append(want.passes, Workload{Link: VethName(pod.Namespace, pod.Name), Address: address.Addr()})
	}
	return want, nil
}

// note queues what leads from one state of a pod to the next.
func (g *Gate) note(key podKey, was, want workload) {
	for _, w := range was.passes {
		if !slices.Contains(want.passes, w) {
			g.changes = append(g.changes, change{event.Removed, key, was.uid, w})
		}
	}
	for _, w := range want.passes {
		// The same address under another UID is another pod's: it is programmed for that pod from now on.
		if !slices.Contains(was.passes, w) || was.uid != want.uid {
			g.changes = append(g.changes, change{event.Programmed, key, want.uid, w})
		}
	}
}

// flush brings the queued changes into the kernel in one transaction, and then tells of them. Before the first list is
// complete nothing is touched: what an earlier run left holds until then.
func (g *Gate) flush() error {
	if !g.listed {
		return nil
	}
	wanted := map[Workload]bool{}
	for _, c := range g.changes {
		wanted[c.pass] = c.kind == event.Programmed
	}
	var add, remove []Workload
	for w, pass := range wanted {
		switch {
		case pass && !g.kernel[w]:
			add = append(add, w)
		case !pass && g.kernel[w]:
			remove = append(remove, w)
		}
	}
	if err := g.apply(add, remove); err != nil {
		return err
	}
	for w, pass := range wanted {
		g.kernel[w] = pass
		if !pass {
			delete(g.kernel, w)
		}
	}
	for _, c := range g.changes {
		g.emit(event.Event{Kind: c.kind, Address: c.pass.Address.String()}, c.pod, c.uid)
	}
	g.changes = nil
	return nil
}

func (g *Gate) apply(add, remove []Workload) error {
	if g.wall != nil {
		if len(add)+len(remove) == 0 {
			return nil
		}
		return g.wall.Apply(add, remove)
	}
	wall, err := OpenFirewall(0, g.options.DefaultDeny, add)
	if err != nil {
		return err
	}
	g.wall = wall
	g.options.Events.Emit(event.Event{Kind: event.Ready, Node: g.options.Node})
	return nil
}

func (g *Gate) emit(e event.Event, pod podKey, uid types.UID) {
	e.Node, e.Namespace, e.Pod, e.UID = g.options.Node, pod.namespace, pod.name, string(uid)
	g.options.Events.Emit(e)
}

// watcher brings what the watch saw to the owner of the state.
type watcher struct {
	ctx  context.Context //nolint:containedctx // lives exactly as long as the watch that calls it
	seen chan<- sighting
}

func (w watcher) Present(pod *corev1.Pod, _ time.Time) { w.send(sighting{pod: pod}) }
func (w watcher) Absent(pod *corev1.Pod, _ time.Time)  { w.send(sighting{pod: pod, gone: true}) }

func (w watcher) send(s sighting) {
	select {
	case w.seen <- s:
	case <-w.ctx.Done():
	}
}
