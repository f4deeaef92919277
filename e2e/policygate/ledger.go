package policygate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// Ledger sets what readers took for pods' addresses beside who really held them.
//
// The truth is the sandboxes': one holds its address from the result of its ADD until its container stops or its DEL is
// exec'd, whichever comes first. A view is wrong for as long as it gives an address to one pod while another pod's sandbox
// holds it. A view that only has not heard yet is late, not wrong: where the API server had taken the change that ends the
// view before the other sandbox held the address, the rest is delivery.
//
// It is safe to feed it events in the order in which they come from several programs: everything is judged at the end, by
// the events' own times. The zero Ledger is ready; it is not safe for concurrent use.
type Ledger struct {
	holds []*span
	views []*span
	open  map[string]*span
}

// span is an address that is held, or taken for held, for a time.
type span struct {
	reader, source, uid, pod string
	raw                      string
	from, to                 time.Time // to: zero is still
	ended                    string    // resourceVersion of the object that ended a view
}

// Moment is an overlap of a view with another pod's sandbox.
type Moment struct {
	Reader, Source  string
	Address         string
	Claimed, Holder string // pods, with their UIDs
	From            time.Time
	For             time.Duration
	Late            bool // the API was right before it began
}

// ByStatus tells whether the view rests on kubelet's word and not on a key.
func (m Moment) ByStatus() bool { return strings.HasPrefix(m.Source, StatusSource) }

// Take takes an event.
func (l *Ledger) Take(e event.Event) {
	if l.open == nil {
		l.open = map[string]*span{}
	}
	switch e.Kind {
	case event.AddDone:
		l.holds = append(l.holds, l.begin("sandbox "+e.Sandbox, &span{uid: e.UID, pod: e.Namespace + "/" + e.Pod, raw: e.Address, from: e.At}))
	case event.ContainerStopped, event.DelExec:
		l.end("sandbox "+e.Sandbox, e)
	case event.View:
		at := e.Reader + " " + e.UID
		l.end(at, e)
		if e.Address != "" {
			l.views = append(l.views, l.begin(at, &span{
				reader: e.Reader, source: e.Source, uid: e.UID, pod: e.Namespace + "/" + e.Pod, raw: e.Address, from: e.At,
			}))
		}
	}
}

func (l *Ledger) begin(at string, s *span) *span {
	l.open[at] = s
	return s
}

func (l *Ledger) end(at string, e event.Event) {
	if s := l.open[at]; s != nil {
		s.to, s.ended = e.At, e.Version
		delete(l.open, at)
	}
}

// Holder gives the address that a pod's sandbox holds by what has been heard so far, "" if none.
func (l *Ledger) Holder(uid string) (address string) {
	for at, s := range l.open {
		if s.uid == uid && strings.HasPrefix(at, "sandbox ") {
			return s.raw
		}
	}
	return ""
}

// Unreadable are values that a reader cannot use as an address as they stand.
func (l *Ledger) Unreadable() (values []string) {
	for _, v := range l.views {
		if _, err := netip.ParseAddr(v.raw); err != nil && v.reader == Strict {
			values = append(values, v.pod+": "+v.raw)
		}
	}
	return values
}

// Moments are all overlaps up to a time, in their order. Committed gives the earliest time at which the API server can have
// made a version of a pod; where it does not know, a view counts as wrong until the reader heard of its end.
func (l *Ledger) Moments(until time.Time, committed func(uid, version string) (time.Time, bool)) (moments []Moment) {
	held := map[string][]*span{}
	for _, h := range l.holds {
		held[h.raw] = append(held[h.raw], h)
	}
	for _, v := range l.views {
		for address := range strings.SplitSeq(v.raw, ",") {
			for _, h := range held[address] {
				if h.uid == v.uid {
					continue
				}
				from, to := latest(v.from, h.from), earliest(v.to, h.to, until)
				if !to.After(from) {
					continue
				}
				m := Moment{
					Reader: v.reader, Source: v.source, Address: address, From: from, For: to.Sub(from),
					Claimed: v.pod + " " + v.uid, Holder: h.pod + " " + h.uid,
				}
				if at, known := committed(v.uid, v.ended); known && !v.to.IsZero() {
					m.Late = !at.After(from)
					if at := earliest(at, to); !m.Late {
						m.For = at.Sub(from)
					}
				}
				moments = append(moments, m)
			}
		}
	}
	slices.SortFunc(moments, func(a, b Moment) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Reader, b.Reader)) })
	return moments
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest of times, of which a zero one is never.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Delays is how long after a sandbox got its address each reader took it for the pod's, where it ever did while the sandbox
// held it: lateness, which is no wrongness.
func (l *Ledger) Delays(reader string) (delays []time.Duration) {
	claimed := map[[2]string][]*span{}
	for _, v := range l.views {
		if v.reader == reader {
			claimed[[2]string{v.uid, v.raw}] = append(claimed[[2]string{v.uid, v.raw}], v)
		}
	}
	for _, h := range l.holds {
		for _, v := range claimed[[2]string{h.uid, h.raw}] {
			if h.to.IsZero() || v.from.Before(h.to) {
				delays = append(delays, v.from.Sub(h.from))
				break
			}
		}
	}
	slices.Sort(delays)
	return delays
}
