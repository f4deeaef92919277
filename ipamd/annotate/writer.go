package annotate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	// defaultWorkers is more than kubelet's default maximum of pods (110): all of a node's may start at once, and none waits
	// for another's answer, however long the API server takes. Passes are limited by their rate.
	defaultWorkers = 128
	// defaultPassQPS spreads a pass over a full node (110 pods) over 11 s: an upgrade restarts every node's daemon, and a
	// thousand nodes at 10 requests a second are what an API server still serves beside its work.
	defaultPassQPS = 10
	// freshFor is how old a wish may be to go first. An older one is a leftover that is submitted again.
	freshFor = 5 * time.Second
)

// Metrics receives counts. Both methods are called by several goroutines.
type Metrics interface {
	// Request counts one request: operation is "set", "clear", "remove" or "read", reason "ok" or why it failed.
	Request(operation, reason string, took time.Duration)
	// Written counts one acknowledged set of a fresh record, sinceWish after the pod was given its address.
	Written(sinceWish time.Duration)
	// Visible counts one fresh record whose value the watch has shown, as it shows it to every reader.
	Visible(sinceWish time.Duration)
}

// Config is what a Writer is made of. API and Answer are required.
type Config struct {
	API  PodAPI
	Pods Pods // nil: no watch, every question is a request; news of it goes to Changed
	// Answer is called by workers, one call at a time for each pod, without a lock held. It must not block for long, and it
	// may call Submit.
	Answer func(pool.Answer)
	// Joined are the keys whose value is all of a pod's addresses, with commas between.
	Joined []string
	Logger *slog.Logger // nil: silent
	// Event tells the cluster's people about trouble, at most once in ten minutes for each reason. It must not block.
	Event     func(reason, message string)
	Metrics   Metrics          // nil: none
	Now       func() time.Time // nil: time.Now
	Rand      func() float64   // in [0,1), spreads retries; nil: math/rand
	Workers   int              // requests in flight at most; 0: 128
	PassQPS   float64          // records per second of passes; 0: 10
	PassBurst int              // 0: 10
	Settle    time.Duration    // how long after its start an unanswered request may be carried out; 0: 30 s
	Around    Around           // nil but in tests
}

// Around makes one request by calling run, once or not at all, and passes on its error. Nil just calls it. Tests end the
// process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// Writer carries out annotation wishes. Its methods are safe for use by several goroutines.
type Writer struct {
	api     PodAPI
	pods    Pods
	joined  map[string]bool
	answer  func(pool.Answer)
	metrics Metrics
	report  *report
	now     func() time.Time
	rand    func() float64
	workers int
	settle  time.Duration
	around  Around
	started time.Time
	pass    *rate.Limiter
	lanes   *lanes
	queue   workqueue.TypedDelayingInterface[podName]

	mu       sync.Mutex
	known    map[podName]*pod
	order    uint64
	holding  bool // passes wait for the watch
	progress Progress
}

// New makes a writer. It makes no request. Run must follow: it ends the goroutine of the queue that New starts.
func New(c Config) (*Writer, error) {
	if c.API == nil || c.Answer == nil {
		return nil, errors.New("make annotation writer: API and Answer are required")
	}
	c.setDefaults()
	w := &Writer{
		api: c.API, answer: c.Answer, metrics: c.Metrics, now: c.Now, rand: c.Rand, workers: c.Workers, settle: c.Settle, around: c.Around,
		report:  &report{logger: c.Logger, event: c.Event, now: c.Now},
		started: c.Now(),
		pass:    rate.NewLimiter(rate.Limit(c.PassQPS), c.PassBurst),
		lanes:   &lanes{},
		pods:    c.Pods, joined: map[string]bool{},
		known:   map[podName]*pod{},
		holding: c.Pods != noPods{},
	}
	for _, key := range c.Joined {
		w.joined[key] = true
	}
	w.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[podName]{
		Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[podName]{Queue: w.lanes}),
	})
	return w, nil
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Event == nil {
		c.Event = func(string, string) {}
	}
	if c.Pods == nil {
		c.Pods = noPods{}
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Workers <= 0 {
		c.Workers = defaultWorkers
	}
	if c.PassQPS <= 0 {
		c.PassQPS = defaultPassQPS
	}
	if c.PassBurst <= 0 {
		c.PassBurst = defaultPassQPS
	}
	if c.Settle <= 0 {
		c.Settle = defaultSettle
	}
}

type noMetrics struct{}

func (noMetrics) Request(string, string, time.Duration) {}
func (noMetrics) Written(time.Duration)                 {}
func (noMetrics) Visible(time.Duration)                 {}

// Submit takes the latest record of an owner and never blocks. It replaces an earlier record of the same owner; the same
// record again changes nothing while it is being worked on, and is carried out once more when it is done. A record whose
// wish is fresh goes before all others.
func (w *Writer) Submit(record pool.Annotation) {
	fresh := record.Wish != pool.WishAbsent && w.now().Sub(record.Since) < freshFor
	w.submit(record, fresh)
}

// SubmitPass is Submit for passes over many pods: at the start of the daemon, or when the knob or the keys were changed.
// Such records are spread over time and come after fresh ones.
func (w *Writer) SubmitPass(record pool.Annotation) { w.submit(record, false) }

func (w *Writer) submit(record pool.Annotation, fresh bool) {
	name := nameOf(record)
	if !w.enter(name, record, fresh) {
		return
	}
	if fresh {
		w.lanes.urge(name)
	}
	w.again(name)
}

