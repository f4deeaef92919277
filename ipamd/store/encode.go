package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// encoder writes documents. A save comes twice with every pod and differs from the one before in a single entry, so it keeps
// the text of every entry: with 700 pods a save costs what copying its bytes does, not what encoding them would.
type encoder struct {
	assignments section[pool.Assignment, assignment]
	cooling     section[pool.Cooling, cooling]
	annotations section[pool.Annotation, annotation]
	emptied     section[pool.Emptied, emptied]
	text        []byte
}

func newEncoder() *encoder {
	return &encoder{
		assignments: section[pool.Assignment, assignment]{
			write: assignmentOf,
			same:  func(a, b *pool.Assignment) bool { return *a == *b },
			order: func(a, b *pool.Assignment) int { return a.Addr.Compare(b.Addr) },
		},
		cooling: section[pool.Cooling, cooling]{
			write: coolingOf,
			same:  func(a, b *pool.Cooling) bool { return *a == *b },
			order: func(a, b *pool.Cooling) int { return a.Addr.Compare(b.Addr) },
		},
		annotations: section[pool.Annotation, annotation]{
			write: annotationOf,
			same: func(a, b *pool.Annotation) bool {
				return a.Owner == b.Owner && a.Wish == b.Wish && a.Since.Equal(b.Since) &&
					slices.Equal(a.More, b.More) && slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Stale, b.Stale) && slices.Equal(a.Emptied, b.Emptied)
			},
			order: func(a, b *pool.Annotation) int { return a.Since.Compare(b.Since) },
		},
		emptied: section[pool.Emptied, emptied]{
			write: emptiedOf,
			same: func(a, b *pool.Emptied) bool {
				return a.Pod == b.Pod && a.Since.Equal(b.Since) && slices.Equal(a.Keys, b.Keys)
			},
			order: func(a, b *pool.Emptied) int { return a.Since.Compare(b.Since) },
		},
	}
}

// encode gives the document of a snapshot, one line for each entry. The text is good until the next call.
func (e *encoder) encode(snap pool.Snapshot) ([]byte, error) {
	boot, err := json.Marshal(snap.BootID)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	e.text = fmt.Appendf(e.text[:0], "{\"version\":%d,\n\"bootID\":%s", version, boot)
	for _, part := range []struct {
		name   string
		append func([]byte) ([]byte, error)
	}{
		{"assignments", func(b []byte) ([]byte, error) { return e.assignments.append(b, snap.Assignments) }},
		{"cooling", func(b []byte) ([]byte, error) { return e.cooling.append(b, snap.Cooling) }},
		{"annotations", func(b []byte) ([]byte, error) { return e.annotations.append(b, snap.Annotations) }},
		{"emptied", func(b []byte) ([]byte, error) { return e.emptied.append(b, snap.Emptied) }},
	} {
		e.text = fmt.Appendf(e.text, ",\n%q:", part.name)
		if e.text, err = part.append(e.text); err != nil {
			return nil, fmt.Errorf("encode state: %s: %w", part.name, err)
		}
	}
	e.text = append(e.text, "}\n"...)
	return e.text, nil
}

// section is the entries of one kind as they were encoded last.
type section[In, Out any] struct {
	write func(In) Out
	same  func(a, b *In) bool
	order func(a, b *In) int // of a snapshot; one in another order is encoded right, only more slowly

	entries []In
	lines   [][]byte
	spare   [][]byte // room for the next lines
}

// append writes entries, reusing the lines of those that were there the last time.
func (s *section[In, Out]) append(text []byte, entries []In) ([]byte, error) {
	lines := slices.Grow(s.spare[:0], len(entries))[:len(entries)]
	clear(lines)
	old := 0
	text = append(text, '[')
	for i := range entries {
		for old < len(s.entries) && s.order(&s.entries[old], &entries[i]) < 0 {
			old++
		}
		for at := old; at < len(s.entries) && s.order(&s.entries[at], &entries[i]) == 0; at++ {
			if s.same(&s.entries[at], &entries[i]) {
				lines[i] = s.lines[at]
				break
			}
		}
		if lines[i] == nil {
			line, err := json.Marshal(s.write(entries[i]))
			if err != nil {
				return nil, err
			}
			lines[i] = line
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, '\n'), lines[i]...)
	}
	s.entries, s.lines, s.spare = entries, lines, s.lines
	return append(text, ']'), nil
}

func assignmentOf(a pool.Assignment) assignment {
	return assignment{
		Address: a.Addr, ENI: a.ENI, Pod: pod(a.Pod), Network: a.Key.Network, Sandbox: a.Key.Sandbox,
		IfName: a.Key.IfName, NetNS: a.NetNS, Done: a.Done, Since: a.Since.UTC(), Seq: a.Seq,
	}
}

func coolingOf(c pool.Cooling) cooling {
	return cooling{Address: c.Addr, Pod: pod(c.Pod), Until: c.Until.UTC()}
}

func annotationOf(a pool.Annotation) annotation {
	return annotation{
		Pod: pod(a.Pod), Sandbox: a.Sandbox, Address: a.Addr, More: a.More, Keys: a.Keys, Stale: a.Stale, Emptied: a.Emptied, Wish: a.Wish, Since: a.Since.UTC(),
	}
}

func emptiedOf(e pool.Emptied) emptied {
	return emptied{Pod: pod(e.Pod), Keys: e.Keys, Since: e.Since.UTC()}
}
