package kube

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Pods is a watch of this node's pods, stripped to what the daemon reads of them. It costs the API server one list and one
// connection for each node, and no node sees another's pods.
type Pods struct {
	store      cache.Store
	controller cache.Controller
	synced     chan struct{}
	logger     *slog.Logger
	pace       time.Duration
	news       func()
	changed    func(was, is *corev1.Pod)
}

// PodsConfig says who hears of the watch. All calls come from one goroutine and must not block for long.
type PodsConfig struct {
	// News is called after each change, when Pod and Claims show it; nil: nobody is told.
	News   func()
	Logger *slog.Logger // nil: silent
	// Pace is how long to wait after the server has said that it does not let us watch; 0: 5 minutes. It takes a person to
	// change that, and a thousand nodes must not keep asking.
	Pace time.Duration
}

// refusedPace is Pace's default.
const refusedPace = 5 * time.Minute

// NewPods makes a watch; Run begins it.
func NewPods(c *Client, config PodsConfig) *Pods {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.News == nil {
		config.News = func() {}
	}
	if config.Pace <= 0 {
		config.Pace = refusedPace
	}
	p := &Pods{synced: make(chan struct{}), logger: config.Logger, pace: config.Pace, news: config.News, changed: func(_, _ *corev1.Pod) {}}
	logger := logr.Discard() // what goes wrong is told once, by asked
	p.store, p.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		Logger:        &logger,
		ListerWatcher: p.lister(c),
		ObjectType:    &corev1.Pod{},
		Transform:     strip,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(is any) { p.tell(nil, podOf(is)) },
			UpdateFunc: func(was, is any) { p.tell(podOf(was), podOf(is)) },
			DeleteFunc: func(was any) { p.tell(podOf(was), nil) },
		},
	})
	return p
}

// Tell names who hears of each change, before Run: a pod as it was (nil: it is new) and as it is (nil: it was deleted). Neither
// may be changed.
func (p *Pods) Tell(changed func(was, is *corev1.Pod)) { p.changed = changed }

func (p *Pods) tell(was, is *corev1.Pod) {
	p.changed(was, is)
	p.news()
}

// refusal is what the watch keeps of the server's last answer. It belongs to the informer's goroutine.
type refusal struct {
	told  bool      // it is in the log
	until time.Time // no request before
}

// lister lists and watches this node's pods. Both have one name for tests: which of them a start needs, the server's release
// decides.
func (p *Pods) lister(c *Client) *cache.ListWatch {
	last := &refusal{}
	selector := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	ask := func(ctx context.Context, options metav1.ListOptions, send func(*rest.Request) error) error {
		if err := last.wait(ctx); err != nil {
			return err
		}
		options.FieldSelector = selector
		request := c.core.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
		err := c.around.do("pods watch", func() error { return send(request) })
		p.asked(last, err)
		return err
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.PodList{}
			err := ask(ctx, options, func(r *rest.Request) error { return r.Do(ctx).Into(list) })
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (events watch.Interface, err error) {
			options.Watch = true
			err = ask(ctx, options, func(r *rest.Request) (err error) {
				events, err = r.Watch(ctx)
				return err
			})
			return events, err
		},
	}
}

// wait is for the time that a refusal asks for.
func (r *refusal) wait(ctx context.Context) error {
	timer := time.NewTimer(time.Until(r.until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// asked takes the server's answer. Trouble is told when it begins and when it ends; client-go asks again, ever more slowly.
func (p *Pods) asked(last *refusal, err error) {
	switch {
	case err == nil && last.told:
		p.logger.Info("this node's pods are watched again")
	case err != nil && !last.told && !errors.Is(err, context.Canceled):
		p.logger.Warn("cannot watch this node's pods: annotations are written, at the cost of more requests",
			"advice", "grant this service account the verbs list and watch on pods, if they are missing", "err", err)
	}
	last.told = err != nil
	if last.until = (time.Time{}); apierrors.IsForbidden(err) {
		last.until = time.Now().Add(p.pace/2 + rand.N(p.pace)) // spread, or all nodes would come together
	}
}

func podOf(object any) *corev1.Pod {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, _ := object.(*corev1.Pod)
	return pod
}

// Run watches until ctx is done. A server that is down, or does not let us watch, is asked again, ever more slowly.
func (p *Pods) Run(ctx context.Context) error {
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if cache.WaitFor(ctx, "", p.controller.HasSyncedChecker()) {
			close(p.synced)
		}
	})
	p.controller.RunWithContext(klog.NewContext(ctx, logr.Discard()))
	waiting.Wait()
	return nil
}

// Synced is closed once every pod of the node was seen.
func (p *Pods) Synced() <-chan struct{} { return p.synced }

// Pod gives a pod as last seen, nil if there is none of the name. It is not to be changed.
func (p *Pods) Pod(namespace, name string) *corev1.Pod {
	object, found, err := p.store.GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	return podOf(object)
}

// Claim is an address that a pod's object names.
type Claim struct {
	Namespace, Name, UID string
	Addr                 netip.Addr
}

// Claims gives the addresses that unfinished pods of the node have in their status, or under one of the annotation keys, in no
// order. Those of hostNetwork pods are the node's own.
func (p *Pods) Claims(keys []string) []Claim {
	var claims []Claim
	for _, object := range p.store.List() {
		pod := podOf(object)
		if pod == nil || pod.Spec.HostNetwork {
			continue
		}
		for _, addr := range named(pod, keys) {
			claims = append(claims, Claim{pod.Namespace, pod.Name, string(pod.UID), addr})
		}
	}
	return claims
}

// named gives the addresses that a pod names. A pod that has finished keeps those of its status for ever, and they mean
// nothing; its annotation is emptied when its sandbox goes.
func named(pod *corev1.Pod, keys []string) []netip.Addr {
	var list []netip.Addr
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		for _, ip := range pod.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil {
				list = append(list, addr)
			}
		}
	}
	for _, key := range keys {
		if found, ok := addresses(pod.Annotations[key]); ok {
			list = append(list, found...)
		}
	}
	return list
}

// addresses reads a list of addresses or CIDRs; ok is false where it is something else.
func addresses(value string) (list []netip.Addr, ok bool) {
	for item := range strings.SplitSeq(value, ",") {
		if prefix, err := netip.ParsePrefix(item); err == nil {
			list = append(list, prefix.Addr())
			continue
		}
		addr, err := netip.ParseAddr(item)
		if err != nil {
			return nil, false
		}
		list = append(list, addr)
	}
	return list, true
}

// strip leaves of a pod what is read of it: who it is, whether it ends, its network, its addresses, and of its annotations those
// that are empty or hold addresses, and the one that tells a mirror of a static pod. A pod has 10 kB, what is left 0.5.
func strip(object any) (any, error) {
	full, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // DeletedFinalStateUnknown, of what was stripped before
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = full.Namespace, full.Name, full.UID, full.ResourceVersion
	pod.DeletionTimestamp = full.DeletionTimestamp
	pod.Spec.NodeName, pod.Spec.HostNetwork = full.Spec.NodeName, full.Spec.HostNetwork
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = full.Status.Phase, full.Status.PodIP, full.Status.PodIPs
	for key, value := range full.Annotations {
		_, addressed := addresses(value)
		if addressed || value == "" || key == corev1.MirrorPodAnnotationKey {
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[key] = value
		}
	}
	return pod, nil
}
