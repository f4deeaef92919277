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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// life is one pod on this node, from its first sighting until the last trace of it is gone.
type life struct {
	pod    *corev1.Pod
	ending chan struct{} // closed when the pod must end
	once   sync.Once
	grace  time.Duration // set before ending is closed

	mu    sync.Mutex
	hold  chan struct{} // not nil: DEL waits until it is closed
	skip  bool          // DEL is never sent
	again chan Order    // RestartBox or OverlapBox, while the pod runs
	boxes []box         // every sandbox that the pod has had; the last one is the present one
}

// box is one sandbox: what containerd calls a pod sandbox, here a network namespace with an id.
type box struct {
	id   string
	path string
	ns   *netlab.Namespace
}

func newLife(pod *corev1.Pod) *life {
	return &life{pod: pod, ending: make(chan struct{}), again: make(chan Order, 1)}
}

func (l *life) end(grace *int64) {
	l.once.Do(func() {
		if grace != nil {
			l.grace = time.Duration(*grace) * time.Second
		}
		close(l.ending)
	})
}

func (l *life) name() types.NamespacedName {
	return types.NamespacedName{Namespace: l.pod.Namespace, Name: l.pod.Name}
}

// live is the whole life of a pod.
func (a *Agent) live(ctx context.Context, l *life) {
	current, address, ok := a.begin(ctx, l)
	how := ended
	for ok {
		started := time.Now()
		a.tell(l, event.Event{At: started, Kind: event.ContainerStarted, Sandbox: current.id, Address: address.String()})
		how = a.run(ctx, l, current, address)
		if ctx.Err() != nil {
			return
		}
		a.tell(l, event.Event{Kind: event.ContainerStopped, Sandbox: current.id})
		if how != restarted && how != overlapped {
			break
		}
		if current, address, ok = a.restart(ctx, l, current, how); ctx.Err() != nil {
			return
		}
	}
	if current.ns != nil && !a.tearDown(ctx, l, current) {
		return
	}
	if how == finished && !a.finish(ctx, l) {
		return
	}
	a.bury(ctx, l)
}

// begin makes a sandbox; a failed one is torn down and another is made after a pause, until the pod must end.
func (a *Agent) begin(ctx context.Context, l *life) (box, netip.Addr, bool) {
	if l.pod.Spec.HostNetwork {
		return box{}, a.options.NodeIP, true
	}
	select {
	case <-a.ready:
	case <-l.ending:
		return box{}, netip.Addr{}, false
	case <-ctx.Done():
		return box{}, netip.Addr{}, false
	}
	for pause := a.options.Backoff; ; pause = min(2*pause, maxBackoff) {
		current, address, err := a.addSandbox(ctx, l)
		if err == nil {
			return current, address, true
		}
		a.tell(l, event.Event{Kind: event.AddFailed, Sandbox: current.id, Detail: err.Error()})
		if current.ns != nil && !a.tearDown(ctx, l, current) {
			return box{}, netip.Addr{}, false
		}
		select {
		case <-time.After(pause):
		case <-l.ending:
			return box{}, netip.Addr{}, false
		case <-ctx.Done():
			return box{}, netip.Addr{}, false
		}
	}
}

// addSandbox makes a namespace and has the plugin wire it. A box with a namespace is returned also on failure.
func (a *Agent) addSandbox(ctx context.Context, l *life) (box, netip.Addr, error) {
	id := newSandboxID()
	made := box{id: id, path: filepath.Join(a.options.netnsDir(), "cni-"+id[:netnsDigits])}
	ns, err := netlab.New(made.path)
	if err != nil {
		return made, netip.Addr{}, fmt.Errorf("make sandbox: %w", err)
	}
	made.ns = ns
	l.mu.Lock()
	l.boxes = append(l.boxes, made)
	l.mu.Unlock()
	if err := a.link(l.name(), made.path); err != nil {
		return made, netip.Addr{}, err
	}
	a.tell(l, event.Event{Kind: event.AddExec, Sandbox: id})
	address, err := a.plugin.add(ctx, l.pod, made)
	if err != nil {
		return made, netip.Addr{}, err
	}
	a.tell(l, event.Event{Kind: event.AddDone, Sandbox: id, Address: address.String()})
	return made, address, nil
}

