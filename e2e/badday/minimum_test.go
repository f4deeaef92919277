package badday

import (
	"testing"
	"time"
)

func at(s int) time.Time { return time.Unix(1000+int64(s), 0) }

func span(from, to int) Span { return Span{at(from), at(to)} }

// box is a sandbox on the node "n"; to 0: it runs on.
func box(uid string, from, to int) Sandbox {
	s := Sandbox{UID: uid, Node: "n", From: at(from)}
	if to != 0 {
		s.To = at(to)
	}
	return s
}

func TestMinimum(t *testing.T) {
	on := []Setting{{at(0), []string{"k"}}}
	turned := func(settings ...Setting) map[string][]Setting { return map[string][]Setting{"n": settings} }
	tests := []struct {
		name string
		h    History
		want Minimum
	}{
		{"nothing but starts", History{Starts: 3}, Minimum{Lists: 3}},
		{"a pod that runs", History{Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 0)}, Quiet: []time.Time{at(5), at(6)}}, Minimum{Sets: 1}},
		{"a pod that ends", History{Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 3)}}, Minimum{Sets: 1, Clears: 1}},
		{"a pod that was gone before its DEL", History{
			Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 3)}, Gone: map[string]time.Time{"a": at(2)},
		}, Minimum{Sets: 1}},
		{"the knob off", History{Settings: turned(Setting{at(0), nil}), Sandboxes: []Sandbox{box("a", 1, 3)}, Quiet: []time.Time{at(2)}}, Minimum{}},
		{"off, on, off", History{
			Settings: turned(Setting{at(0), nil}, Setting{at(5), []string{"k"}}, Setting{at(10), nil}), Sandboxes: []Sandbox{box("a", 1, 12)},
			Quiet: []time.Time{at(6), at(11)},
		}, Minimum{Sets: 1, Removals: 1}},
		{"off and on again before anybody looked", History{
			Settings: turned(on[0], Setting{at(5), nil}, Setting{at(6), []string{"k"}}), Sandboxes: []Sandbox{box("a", 1, 0)}, Quiet: []time.Time{at(4), at(9)},
		}, Minimum{Sets: 1}},
		{"a key renamed: the new one first", History{
			Settings: turned(on[0], Setting{at(5), []string{"l"}}), Sandboxes: []Sandbox{box("a", 1, 0)}, Quiet: []time.Time{at(9)},
		}, Minimum{Sets: 2, Removals: 1}},
		{"a key added", History{
			Settings: turned(on[0], Setting{at(5), []string{"k", "l"}}), Sandboxes: []Sandbox{box("a", 1, 0)}, Quiet: []time.Time{at(9)},
		}, Minimum{Sets: 2}},
		{"two sandboxes of one pod", History{Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 3), box("a", 4, 0)}}, Minimum{Sets: 2, Clears: 1}},
		{"the old one's DEL after the new one's ADD", History{Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 6), box("a", 4, 0)}}, Minimum{Sets: 2}},
		{"a pod that came and went in an outage", History{
			Settings: turned(on...), Sandboxes: []Sandbox{box("a", 2, 3)}, Away: map[string][]Span{"n": {span(1, 5)}},
		}, Minimum{}},
		{"a pod that came in an outage and stayed", History{
			Settings: turned(on...), Sandboxes: []Sandbox{box("a", 2, 0)}, Away: map[string][]Span{"n": {span(1, 5)}}, Quiet: []time.Time{at(6)},
		}, Minimum{Sets: 1}},
		{"a DEL in an outage that the pod's object outlived", History{
			Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 3)}, Away: map[string][]Span{"n": {span(2, 5)}}, Gone: map[string]time.Time{"a": at(9)},
		}, Minimum{Sets: 1, Clears: 1}},
		{"one that it did not", History{
			Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 3)}, Away: map[string][]Span{"n": {span(2, 5)}}, Gone: map[string]time.Time{"a": at(4)},
		}, Minimum{Sets: 1}},
		{"a refusal is heard once for each wish", History{
			Settings: turned(on...), Sandboxes: []Sandbox{box("a", 1, 3), box("b", 2, 9)}, Refused: []Span{span(2, 4)},
		}, Minimum{Sets: 2, Clears: 2, Refused: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := test.h.Minimum()
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if sum := got.Lists + got.Sets + got.Clears + got.Removals + got.Refused; got.Total() != sum {
				t.Errorf("total %d, want %d", got.Total(), sum)
			}
		})
	}
}
