package api

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs a test in virtual time, with a server whose records of deletions nobody keeps.
func bubble(t *testing.T, test func(t *testing.T, b *book, s *Server)) {
	t.Helper()
	socket := folder(t) + "/cni.sock"
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		s := NewServer(b, b, quiet())
		s.socket = socket
		test(t, b, s)
		if len(s.holds) != 0 {
			t.Errorf("%d holds outlive their connections", len(s.holds))
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func assigned(t *testing.T, l *line, id string) {
	t.Helper()
	if _, err := l.Assign(context.Background(), assignOf(id)); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code uint) {
	t.Helper()
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		t.Errorf("got %v, want code %d", err, code)
	}
}

func wantEvents(t *testing.T, b *book, want ...string) {
	t.Helper()
	if got := b.saw(); !slices.Equal(got, want) {
		t.Errorf("daemon saw %q, want %q", got, want)
	}
}

func TestConnectionWithoutDoneGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		l := connect(s)
		assigned(t, l, "a")
		l.hangUp()
		wantEvents(t, b, "assign a", "abort a")
	})
}

func TestConnectionWithDoneKeeps(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		l := connect(s)
		assigned(t, l, "a")
		must(t, l.Done(context.Background(), doneOf("a")))
		l.hangUp()
		wantEvents(t, b, "assign a", "done a")
	})
}

func TestRefusedDoneGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		b.onDone = func(context.Context) error { return errors.New("disk is full") }
		l := connect(s)
		assigned(t, l, "a")
		wantCode(t, l.Done(context.Background(), doneOf("a")), CodeInternal)
		l.hangUp()
		wantEvents(t, b, "assign a", "abort a")
	})
}

func TestLostRepeatOfALivePodGivesNothingUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		first := connect(s)
		assigned(t, first, "a")
		must(t, first.Done(context.Background(), doneOf("a")))
		first.hangUp()

		repeat := connect(s)
		network, err := repeat.Assign(context.Background(), assignOf("a"))
		if err != nil || !network.Repeat {
			t.Fatalf("repeat: %+v, %v", network, err)
		}
		repeat.hangUp()
		wantEvents(t, b, "assign a", "done a", "assign a")
	})
}

func TestEarlierConnectionEndsAfterALaterOneBegan(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		early, late := connect(s), connect(s)
		assigned(t, early, "a")
		assigned(t, late, "a")
		early.hangUp() // must not take the address from under the later one
		must(t, late.Done(context.Background(), doneOf("a")))
		late.hangUp()
		wantEvents(t, b, "assign a", "assign a", "done a")
	})
}

func TestLastConnectionGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		early, late := connect(s), connect(s)
		assigned(t, early, "a")
		assigned(t, late, "a")
		late.hangUp()
		early.hangUp()
		wantEvents(t, b, "assign a", "assign a", "abort a")
	})
}

func TestDoneOfOneConnectionHoldsForTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		early, late := connect(s), connect(s)
		assigned(t, early, "a")
		assigned(t, late, "a")
		must(t, late.Done(context.Background(), doneOf("a")))
		late.hangUp()
		early.hangUp()
		wantEvents(t, b, "assign a", "assign a", "done a")
	})
}

func TestReleaseEndsWhatDoneBegan(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		old := connect(s)
		assigned(t, old, "a")
		must(t, old.Done(context.Background(), doneOf("a")))
		deleting := connect(s)
		must(t, deleting.Release(context.Background(), ReleaseRequest{Attachment: sandboxOf("a")}))
		deleting.hangUp()
		again := connect(s) // the same sandbox, anew, while the first connection lingers
		assigned(t, again, "a")
		again.hangUp()
		old.hangUp()
		wantEvents(t, b, "assign a", "done a", "release a", "assign a", "abort a")
	})
}

func TestDoneNeedsTheConnectionsOwnAssignment(t *testing.T) {
	bubble(t, func(t *testing.T, _ *book, s *Server) {
		owner, other := connect(s), connect(s)
		assigned(t, owner, "a")
		wantCode(t, other.Done(context.Background(), doneOf("a")), CodeNotAssigned)
		assigned(t, other, "b")
		wantCode(t, other.Done(context.Background(), doneOf("a")), CodeNotAssigned)
		_, err := other.Assign(context.Background(), assignOf("c"))
		wantCode(t, err, CodeMalformed)
		owner.hangUp()
		other.hangUp()
	})
}