// netnsDigits is how much of the sandbox id names its namespace: enough to be unique, short enough to read.
const netnsDigits = 12

// run posts the status when its time has come and waits until the pod must end, and says how it does. A pod that ends
// earlier never gets a status.
func (a *Agent) run(ctx context.Context, l *life, current box, address netip.Addr) outcome {
	delay := time.NewTimer(a.statusDelay(l))
	defer delay.Stop()
	done, stopDone := runTime(l.pod)
	defer stopDone()
	for {
		select {
		case <-delay.C:
			a.post(ctx, l, current, address)
			continue
		case <-done:
			return finished
		case order := <-l.again:
			if order == OverlapBox {
				return overlapped
			}
			return restarted
		case <-ctx.Done():
			return ended
		case <-l.ending:
		}
		break
	}
	stop := time.NewTimer(min(l.grace, preStop(l.pod)))
	defer stop.Stop()
	select {
	case <-stop.C:
	case <-ctx.Done():
	}
	return ended
}

func (a *Agent) post(ctx context.Context, l *life, current box, address netip.Addr) {
	err := postStatus(ctx, a.api, l.pod, report{Host: a.options.NodeIP, Address: address, At: time.Now()})
	switch {
	case err == nil:
		a.tell(l, event.Event{Kind: event.StatusPosted, Sandbox: current.id, Address: address.String()})
	case !apierrors.IsNotFound(err) && ctx.Err() == nil:
		a.tell(l, event.Event{Kind: event.Trouble, Sandbox: current.id, Detail: err.Error()})
	}
}

// tearDown undoes a sandbox: DEL until it succeeds, then the namespace. False: ctx ended first.
func (a *Agent) tearDown(ctx context.Context, l *life, old box) bool {
	l.mu.Lock()
	hold, skip := l.hold, l.skip
	l.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return false
		}
	}
	for pause := a.options.Backoff; !skip; pause = min(2*pause, maxBackoff) {
		a.tell(l, event.Event{Kind: event.DelExec, Sandbox: old.id})
		err := a.plugin.del(ctx, l.pod, old.id, old.path)
		if err == nil {
			a.tell(l, event.Event{Kind: event.DelDone, Sandbox: old.id})
			break
		}
		if ctx.Err() != nil {
			return false
		}
		a.tell(l, event.Event{Kind: event.DelFailed, Sandbox: old.id, Detail: err.Error()})
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
	if err := errors.Join(a.unlink(l.name(), old.path), old.ns.Close()); err != nil {
		a.tell(l, event.Event{Kind: event.Trouble, Sandbox: old.id, Detail: err.Error()})
	}
	return true
}

// bury deletes the pod's object: kubelet does so once nothing of the pod is left on the node.
func (a *Agent) bury(ctx context.Context, l *life) {
	err := a.api.Delete(ctx, l.name(), l.pod.UID, new(int64))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		a.tell(l, event.Event{Kind: event.Trouble, Detail: err.Error()})
	}
	a.tell(l, event.Event{Kind: event.PodGone})
}

// link lets the pod's namespace be found by the pod's name. A later sandbox of the name takes the link over.
func (a *Agent) link(pod types.NamespacedName, target string) error {
	path := PodPath(a.options.Dir, a.options.Node, pod)
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(target))
	if err := os.Symlink(target, temporary); err != nil {
		return fmt.Errorf("link namespace of pod %s: %w", pod, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("link namespace of pod %s: %w", pod, err)
	}
	return nil
}

// unlink removes the link unless a later sandbox has taken it over.
func (a *Agent) unlink(pod types.NamespacedName, target string) error {
	path := PodPath(a.options.Dir, a.options.Node, pod)
	at, err := os.Readlink(path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && at != target) {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("unlink namespace of pod %s: %w", pod, err)
	}
	return nil
}

func (a *Agent) tell(l *life, e event.Event) {
	e.Namespace, e.Pod, e.UID = l.pod.Namespace, l.pod.Name, string(l.pod.UID)
	a.emit(e)
}
