package reconcile

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	// auditEvery is how often the kernel is compared with what is wanted, and evidence of vanished pods counted.
	auditEvery = 30 * time.Second
	// glanceEvery is how often the instance's metadata are asked whether EC2 is worth reading: that costs the account nothing.
	// While something is in transition every audit reads EC2.
	glanceEvery = 60 * time.Second
	// observeEvery is how often EC2 is read without a cause, for what the metadata do not show: ENIs that are not attached.
	observeEvery = 10 * time.Minute
	// hostSpacing merges the kernel's notices of many pods that start at once into few passes.
	hostSpacing = 100 * time.Millisecond
	// assignLimit is the longest that an ADD waits: kubelet and the runtimes give a sandbox some minutes, and a retry is
	// cheaper than a plugin that hangs.
	assignLimit = 60 * time.Second
	// cloudDeadline ends a call that EC2 never answers; the SDK's three attempts take 32 s on a backend that hangs.
	cloudDeadline = 60 * time.Second
	// hostDeadline ends a pass over the kernel; 700 map entries take milliseconds.
	hostDeadline = 30 * time.Second
	// retryFirst and retryLimit pace retries of a save or a kernel pass that failed: soon, but never a busy loop.
	retryFirst = time.Second
	retryLimit = 30 * time.Second
	// commandBurst is how many commands are taken in one turn before their effects start.
	commandBurst = 256
)

// Config is all that a Loop needs. Annotator, Clock, Timer, Logger, Seam, Ended and Taken may be nil.
type Config struct {
	Audit     time.Duration // between two audits; 0 is auditEvery
	Settings  pool.Settings
	Cloud     Cloud
	Host      Host
	Store     Store
	Annotator Annotator
	Clock     func() time.Time                     // wall clock: it stamps what is persisted
	Timer     func(time.Duration) <-chan time.Time // the loop's one timer, set anew by each call
	Logger    *slog.Logger
	Seam      Seam
	Ended     func(pool.Ended) // told of each allocation that evidence has ended
	Taken     func(pool.Taken) // told of each address given out that another pod still names
}

// Loop owns the pool of one node. Make it with New, start it with Run; everything else may be called from any goroutine.
type Loop struct {
	cfg      Config
	log      *slog.Logger
	commands chan func()
	events   chan func()
	answers  mailbox
	ready    chan struct{}
	stopped  chan struct{}

	// All below belongs to Run's goroutine.
	pool    *pool.Pool
	workers sync.WaitGroup
	waiters []*waiter
	cloud   cloudWork
	host    hostWork
	save    saveWork
	errors  LastErrors

	nextAudit time.Time
}

