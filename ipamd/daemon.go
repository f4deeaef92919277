// Package ipamd is the node daemon put together: it is the only place that sees all of the daemon's packages.
//
// It owns the order of start and end and the small adapters between packages that must not know each other. It decides
// nothing about addresses (pool does), nothing about the kernel (hostnet) and nothing about EC2 (cloud). Start with Run.
package ipamd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/cloud"
	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/hostnet"
	"github.com/vpc-cni/vpc-cni/ipamd/install"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// stateFile holds the allocations. The incumbent's ipam.json beside it is read where there is none, and never written.
const stateFile = "state.json"

// daemon is every part, made but not running.
type daemon struct {
	settings   config.Settings
	around     Around
	audit      time.Duration
	log        *slog.Logger
	loop       *reconcile.Loop
	host       *hostnet.Host
	annotation *annotation
	server     *api.Server
	pending    *pending
	metrics    *introspect.Metrics
	figures    *figures
	lock       *nodeLock
	began      time.Time     // of Run
	running    time.Time     // when the loop began
	listening  chan struct{} // closed when plugins can connect
	takenTold  time.Time     // last event about an address that is still named
}

// Run is the daemon's life: it waits for an earlier daemon of the node to end, serves until ctx ends, and leaves the pods,
// the kernel and the network configuration as they are. The error says what could not be started or what broke.
func Run(ctx context.Context, settings config.Settings, log *slog.Logger) error {
	return Options{Settings: settings, Log: log}.Run(ctx)
}

// Run is the function Run with options.
func (o Options) Run(ctx context.Context) error {
	settings, log, began := o.Settings, o.Log, time.Now()
	for _, note := range settings.Notes {
		log.Info("remark on settings", "note", note)
	}
	var held *nodeLock
	err := o.Around.do("lock take", func() (err error) {
		held, err = lock(ctx, settings.StateDir, log)
		return err
	})
	if ctx.Err() != nil {
		return nil // told to end while it waited
	}
	if err != nil {
		return err
	}
	defer held.release()
	held.around = o.Around
	d, err := build(ctx, o)
	if err != nil {
		return err
	}
	d.lock, d.figures.lock, d.began = held, held, began
	return d.run(ctx)
}

// build makes every part. It calls nobody: a cloud, a cluster or a kernel that is not there yet is the loop's business.
func build(ctx context.Context, o Options) (*daemon, error) {
	settings, log := o.Settings, o.Log
	d := &daemon{
		settings: settings, around: o.Around, audit: cmp.Or(o.Audit, auditInterval), log: log,
		figures: &figures{maxENI: settings.MaxENI}, listening: make(chan struct{}),
	}
	d.metrics = newMetrics(d.figures.read)

	bootID, err := readBootID()
	if err != nil {
		return nil, err
	}
	ec2, err := cloud.New(ctx, cloud.Options{
		ClusterName: settings.ClusterName, Tags: settings.ENITags, Endpoint: settings.EC2Endpoint,
		OnCall: d.called, Around: cloud.Around(o.Around), Log: log.With("part", "cloud"),
	})
	if err != nil {
		return nil, err
	}
	if d.host, err = hostnet.New(hostnet.Config{
		Around: hostnet.Around(o.Around),
		MTU:    settings.ENIMTU, VethPrefix: settings.VethPrefix,
		ExternalSNAT: settings.ExternalSNAT, NodePort: settings.NodePort,
		Veth:     func(key pool.Key, pod pool.Pod) string { return hostVeth(settings.VethPrefix, key, pod) },
		Repaired: d.metrics.Repaired, Event: d.event,
		Logger: log.With("part", "hostnet"),
	}); err != nil {
		return nil, err
	}
	answers := newAnswers(func(answer pool.Answer) { d.loop.Answered(answer) })
	if d.annotation, err = newAnnotation(settings, answers, annotationReporting{
		log.With("part", "annotate"), d.metrics, o, func(ctx context.Context, claims []pool.Claim) { d.loop.Claimed(ctx, claims) },
	}); err != nil {
		return nil, err
	}
	d.loop = reconcile.New(reconcile.Config{
		Audit: o.Audit,
		Settings: pool.Settings{
			WarmENI: settings.WarmENITarget, WarmIP: settings.WarmIPTarget,
			MinimumIP: settings.MinimumIPTarget, MaxENI: settings.MaxENI,
			Cooldown: settings.Cooldown, SurplusAge: o.SurplusAge,
			Annotate: settings.AnnotatePodIP, Keys: settings.AnnotateKeys,
			BootID: bootID, Seed: rand.Uint64(),
		},
		Cloud: ec2, Host: d.host,
		Store: recovery{
			Store:      store.New(o.Around.fileSystem(), filepath.Join(settings.StateDir, stateFile)),
			results:    store.Results{Dir: settings.CacheDir, Network: install.NetworkName},
			incumbent:  store.NewIncumbent(o.Around.fileSystem(), settings.IncumbentState),
			vethPrefix: settings.VethPrefix, bootID: bootID, log: log.With("part", "store"),
		},
		Annotator: d.annotation.annotator(),
		Logger:    log.With("part", "reconcile"),
		Seam:      counted(d.metrics),
		Ended:     func(pool.Ended) { d.metrics.Deleted("evidence") },
		Taken:     d.taken,
	})
	d.figures.loop, d.figures.annotation = d.loop, d.annotation
	d.serveWith(answers)
	return d, nil
}