// enter stores the record; false: it is being worked on already.
func (w *Writer) enter(name podName, record pool.Annotation, fresh bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	p := w.known[name]
	if p == nil {
		p = newPod()
		w.known[name] = p
	}
	e := p.entries[record.Owner]
	switch {
	case e == nil:
		w.order++
		e = &entry{order: w.order}
		p.entries[record.Owner] = e
		w.recall(p, record, now)
	case !e.resting() && e.sameWish(record):
		return false
	}
	w.visited(e)
	due, leftover := now, record.Since.Before(w.started)
	switch e.held = false; {
	case fresh && !leftover:
	case w.holding:
		e.held, due = true, now.Add(holdLimit)
	case !fresh:
		due = w.nextInPass(now)
	}
	if !fresh || leftover {
		w.toVisit(e, now)
	}
	e.replace(record, fresh, due)
	e.entered = now
	if record.Wish == pool.WishPresent {
		p.inherit(e)
	}
	return true
}

// recall adds the doubt about what an earlier daemon sent: a record that begins as a clear soon after the start was written
// by that one, and a set may still be on its way.
func (w *Writer) recall(p *pod, record pool.Annotation, now time.Time) {
	until := w.started.Add(w.settle)
	if record.Wish == pool.WishPresent || !until.After(now) || p.sets[record.Addr] > 0 {
		return
	}
	p.doubts = append(p.doubts, doubt{record.Owner, true, until})
	p.sets[record.Addr]++
}

// Pending counts the records that are not at rest.
func (w *Writer) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := 0
	for _, p := range w.known {
		for _, e := range p.entries {
			if !e.resting() {
				count++
			}
		}
	}
	return count
}

// Run works until ctx is done, then waits for its workers. Requests in flight are cut off: the records on disk bring them
// back at the next start.
func (w *Writer) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range w.workers {
		workers.Go(func() {
			for w.work(ctx) {
			}
		})
	}
	workers.Go(func() { w.awaitWatch(ctx) })
	workers.Go(func() { w.lookForOverdue(ctx) })
	<-ctx.Done()
	w.queue.ShutDown()
	workers.Wait()
	return nil
}

// work does one run for one pod; false: the queue is shut down.
func (w *Writer) work(ctx context.Context) bool {
	name, shutDown := w.queue.Get()
	if shutDown {
		return false
	}
	defer w.queue.Done(name)
	if ctx.Err() != nil {
		return true
	}
	if t, ok := w.take(name); ok {
		r := w.execute(ctx, t)
		if ctx.Err() != nil {
			return true
		}
		answers, hurried := w.finish(name, t, r)
		for _, answer := range answers {
			w.answer(answer)
		}
		for _, other := range hurried {
			w.again(other)
		}
	}
	w.again(name)
	return true
}

// take gives what is to be done for a pod now.
func (w *Writer) take(name podName) (task, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.known[name]
	if p == nil {
		return task{}, false
	}
	now := w.now()
	e, _ := p.next(now)
	if e == nil {
		return task{}, false
	}
	return p.task(e, now), true
}

// finish gives what to answer, and the pods that have become due by this run.
func (w *Writer) finish(name podName, t task, r *run) (answers []pool.Answer, hurried []podName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.known[name]; p != nil {
		answers = w.fold(p, t, r)
	}
	if r.taken {
		hurried = w.hurry()
	}
	return answers, hurried
}

// again puts the pod into the queue for its next due time, and forgets a pod of which nothing is left.
func (w *Writer) again(name podName) {
	delay, ok := w.untilDue(name)
	if ok {
		w.queue.AddAfter(name, delay)
	}
}

func (w *Writer) untilDue(name podName) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.known[name]
	if p == nil {
		return 0, false
	}
	now := w.now()
	p.expire(now)
	e, at := p.next(now)
	switch {
	case e != nil:
		return 0, true
	case len(p.entries) == 0 && len(p.doubts) == 0 && p.reached(now):
		delete(w.known, name)
		return 0, false
	case len(p.entries) == 0:
		at = p.reach
		for _, d := range p.doubts {
			at = later(at, d.until)
		}
	case at.IsZero():
		return 0, false
	}
	return at.Sub(now), true
}

// delay is the time to the next attempt: exponential, spread by half either way, and not before the server's wish.
func (w *Writer) delay(why reply, failures int) time.Duration {
	base, limit := pace(why.class)
	d := min(base<<min(failures, 10), limit) // 10: beyond every limit
	return max(time.Duration(float64(d)*(0.5+w.rand())), why.after+time.Duration(float64(base)*w.rand()))
}

// pace gives the first and the longest delay.
func pace(c class) (base, limit time.Duration) {
	switch c {
	case unreachable: // the server sees nothing of these
		return 200 * time.Millisecond, 10 * time.Second
	case refused: // it takes a person to change that
		return time.Minute, 5 * time.Minute
	case denied: // the same, and no traffic waits for it: nodes of a cluster without permission must not add up
		return time.Minute, 30 * time.Minute
	case waiting: // kubelet posts a status within seconds
		return 250 * time.Millisecond, 10 * time.Second
	case distant: // a grace period, 30 s unless set
		return 30 * time.Second, 2 * time.Minute
	}
	return 200 * time.Millisecond, 30 * time.Second
}
