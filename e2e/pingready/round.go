package pingready

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// after is how long pings go on once everything is known to work: losses then would be losses too.
const after = 300 * time.Millisecond

// lastReply is how long an answer to the last ping may take.
const lastReply = time.Second

// measure starts the pods of a round, pings them until all is well, and removes them.
func (r *run) measure(ctx context.Context, knob Knob) (Round, error) {
	r.round++
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	list := r.subjects()
	err := r.ping(ctx, list, knob)
	round := Round{Knob: knob}
	var took span
	for _, s := range list {
		if err == nil {
			seen := r.recorder.get(s.uid)
			round.Pods = append(round.Pods, s.result(seen))
			took.take(seen, s.in.Result().FirstReply, s.out.Result().FirstReply)
			for _, trouble := range seen.troubles {
				round.Troubles = append(round.Troubles, s.pod.Name+": "+trouble)
			}
		}
		err = errors.Join(err, s.close())
	}
	round.AllAdded, round.AllReady = ms(took.added.Sub(took.began)), ms(took.ready.Sub(took.began))
	if ctx.Err() != nil { // the cluster is about to be stopped
		return round, err
	}
	return round, errors.Join(err, r.remove(ctx, list))
}

// span is a round as a whole: from the first ADD's exec to the last one's result, and to the last pod's first replies.
type span struct{ began, added, ready time.Time }

func (t *span) take(seen record, in, out time.Time) {
	if t.began.IsZero() || seen.addExec.Before(t.began) {
		t.began = seen.addExec
	}
	for at, moments := range map[*time.Time][]time.Time{&t.added: {seen.addDone}, &t.ready: {in, out}} {
		for _, moment := range moments {
			if moment.After(*at) {
				*at = moment
			}
		}
	}
}

// subjects spreads the pods of a round over the nodes, unless one is named, each with a responder on the next one.
func (r *run) subjects() (list []*subject) {
	nodes := r.info.Nodes
	only := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.Name == r.options.Node })
	for i := range r.options.Pods {
		at := i % len(nodes)
		if only >= 0 {
			at = only
		}
		s := newSubject(r.responders[(at+1)%len(nodes)])
		s.pod.Namespace = s.peer.pod.Namespace
		s.pod.Name = fmt.Sprintf("s%d-r%d-p%d", r.options.Seed, r.round, i)
		s.pod.Node = nodes[at].Name
		list = append(list, s)
	}
	return list
}

// ping creates the pods and pings them, each from its container's start on.
func (r *run) ping(outer context.Context, list []*subject, knob Knob) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	byName := make(map[string]*subject, len(list))
	var busy sync.WaitGroup
	for _, s := range list {
		byName[s.pod.Name] = s
		busy.Go(func() { s.follow(ctx, r.target) })
	}
	stop := r.target.Follow(func(e event.Event) {
		if s := byName[e.Pod]; s != nil && (e.Kind == event.AddExec || e.Kind == event.ContainerStarted) {
			s.events <- e // the queue is longer than any number of tries within podTimeout
		}
	})
	err := r.createAll(ctx, list)
	if err == nil {
		err = r.awaitAll(ctx, list, knob)
	}
	if err == nil {
		err = pause(ctx, after)
	}
	stop()
	cancel()
	for _, s := range list {
		close(s.events)
	}
	busy.Wait()
	if err != nil {
		return err
	}
	// The answers to the last pings; losses that are none would be worse than a second's wait.
	return pause(outer, lastReply)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// createAll creates the pods at once.
func (r *run) createAll(ctx context.Context, list []*subject) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range list {
		group.Go(func() error {
			made, err := r.create(ctx, s.pod.Name, s.pod.Node)
			if err == nil {
				s.uid = made.uid
			}
			return err
		})
	}
	return group.Wait()
}

// awaitAll waits until every pod is reported (with the knob on: annotated too), let through and pinged in both directions.
func (r *run) awaitAll(ctx context.Context, list []*subject, knob Knob) error {
	uids := make([]string, 0, len(list))
	for _, s := range list {
		uids = append(uids, s.uid)
	}
	missing, err := r.recorder.wait(ctx, uids, func(p record) bool {
		return !p.started.IsZero() && !p.status.IsZero() && !p.programmed.IsZero() && (knob == Off || !p.annotated.IsZero())
	})
	if err != nil {
		return fmt.Errorf("start pods: %w; %s", err, r.describe(missing))
	}
	for _, s := range list {
		if err := s.answered(ctx); err != nil {
			return fmt.Errorf("ping pod %s of node %s: %w; %s", s.pod.Name, s.pod.Node, err, r.describe([]string{s.uid}))
		}
	}
	return nil
}

// remove deletes the pods, waits until nothing of them is left, and notes when their addresses came free.
func (r *run) remove(ctx context.Context, list []*subject) error {
	var uids []string
	var errs []error
	for _, s := range list {
		if s.uid == "" {
			continue // it was never created
		}
		uids = append(uids, s.uid)
		errs = append(errs, r.client.Delete(ctx, s.pod.NamespacedName, "", nil))
	}
	missing, err := r.recorder.wait(ctx, uids, func(p record) bool { return !p.gone.IsZero() })
	if err != nil {
		errs = append(errs, fmt.Errorf("remove pods: %w; %s", err, r.describe(missing)))
	}
	for _, s := range list {
		r.cooling[s.pod.Node] = append(r.cooling[s.pod.Node], time.Now())
	}
	return errors.Join(errs...)
}
