package event_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

func TestFollowReadsWhatEmitWrote(t *testing.T) {
	var wire bytes.Buffer
	log := event.NewLog(&wire)
	want := []event.Event{
		{At: time.Unix(1, 5).UTC(), Kind: event.AddExec, Node: "n", Namespace: "ns", Pod: "p", UID: "u", Sandbox: "s"},
		{At: time.Unix(2, 7).UTC(), Kind: event.AddFailed, Node: "n", Detail: "two\nlines"},
	}
	for _, e := range want {
		log.Emit(e)
	}
	var got []event.Event
	if err := event.Follow(&wire, func(e event.Event) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events changed on the wire (-emitted +followed):\n%s", diff)
	}
}

func TestFollowQuotesALineThatIsNoEvent(t *testing.T) {
	err := event.Follow(strings.NewReader("panic: oops\n"), func(event.Event) { t.Error("got an event") })
	if err == nil || !strings.Contains(err.Error(), "panic: oops") {
		t.Errorf("error does not quote the line: %v", err)
	}
}

func TestEmitStampsAndKeepsTheFirstFailure(t *testing.T) {
	broken := errors.New("reader went away")
	log := event.NewLog(failing{broken})
	log.Emit(event.Event{Kind: event.Ready})
	log.Emit(event.Event{Kind: event.Ready})
	if !errors.Is(log.Err(), broken) {
		t.Errorf("Err() = %v, want %v", log.Err(), broken)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
