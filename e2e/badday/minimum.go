package badday

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// History is what happened on a day, as far as it obliges daemons to ask the API server something.
type History struct {
	Starts    int                  // of daemons
	Settings  map[string][]Setting // by node, in the order of time
	Sandboxes []Sandbox
	Gone      map[string]time.Time // when a pod's object was no longer there, by UID
	Quiet     []time.Time          // when every pod's keys were found to be right; ascending
	Away      map[string][]Span    // by node: the daemon was down, or could not reach the server
	Refused   []Span               // the server refused the daemons' writes
}

// Setting is what a node's daemon was told to write from a time on; no keys: nothing.
type Setting struct {
	From time.Time
	Keys []string
}

// Sandbox is one sandbox of a pod: from the result of its ADD until its DEL; To is zero while there is none.
type Sandbox struct {
	UID, Node string
	From, To  time.Time
}

// Span is a time.
type Span struct{ From, To time.Time }

func (s Span) holds(t time.Time) bool { return !t.Before(s.From) && t.Before(s.To) }

// Minimum are the fewest requests.
type Minimum struct {
	Lists    int // a daemon that starts cannot know the node's pods without asking, by a list or by a watch
	Sets     int // a sandbox's address is written once, and once more for keys that are added
	Clears   int // a sandbox's end sets "", where a key stands and the pod's object is still there
	Removals int // a running pod loses keys that are no longer wanted, in one request, after the new ones are written
	Refused  int // a refusal must be heard once for each of these
}

// Total is their sum.
func (m Minimum) Total() int { return m.Lists + m.Sets + m.Clears + m.Removals + m.Refused }

// Minimum works out the fewest requests with which the daemons can do what contract and history oblige them to. It counts
// only what could not be left out: what settings asked for and took back before a quiet moment is not counted, nor what a
// pod that came and went while the API was away would have needed. Reads are not counted: a daemon can know from its watch
// what a read would tell it.
func (h History) Minimum() Minimum {
	m := Minimum{Lists: h.Starts}
	pods := map[string][]Sandbox{}
	for _, s := range h.Sandboxes {
		pods[s.UID] = append(pods[s.UID], s)
	}
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		boxes := pods[uid]
		slices.SortFunc(boxes, func(a, b Sandbox) int { return a.From.Compare(b.From) })
		h.pod(&m, boxes)
	}
	return m
}

// pod adds what one pod obliges to.
func (h History) pod(m *Minimum, boxes []Sandbox) {
	have := map[string]bool{} // keys that stand
	for i, box := range boxes {
		fresh := true // the sandbox's own address is not written yet
		looks := []time.Time{}
		if !h.away(box.Node, box.From) {
			looks = append(looks, box.From)
		}
		for _, quiet := range h.Quiet {
			if quiet.After(box.From) && (box.To.IsZero() || quiet.Before(box.To)) {
				looks = append(looks, quiet)
			}
		}
		for _, at := range looks {
			if h.gone(box.UID, at) {
				break
			}
			want := h.keys(box.Node, at)
			if adds(want, have) || fresh && len(want) > 0 {
				m.Sets++
				m.Refused += h.refusals(at)
				fresh = false
			}
			if len(have) > 0 && drops(want, have) {
				m.Removals++
				m.Refused += h.refusals(at)
			}
			have = set(want)
		}
		overlaps := i+1 < len(boxes) && !box.To.IsZero() && boxes[i+1].From.Before(box.To) // the successor's value stands already
		if box.To.IsZero() || overlaps || len(have) == 0 || h.gone(box.UID, h.back(box.Node, box.To)) {
			continue
		}
		m.Clears++
		m.Refused += h.refusals(box.To)
		have = map[string]bool{}
	}
}

func set(keys []string) map[string]bool {
	m := map[string]bool{}
	for _, key := range keys {
		m[key] = true
	}
	return m
}

func adds(want []string, have map[string]bool) bool {
	return slices.ContainsFunc(want, func(key string) bool { return !have[key] })
}

func drops(want []string, have map[string]bool) bool {
	for key := range have {
		if !slices.Contains(want, key) {
			return true
		}
	}
	return false
}

// keys are what the node's daemon was to write.
func (h History) keys(node string, at time.Time) (keys []string) {
	for _, s := range h.Settings[node] {
		if !s.From.After(at) {
			keys = s.Keys
		}
	}
	return keys
}

func (h History) gone(uid string, at time.Time) bool {
	gone, known := h.Gone[uid]
	return known && !gone.After(at)
}

func (h History) away(node string, at time.Time) bool {
	return slices.ContainsFunc(h.Away[node], func(s Span) bool { return s.holds(at) })
}

// back is when the node's daemon can ask again, at a time or after it.
func (h History) back(node string, at time.Time) time.Time {
	spans := slices.SortedFunc(slices.Values(h.Away[node]), func(a, b Span) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	for _, s := range spans {
		if s.holds(at) {
			at = s.To
		}
	}
	return at
}

func (h History) refusals(at time.Time) int {
	if slices.ContainsFunc(h.Refused, func(s Span) bool { return s.holds(at) }) {
		return 1
	}
	return 0
}
