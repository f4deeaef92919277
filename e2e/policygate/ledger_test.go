package policygate

import (
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// at is a moment of a made-up day.
func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func told(ms int, kind event.Kind, uid, address string) event.Event {
	return event.Event{At: at(ms), Kind: kind, Namespace: "ns", Pod: "pod-" + uid, UID: uid, Sandbox: "box-" + uid, Address: address}
}

func seen(ms int, uid, address, source, version string) event.Event {
	e := told(ms, event.View, uid, address)
	e.Reader, e.Source, e.Version = Strict, source, version
	return e
}

func TestLedgerTellsWrongFromLate(t *testing.T) {
	const x = "10.0.0.1"
	tests := []struct {
		name      string
		events    []event.Event
		committed int // when the API had the change that ends the view; 0: not known
		wrong     int // ms; 0: not at all
		late      int
		byStatus  bool
	}{
		{name: "an address that nobody else has", events: []event.Event{told(0, event.AddDone, "a", x), seen(5, "a", x, AWSPodIPs, "1")}},
		{name: "held by another before the key went", committed: 40, wrong: 10, events: []event.Event{
			seen(5, "a", x, AWSPodIPs, "1"), told(30, event.AddDone, "b", x), seen(50, "a", "", "", "2"),
		}},
		{name: "the key had gone, and the reader heard late", committed: 20, late: 20, events: []event.Event{
			seen(5, "a", x, AWSPodIPs, "1"), told(30, event.AddDone, "b", x), seen(50, "a", "", "", "2"),
		}},
		{name: "nothing known of the API: the reader's own time counts", wrong: 20, events: []event.Event{
			seen(5, "a", x, AWSPodIPs, "1"), told(30, event.AddDone, "b", x), seen(50, "a", "", "", "2"),
		}},
		{name: "a view that never ends", wrong: 70, events: []event.Event{seen(5, "a", x, AWSPodIPs, "1"), told(30, event.AddDone, "b", x)}},
		{name: "kubelet's word is told apart", wrong: 70, byStatus: true, events: []event.Event{
			seen(5, "a", x, "status.podIP", "1"), told(30, event.AddDone, "b", x),
		}},
		{name: "the other sandbox has ended", wrong: 5, events: []event.Event{
			seen(5, "a", x, AWSPodIPs, "1"), told(30, event.AddDone, "b", x), told(35, event.ContainerStopped, "b", ""), told(40, event.DelExec, "b", ""),
		}},
		{name: "events of several programs in any order", wrong: 10, committed: 40, events: []event.Event{
			told(30, event.AddDone, "b", x), seen(5, "a", x, AWSPodIPs, "1"), seen(50, "a", "", "", "2"),
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var l Ledger
			for _, e := range test.events {
				l.Take(e)
			}
			moments := l.Moments(at(100), func(string, string) (time.Time, bool) { return at(test.committed), test.committed != 0 })
			var wrong, late time.Duration
			for _, m := range moments {
				if m.Late {
					late += m.For
				} else {
					wrong += m.For
				}
				if m.ByStatus() != test.byStatus {
					t.Errorf("moment %+v by status: %t, want %t", m, m.ByStatus(), test.byStatus)
				}
			}
			if wrong != at(test.wrong).Sub(at(0)) || late != at(test.late).Sub(at(0)) {
				t.Errorf("wrong for %s, late for %s; want %d and %d ms: %+v", wrong, late, test.wrong, test.late, moments)
			}
		})
	}
}

func TestLedgerKnowsHoldersAndDelays(t *testing.T) {
	var l Ledger
	l.Take(told(10, event.AddDone, "a", "10.0.0.1"))
	l.Take(seen(17, "a", "10.0.0.1", AWSPodIPs, "1"))
	if got := l.Holder("a"); got != "10.0.0.1" {
		t.Errorf("holder %q", got)
	}
	l.Take(seen(18, "c", "10.0.0.1/32", AWSPodIPs, "3"))
	l.Take(told(20, event.ContainerStopped, "a", ""))
	if got := l.Holder("a"); got != "" {
		t.Errorf("after its stop: holder %q", got)
	}
	if got := l.Delays(Strict); len(got) != 1 || got[0] != 7*time.Millisecond {
		t.Errorf("delays %v, want 7 ms", got)
	}
	if got := l.Unreadable(); len(got) != 1 {
		t.Errorf("unreadable %v, want the CIDR", got)
	}
}
