package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// life is one run of the daemon.
type life struct {
	no        int
	loop      *reconcile.Loop
	annotator *simAnnotator
	cancel    context.CancelFunc
	ended     chan struct{}
	began     time.Time
	reported  time.Time       // when the kernel was read for the first time; zero before
	flagged   map[string]bool // sandboxes that the log calls cut off
	kept      []keptLaw
}

func (l *life) name(what string) string { return fmt.Sprintf("%s/%d", what, l.no) }

// start begins the daemon's next life. Whoever ends it, it is started again, as by kubelet.
func (n *node) start() {
	for _, change := range n.atStart {
		change()
	}
	n.atStart = nil
	n.lives++
	l := &life{no: n.lives, ended: make(chan struct{}), began: time.Now(), flagged: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.annotator = newSimAnnotator(n, l.name("annotator"))
	settings := n.settings
	settings.Seed = n.seed<<8 + uint64(n.lives)
	n.expectKept(l)
	timer, endTimer := n.agenda.alarm(l.name("timer"))
	l.loop = reconcile.New(reconcile.Config{
		Settings: settings, Cloud: n.cloud, Host: n.host, Store: store.New(&lifeDisk{n, l, ctx}, statePath),
		Annotator: l.annotator, Seam: n.seam, Logger: slog.New(flagger{n, l}), Timer: timer,
		Clock: func() time.Time { n.agenda.shake(); return time.Now() },
	})
	l.annotator.answer = l.loop.Answered
	n.life = l
	n.note("start %d, annotate %v %v", n.lives, settings.Annotate, settings.Keys)
	n.all.Go(func() { l.annotator.run(ctx) })
	n.all.Go(func() {
		select {
		case <-l.loop.Ready():
			n.turn(l.name("kept"))
			n.checkKept(l)
		case <-l.ended:
		}
	})
	n.all.Go(func() {
		if err := l.loop.Run(ctx); err != nil {
			n.fault("run", "Run: %v", err)
		}
		endTimer()
		close(l.ended)
		n.again(l)
	})
}

// again starts the daemon again after a while: at once, or after the runtime's backoff.
func (n *node) again(l *life) {
	if n.over {
		return
	}
	span := int64(time.Second)
	if h := n.hash("restart", fmt.Sprint(l.no)); h%2 == 0 {
		span = int64(25 * time.Second)
	}
	_ = n.pauseUpTo(context.Background(), "restart", span)
	if !n.over {
		n.start()
	}
}

// flagger listens to what the loop logs about pods that are cut off.
type flagger struct {
	n *node
	l *life
}

func (f flagger) Enabled(_ context.Context, level slog.Level) bool {
	f.n.agenda.shake()
	return level >= slog.LevelError
}
func (f flagger) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f flagger) WithGroup(string) slog.Handler      { return f }
func (f flagger) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "sandbox" {
			f.n.mu.Lock()
			f.l.flagged[a.Value.String()] = true
			f.n.mu.Unlock()
		}
		return true
	})
	return nil
}
