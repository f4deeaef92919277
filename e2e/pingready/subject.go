package pingready

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
)

// subject is a pod that is measured. One goroutine (follow) owns it until pinging is closed, whoever waited for that then.
type subject struct {
	pod     cluster.Pod
	uid     string
	peer    *responder // on another node
	events  chan event.Event
	prober  *ping.Prober
	in, out *ping.Train
	err     error         // why it could not be pinged
	pinging chan struct{} // closed when the trains run, or when they never will
}

// eventQueue is how many of a pod's events may wait for its goroutine: each try of an ADD makes one.
const eventQueue = 64

func newSubject(peer *responder) *subject {
	return &subject{peer: peer, events: make(chan event.Event, eventQueue), pinging: make(chan struct{})}
}

// follow opens the pod's socket as soon as its namespace is there, so that the first ping does not wait for that, and
// starts both trains when the container starts. It ends when the events do.
func (s *subject) follow(ctx context.Context, target Target) {
	for e := range s.events {
		switch {
		case s.in != nil || s.err != nil: // one start is all that is measured
		case e.Kind == event.AddExec:
			s.err = s.open(target)
		case e.Kind == event.ContainerStarted:
			s.err = s.start(ctx, e.Address)
		default:
			continue
		}
		if s.in != nil || s.err != nil {
			s.done()
		}
	}
}

func (s *subject) done() {
	select {
	case <-s.pinging:
	default:
		close(s.pinging)
	}
}

// open opens the pod's socket; that of an earlier sandbox, whose ADD has failed, is closed.
func (s *subject) open(target Target) error {
	if s.prober != nil {
		if err := s.prober.Close(); err != nil {
			return err
		}
	}
	conn, err := target.Ping(s.pod)
	if err != nil {
		return err
	}
	s.prober = ping.NewProber(conn)
	return nil
}

func (s *subject) start(ctx context.Context, address string) error {
	own, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("read address of pod %s: %w", s.pod, err)
	}
	peer, err := netip.ParseAddr(s.peer.record.address)
	if err != nil {
		return fmt.Errorf("read address of responder %s: %w", s.peer.pod, err)
	}
	s.out = s.prober.Start(ctx, peer, interval)
	s.in = s.peer.prober.Start(ctx, own, interval)
	return nil
}

// answered waits for the first reply in each direction.
func (s *subject) answered(ctx context.Context) error {
	select {
	case <-s.pinging:
	case <-ctx.Done():
		return fmt.Errorf("its container's start was not heard of: %w", context.Cause(ctx))
	}
	if s.err != nil {
		return s.err
	}
	for direction, train := range map[string]*ping.Train{"in": s.in, "out": s.out} {
		select {
		case <-train.Answered():
		case <-ctx.Done():
			return fmt.Errorf("no reply %s: %w", direction, errors.Join(context.Cause(ctx), train.Result().SendErr))
		}
	}
	return nil
}

// close lets go of the pod's socket and of its trains.
func (s *subject) close() error {
	for _, train := range []*ping.Train{s.in, s.out} {
		if train != nil {
			train.Forget()
		}
	}
	if s.prober == nil {
		return nil
	}
	return s.prober.Close()
}

// result puts together what is known of the pod.
func (s *subject) result(p record) Pod {
	since := func(from, at time.Time) *float64 {
		if at.IsZero() || from.IsZero() {
			return nil
		}
		return ms(at.Sub(from))
	}
	in, out := s.in.Result(), s.out.Result()
	return Pod{
		Name: s.pod.Name, Node: s.pod.Node,
		AddMS:             since(p.addExec, p.addDone),
		AnnotationVisible: since(p.addExec, p.annotated),
		PolicyProgrammed:  since(p.addExec, p.programmed),
		ContainerStart:    since(p.addExec, p.started),
		StatusVisible:     since(p.addExec, p.status),
		FailedPingsIn:     in.Failed,
		FailedPingsOut:    out.Failed,
		SentPingsIn:       in.Sent,
		SentPingsOut:      out.Sent,
		PingReadyIn:       since(p.started, in.FirstReply),
		PingReadyOut:      since(p.started, out.FirstReply),
	}
}