func newMetrics(figures func() (introspect.Figures, bool)) *introspect.Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	metrics := introspect.NewMetrics(registry, figures)
	metrics.Repairable(hostnet.Kinds()...)
	metrics.Built(buildVersion())
	return metrics
}

// serveWith makes what speaks with the plugin.
func (d *daemon) serveWith(answers *answers) {
	allocator := &allocator{
		loop: d.loop, answers: answers, metrics: d.metrics, log: d.log,
		vethPrefix: d.settings.VethPrefix, podMTU: d.settings.PodMTU,
	}
	if d.settings.AnnotatePodIP && d.annotation.writer != nil {
		allocator.wait = d.settings.AnnotateWait
	}
	d.server = api.NewServer(allocator, allocator, d.log.With("part", "api"))
	d.server.Around = api.Around(d.around)
	d.pending = &pending{socket: d.settings.Socket, allocator: allocator, around: d.around, every: d.audit, log: d.log}
}

// called is told of every call of the cloud.
func (d *daemon) called(call cloud.Call) {
	d.metrics.Called(introspect.Call{Service: call.Service, Action: call.Action, Took: call.Took, Status: call.Status, Code: call.Code, Failed: call.Err != nil})
	if call.Err != nil {
		d.log.Debug("call failed", "service", call.Service, "action", call.Action, "took", call.Took, "err", call.Err)
	}
}

// event tells people in the cluster, where there is a way to the API server.
func (d *daemon) event(reason, message string) {
	if d.annotation != nil && d.annotation.events != nil {
		d.annotation.events.Warn(reason, message)
	}
}

// takenEvery is the shortest time between two events about addresses that are still named: the log has each.
const takenEvery = 10 * time.Minute

// taken tells of an address that a pod had to get although another one still names it: a policy engine may apply the other
// one's rules to it. The loop's goroutine calls it.
func (d *daemon) taken(t pool.Taken) {
	d.log.Warn("address given out that another pod still names", "addr", t.Addr, "pod", t.Pod.Namespace+"/"+t.Pod.Name, "named_by", t.By)
	if now := time.Now(); now.Sub(d.takenTold) >= takenEvery {
		d.takenTold = now
		d.tellTaken(t)
	}
}

func (d *daemon) tellTaken(t pool.Taken) {
	d.event("AddressStillNamed", fmt.Sprintf("%s was given to pod %s/%s although %s still names it: no other address was free. "+
		"A policy engine may take one for the other until that changes. Give the node more addresses (WARM_IP_TARGET, a larger subnet), or see why clears are late", t.Addr, t.Pod.Namespace, t.Pod.Name, t.By))
}

// counted is the loop's seam in the daemon: effects run as they are, and are counted.
func counted(metrics *introspect.Metrics) reconcile.Seam {
	return func(ctx context.Context, effect reconcile.Effect, run func(context.Context) error) error {
		err := run(ctx)
		result := "ok"
		if err != nil {
			result = "error"
		}
		metrics.Reconciled(effect.Kind, result)
		return err
	}
}

// run starts everything and waits. At the end the plugin's server goes first, while the loop can still save what open
// transactions have to say; then everything else.
func (d *daemon) run(ctx context.Context) error {
	d.running = time.Now()
	group, work := errgroup.WithContext(context.WithoutCancel(ctx))
	work, stop := context.WithCancel(work)
	defer stop()
	serving, stopServing := context.WithCancel(work)
	defer stopServing()
	defer context.AfterFunc(ctx, stopServing)()

	group.Go(func() error {
		defer stop()
		return d.serve(serving)
	})
	group.Go(func() error { return named("reconcile", d.loop.Run(work)) })
	group.Go(func() error { return named("watch the kernel", d.host.Run(work)) })
	group.Go(func() error { return named("annotate", d.annotation.run(work)) })
	group.Go(func() error { return d.keepLock(serving) })
	group.Go(func() error { return d.pending.run(serving) })
	group.Go(func() error { return d.keepConflist(serving) })
	group.Go(func() error { return d.announce(serving) })
	d.serveHTTP(work, group)
	err := group.Wait()
	d.log.Info("daemon ended", "err", err)
	return err
}

// named says which part an error came from.
func named(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// serve answers plugins until ctx ends. Deletions of the time before come first: a plugin must not find an address taken
// by a sandbox that is gone.
func (d *daemon) serve(ctx context.Context) error {
	collect, cancel := context.WithTimeout(ctx, collectTimeout)
	d.pending.collect(collect)
	cancel()
	listener := d.listen(ctx)
	if listener == nil {
		return nil
	}
	close(d.listening)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return named("serve plugins", d.server.Serve(ctx, listener)) })
	group.Go(func() error { d.keepSocket(ctx, listener); return nil })
	return group.Wait()
}
