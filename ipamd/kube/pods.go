package kube

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
	news       func()
	changed    func(was, is *corev1.Pod)
}

// PodsConfig says who hears of the watch. All calls come from one goroutine and must not block for long.
type PodsConfig struct {
	// News is called after each change, when Pod and Claims show it; nil: nobody is told.
	News   func()
	Logger *slog.Logger // nil: silent
}

// NewPods makes a watch; Run begins it.
func NewPods(c *Client, config PodsConfig) *Pods {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.News == nil {
		config.News = func() {}
	}
	p := &Pods{synced: make(chan struct{}), logger: config.Logger, news: config.News, changed: func(_, _ *corev1.Pod) {}}
	logger := logr.FromSlogHandler(quiet{config.Logger.Handler()})
	p.store, p.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		Logger:        &logger,
		ListerWatcher: c.lister(p.failed),
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

// failed logs a list or watch that the server refused or did not answer. Client-go tries again, ever more slowly.
func (p *Pods) failed(err error) {
	p.logger.Debug("cannot watch pods, trying again", "err", err)
}

// quiet leaves out what client-go tells of its daily life.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// lister lists and watches this node's pods. Both have one name for tests: which of them a start needs, the server's release
// decides.
func (c *Client) lister(failed func(error)) *cache.ListWatch {
	request := func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	}
	tell := func(err error) error {
		if err != nil {
			failed(err)
		}
		return err
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			request(&options)
			var list corev1.PodList
			err := c.around.do("pods watch", func() error {
				return c.core.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0).Do(ctx).Into(&list)
			})
			return &list, tell(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			request(&options)
			options.Watch = true
			var events watch.Interface
			err := c.around.do("pods watch", func() (err error) {
				events, err = c.core.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
				return err
			})
			return events, tell(err)
		},
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
	p.controller.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(quiet{p.logger.Handler()})))
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