// New makes a loop; it does nothing before Run.
func New(cfg Config) *Loop {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Timer == nil {
		cfg.Timer = timer()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Audit <= 0 {
		cfg.Audit = auditEvery
	}
	if cfg.Seam == nil {
		cfg.Seam = direct
	}
	if cfg.Ended == nil {
		cfg.Ended = func(pool.Ended) {}
	}
	if cfg.Taken == nil {
		cfg.Taken = func(pool.Taken) {}
	}
	return &Loop{
		cfg:      cfg,
		log:      cfg.Logger,
		commands: make(chan func()),
		events:   make(chan func()),
		answers:  mailbox{notify: make(chan struct{}, 1)},
		ready:    make(chan struct{}),
		stopped:  make(chan struct{}),
		pool:     pool.New(cfg.Settings),
	}
}

// Ready is closed when the state is loaded and both EC2 and the kernel have been read.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Run loads the state and works until ctx ends. It returns when everything that it started has ended; it is called once.
func (l *Loop) Run(ctx context.Context) error {
	defer l.workers.Wait()
	defer close(l.stopped)
	l.load()
	l.host.audit, l.nextAudit = true, l.cfg.Clock().Add(l.cfg.Audit)
	for {
		l.step(ctx)
		serve := l.next(ctx)
		if ctx.Err() != nil { // what comes together with the end is not served: it would be by chance
			return nil
		}
		serve()
	}
}

// next waits for whatever comes first. One timer is for all that time alone brings: two that are due at one moment would be
// served in any order.
func (l *Loop) next(ctx context.Context) (serve func()) {
	select {
	case <-ctx.Done():
		return nil
	case command := <-l.commands:
		return func() {
			command()
			l.burst()
		}
	case event := <-l.events:
		return event
	case <-l.answers.notify:
		return func() {
			for _, answer := range l.answers.take() {
				l.pool.Answer(answer)
			}
		}
	case <-l.cfg.Host.Changes():
		return func() { l.host.trigger("links or routes changed") }
	case <-l.cfg.Timer(l.untilWake()):
		return func() {}
	}
}

// timer is the production timer.
func timer() func(time.Duration) <-chan time.Time {
	wake := time.NewTimer(0)
	return func(d time.Duration) <-chan time.Time {
		wake.Reset(d)
		return wake.C
	}
}

// load takes the last life's state. A state that cannot be read is no reason not to start: pods that are seen in the kernel
// keep their addresses by that evidence.
func (l *Loop) load() {
	snapshot, found, err := l.cfg.Store.Load()
	if err != nil {
		l.errors.Load = err.Error()
		l.log.Error("state not loaded, starting without it", "err", err)
	}
	if found {
		l.pool.Restore(snapshot, l.cfg.Clock())
	}
	// Save before anything is submitted: settings may have changed what is wanted. And where nothing was found, so that a
	// folder that cannot be written shows now and not when the first pod starts.
	l.save.revision = l.pool.Revision() - 1
}

// burst takes the commands that are queued already, so that one save serves them all.
func (l *Loop) burst() {
	for range commandBurst {
		select {
		case command := <-l.commands:
			command()
		default:
			return
		}
	}
}

// audit is due every cfg.Audit, and once after a time in which the loop could not run.
func (l *Loop) audit(now time.Time) {
	if now.Before(l.nextAudit) && l.nextAudit.Sub(now) <= l.cfg.Audit { // further off: the clock was set back
		return
	}
	l.nextAudit = now.Add(l.cfg.Audit)
	l.host.audit = true
	l.host.trigger("audit")
	switch {
	case l.pool.InTransition():
		l.cloud.asked = "something is in transition"
	case now.Sub(l.cloud.looked) >= glanceEvery-l.cfg.Audit/2:
		l.cloud.asked, l.cloud.glance = "audit", now.Sub(l.cloud.observed) < observeEvery-l.cfg.Audit/2
	}
}

// step starts whatever the present state asks for. It never waits.
func (l *Loop) step(ctx context.Context) {
	now := l.cfg.Clock()
	l.audit(now)
	l.serve(now)
	l.startCloud(ctx, now)
	l.startSave(ctx, now) // after it: what is given back is saved first
	l.startHost(ctx, now)
	if l.pool.Settled() {
		select {
		case <-l.ready:
		default:
			close(l.ready)
		}
	}
}

// untilWake is how long nothing happens by time alone.
func (l *Loop) untilWake() time.Duration {
	now := l.cfg.Clock()
	wait := min(l.cfg.Audit, l.nextAudit.Sub(now))
	for _, at := range []time.Time{l.host.notBefore, l.host.spaced, l.save.notBefore} {
		if at.After(now) {
			wait = min(wait, at.Sub(now))
		}
	}
	if at, ok := l.pool.NextWake(now); ok {
		wait = min(wait, at.Sub(now))
	}
	return wait
}

// start runs an effect beside the loop, and then finish on the loop's goroutine.
func (l *Loop) start(ctx context.Context, effect Effect, run func(context.Context) error, finish func(error)) {
	l.spawn(ctx, func() error { return l.cfg.Seam(ctx, effect, run) }, finish)
}

func (l *Loop) spawn(ctx context.Context, work func() error, finish func(error)) {
	l.workers.Go(func() {
		err := work()
		select {
		case l.events <- func() { finish(err) }:
		case <-ctx.Done():
		}
	})
}

// mailbox takes answers from anywhere without ever blocking.
type mailbox struct {
	mu     sync.Mutex
	list   []pool.Answer
	notify chan struct{}
}

func (m *mailbox) put(answer pool.Answer) {
	m.mu.Lock()
	m.list = append(m.list, answer)
	m.mu.Unlock()
	select {
	case m.notify <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []pool.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}

// reasons is a set of causes that waits to be served at once, in the order in which they first came.
type reasons []string

func (r *reasons) add(reason string) {
	if !slices.Contains(*r, reason) {
		*r = append(*r, reason)
	}
}

func (r reasons) String() string { return strings.Join(r, ", ") }