func TestAssignEndsWhenThePluginGoes(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		var ended error
		b.onAssign = func(ctx context.Context) error { <-ctx.Done(); ended = ctx.Err(); return ended }
		l := connect(s)
		go func() { _, _ = l.Assign(context.Background(), assignOf("a")) }()
		synctest.Wait()
		l.hangUp()
		if !errors.Is(ended, context.Canceled) {
			t.Errorf("ended by %v", ended)
		}
		wantEvents(t, b, "abort a")
	})
}

func TestAssignDeadline(t *testing.T) {
	cases := map[string]struct {
		ms   int64
		want time.Duration
	}{
		"as asked":         {1500, 1500 * time.Millisecond},
		"none":             {0, maxAssign},
		"negative":         {-1, maxAssign},
		"capped":           {600_000, maxAssign},
		"would overflow":   {1 << 62, maxAssign},
		"just at the cap":  {60_000, maxAssign},
		"one below at cap": {59_999, 59_999 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *book, s *Server) {
				b.onAssign = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				l := connect(s)
				began := time.Now()
				_, err := l.Assign(context.Background(), AssignRequest{Attachment: sandboxOf("a"), DeadlineMS: c.ms})
				wantCode(t, err, CodeTryAgain)
				if took := time.Since(began); took != c.want {
					t.Errorf("took %v, want %v", took, c.want)
				}
				l.hangUp()
			})
		})
	}
}

func TestSilentAndSlowClientsTimeOut(t *testing.T) {
	cases := map[string]struct {
		act  func(t *testing.T, l *line)
		want time.Duration
	}{
		"silent from the start": {func(*testing.T, *line) {}, firstTimeout},
		"half a header": {func(t *testing.T, l *line) {
			_, err := l.conn.Write([]byte{0, 0})
			must(t, err)
		}, firstTimeout},
		"a byte each second": {func(t *testing.T, l *line) {
			_, err := l.conn.Write([]byte{0, 0, 1, 0})
			must(t, err)
			for err == nil {
				_, err = l.conn.Write([]byte{'{'})
				time.Sleep(time.Second) //nolint:forbidigo // virtual
			}
		}, firstTimeout},
		"silent after assign": {func(t *testing.T, l *line) { assigned(t, l, "a") }, idleTimeout},
		"does not read its answer": {func(t *testing.T, l *line) {
			version := Version
			must(t, writeFrame(l.conn, request{Version: &version, Method: methodStatus}))
		}, writeTimeout},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *book, s *Server) {
				l := connect(s)
				began := time.Now()
				acted := make(chan struct{})
				go func() { defer close(acted); c.act(t, l) }()
				<-l.served
				if took := time.Since(began); took != c.want {
					t.Errorf("closed after %v, want %v", took, c.want)
				}
				_ = l.Close()
				<-acted
			})
		})
	}
}

func TestLongAssignIsNotSilence(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		b.onAssign = func(context.Context) error {
			time.Sleep(55 * time.Second) //nolint:forbidigo // virtual
			return nil
		}
		l := connect(s)
		assigned(t, l, "a")
		must(t, l.Done(context.Background(), doneOf("a")))
		l.hangUp()
	})
}

func TestShutdownAnswersAWaitingAssign(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		b.onAssign = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		l := connect(s)
		go func() { synctest.Wait(); l.shutdown() }()
		_, err := l.Assign(context.Background(), assignOf("a"))
		wantCode(t, err, CodeTryAgain)
		_, err = l.Assign(context.Background(), assignOf("a"))
		wantCode(t, err, CodeTryAgain)
		l.hangUp()
	})
}

func TestShutdownLeavesTimeForDone(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		l, idle := connect(s), connect(s)
		assigned(t, l, "a")
		l.shutdown()
		idle.shutdown()
		<-idle.served // has nothing to lose
		must(t, l.Done(context.Background(), doneOf("a")))
		l.hangUp()
		_ = idle.Close()
		wantEvents(t, b, "assign a", "done a")
	})
}

func TestEndOfGraceGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *book, s *Server) {
		l := connect(s)
		assigned(t, l, "a")
		l.shutdown()
		l.endGrace()
		<-l.served
		_ = l.Close()
		wantEvents(t, b, "assign a", "abort a")
	})
}
