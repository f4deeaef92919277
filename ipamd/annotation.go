package ipamd

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// claimsEvery merges the news of many pods that start at once. An address rests for longer than that before it is given out
// again, unless IP_COOLDOWN_PERIOD is 0.
const claimsEvery = 200 * time.Millisecond

// annotation is the way to the API server, which exists also while the knob is off: what was written before must be
// removed. It is empty where the daemon has no credentials and the knob is off.
type annotation struct {
	on     bool
	log    *slog.Logger
	client *kube.Client
	events *kube.Events
	pods   *kube.Pods
	writer *annotate.Writer
	keys   []string
	named  chan struct{} // the watch has news: what pods name may have changed
	claims func(context.Context, []pool.Claim)
	check  *selfCheck
}

// annotationReporting is where annotations are told of.
type annotationReporting struct {
	log     *slog.Logger
	metrics *introspect.Metrics
	options Options
	claims  func(context.Context, []pool.Claim) // told of all addresses that this node's pods name
}

// newAnnotation makes no call: pods start while the API server is down. Missing credentials are an error only where the
// knob is on.
func newAnnotation(settings config.Settings, answers *answers, to annotationReporting) (*annotation, error) {
	a := &annotation{on: settings.AnnotatePodIP, keys: settings.AnnotateKeys, named: make(chan struct{}, 1), claims: to.claims, log: to.log, check: &selfCheck{}}
	client, err := kube.New(kube.Config{
		Kubeconfig: settings.Kubeconfig, Endpoint: settings.ClusterEndpoint, Node: settings.NodeName,
		Around: kube.Around(to.options.Around),
	})
	if err != nil {
		if a.on {
			return nil, err
		}
		to.log.Debug("no way to the API server, and none needed while annotations are off", "err", err)
		return a, nil
	}
	a.client = client
	a.events = kube.NewEvents(client, kube.NodeReference(settings.NodeName), to.log)
	var pods annotate.Pods
	if settings.NodeName != "" { // else it would be the pods that no node has yet
		a.pods = kube.NewPods(client, kube.PodsConfig{News: a.saw, Logger: to.log.With("part", "watch pods")})
		pods = a.pods
	}
	if a.on {
		a.check = newSelfCheck(client, settings.AnnotateKeys, a.events, to.log)
	}
	a.writer, err = annotate.New(annotate.Config{
		API: client, Pods: pods, Joined: settings.AnnotateAll, Answer: answers.answered, Logger: to.log, Event: a.events.Warn, Metrics: to.metrics,
		Settle: to.options.Settle, Around: annotate.Around(to.options.Around),
	})
	if err != nil {
		return nil, err
	}
	if a.pods != nil {
		a.pods.Tell(a.writer.Changed)
	}
	return a, nil
}

// saw notes that the watch has news.
func (a *annotation) saw() {
	select {
	case a.named <- struct{}{}:
	default:
	}
}

// keepClaims tells the pool which addresses this node's pods name, at most once in claimsEvery.
func (a *annotation) keepClaims(ctx context.Context) {
	pace := time.NewTicker(claimsEvery)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.named:
		}
		var claims []pool.Claim
		for _, c := range a.pods.Claims(a.keys) {
			claims = append(claims, pool.Claim{Pod: pool.Pod{Namespace: c.Namespace, Name: c.Name, UID: c.UID}, Addr: c.Addr})
		}
		a.claims(ctx, claims)
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

// annotator is what the loop submits to: nil where there is no way to the API server.
func (a *annotation) annotator() reconcile.Annotator {
	if a.writer == nil {
		return nil
	}
	return a.writer
}

// show fills what the gauges show of annotations.
func (a *annotation) show(f *introspect.Figures) {
	if a.writer == nil {
		return
	}
	progress := a.writer.Progress()
	f.AnnotationsPending, f.OldestAnnotation = a.writer.Pending(), a.writer.Oldest()
	f.AnnotationsOverdue, _ = a.writer.Overdue()
	f.AnnotationTrouble = a.check.trouble()
	f.PassLeft = progress.Total - progress.Visited
}

// pending counts annotations that are not at rest.
func (a *annotation) pending() int {
	if a.writer == nil {
		return 0
	}
	return a.writer.Pending()
}

func (a *annotation) run(ctx context.Context) error {
	if a.writer == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.writer.Run(ctx) })
	group.Go(func() error { return a.events.Run(ctx) })
	if a.pods != nil {
		group.Go(func() error { return a.pods.Run(ctx) })
		group.Go(func() error { a.keepClaims(ctx); return nil })
	}
	group.Go(func() error { return a.check.run(ctx) })
	return group.Wait()
}
