package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// API is what the agent needs of Kubernetes.
type API interface {
	Watch(ctx context.Context, node string, handler podapi.Handler, synced func()) error
	Patch(ctx context.Context, pod types.NamespacedName, subresource string, patch podapi.Patch) (*corev1.Pod, error)
	Delete(ctx context.Context, pod types.NamespacedName, uid types.UID, grace *int64) error
	Registry
}

// Options say whose kubelet this is, where its files are, and how late it is.
type Options struct {
	Node   string
	NodeIP netip.Addr // reported for the node and its hostNetwork pods
	// Dir is shared by the agents of all nodes. Below it, netns/ has the pods' network namespaces, pods/<node>/ a link to
	// each one by the pod's name, and cni/<node>/ libcni's cache.
	Dir     string
	ConfDir string // where the network configuration appears
	BinDir  string // where its plugins are

	StatusDelay Delay         // from container start to status.podIP being sent
	Seed        uint64        // of StatusDelay
	Backoff     time.Duration // before a second ADD; doubled up to maxBackoff; 0: defaultBackoff
	Events      *event.Log
}

// Delay is a uniform range.
type Delay struct {
	Min, Max time.Duration
}

// KubeletDelay is how late a real kubelet was with thirty pods at once: status.podIP seen by a watcher, after the
// container's start (Kubernetes 1.34, containerd, two cores).
func KubeletDelay() Delay {
	return Delay{Min: 100 * time.Millisecond, Max: 1400 * time.Millisecond}
}

// Kubelet retries a failed sandbox after about ten seconds. Starting lower keeps a run short and changes nothing for a
// plugin that never fails.
const (
	defaultBackoff = time.Second
	maxBackoff     = 10 * time.Second
)

// Agent is a node's kubelet.
type Agent struct {
	options Options
	api     API
	plugin  *plugin
	ready   chan struct{} // closed when there is a network configuration

	mu    sync.Mutex
	lives map[types.UID]*life
	ended sync.WaitGroup // of lives
}

// New makes an agent that is not running yet.
func New(options Options, api API) *Agent {
	if options.Backoff == 0 {
		options.Backoff = defaultBackoff
	}
	return &Agent{
		options: options, api: api,
		plugin: newPlugin(options),
		ready:  make(chan struct{}),
		lives:  map[types.UID]*life{},
	}
}

// Run registers the node and runs its pods until ctx ends. Pods' namespaces outlive it, as they outlive a kubelet.
func (a *Agent) Run(ctx context.Context) error {
	for _, dir := range []string{a.options.netnsDir(), a.options.podsDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder of pods: %w", err)
		}
	}
	if err := register(ctx, a.api, a.options.Node, a.options.NodeIP); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.ended.Go(func() {
		if err := a.awaitNetwork(ctx); err != nil && ctx.Err() == nil {
			cancel(err)
		}
	})
	err := a.api.Watch(ctx, a.options.Node, watcher{ctx, a}, func() { a.emit(event.Event{Kind: event.Ready}) })
	cancel(nil)
	a.ended.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// awaitNetwork waits for a network configuration, as a container runtime does, and then reports the node Ready.
func (a *Agent) awaitNetwork(ctx context.Context) error {
	ticker := time.NewTicker(networkPoll)
	defer ticker.Stop()
	for {
		if _, err := a.plugin.network(); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	if err := markReady(ctx, a.api, a.options.Node); err != nil {
		return err
	}
	close(a.ready)
	a.emit(event.Event{Kind: event.NetworkReady})
	return nil
}

// networkPoll is how often the folder of network configurations is looked at until there is one.
const networkPoll = 50 * time.Millisecond

func (a *Agent) emit(e event.Event) {
	e.Node = a.options.Node
	a.options.Events.Emit(e)
}

func (o Options) netnsDir() string { return filepath.Join(o.Dir, "netns") }
func (o Options) podsDir() string  { return filepath.Join(o.Dir, "pods", o.Node) }

// PodPath is where the network namespace of a pod can be opened, while it has one.
func PodPath(dir, node string, pod types.NamespacedName) string {
	return filepath.Join(dir, "pods", node, pod.Namespace+"_"+pod.Name)
}

// watcher starts and ends lives.
type watcher struct {
	ctx   context.Context //nolint:containedctx // lives exactly as long as the watch that calls it
	agent *Agent
}

func (w watcher) Present(pod *corev1.Pod, _ time.Time) {
	a := w.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	l, known := a.lives[pod.UID]
	if !known {
		l = newLife(pod)
		a.lives[pod.UID] = l
		a.ended.Go(func() { a.live(w.ctx, l) })
	}
	if pod.DeletionTimestamp != nil {
		l.end(pod.DeletionGracePeriodSeconds)
	}
}

func (w watcher) Absent(pod *corev1.Pod, _ time.Time) {
	a := w.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if l, known := a.lives[pod.UID]; known {
		l.end(new(int64))
	}
}
