package conformance

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// pairs are the cells of the table that a test has seen: "action code".
type pairs struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (p *pairs) add(action, code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[action+" "+code] = true
}

// note takes what a world's journal has, and fails where an action refused with a code that it does not own up to.
func (p *pairs) note(w *world) {
	if w.handler == nil {
		return
	}
	for _, entry := range w.handler.Journal(0) {
		if entry.Code == "" || entry.Fault != "" && entry.Fault != bucketRule {
			continue
		}
		if entry.Action != "" && !slices.Contains(w.handler.Codes(entry.Action), entry.Code) && slices.Contains(w.handler.Actions(), entry.Action) {
			w.t.Errorf("%s refused with %s, which is not among its codes", entry.Action, entry.Code)
		}
	}
}

// bucketRule is what the journal says of a request that a token bucket throttled.
const bucketRule = "token bucket"

// check compares what a row got with what it should have got. With a real account a difference is written down, and no failure.
func (p *pairs) check(w *world, r row, err error) {
	w.t.Helper()
	got := code(err)
	p.add(r.action, r.code)
	switch {
	case got == r.code:
	case real():
		record(w.t, "%s %s: EC2 answers %q where the fake says %s: %v", r.action, r.name, got, r.code, err)
	default:
		w.t.Errorf("%s %s: %q, want %s (%v)", r.action, r.name, got, r.code, err)
	}
}

// record writes a difference to the file that CONFORMANCE_REPORT names.
func record(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	path := os.Getenv("CONFORMANCE_REPORT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Fatal(err)
	}
}

// TestConformance is the table of action and error code. A pair that an action owns up to and that no row brings about is a
// failure, and so is a code that an action does not own up to.
func TestConformance(t *testing.T) {
	seen := &pairs{seen: map[string]bool{}}
	handler := ec2api.New(ec2api.Options{VPC: vpc.New(vpc.Options{})})
	t.Run("requests", func(t *testing.T) {
		for _, action := range handler.Actions() {
			t.Run(action, func(t *testing.T) {
				if real() && slices.Contains(associated(), action) {
					t.Skip("EC2 lets only its own controllers associate")
				}
				parallel(t)
				seen.wire(t, action)
			})
		}
		for _, r := range laws() {
			t.Run(strings.TrimSpace(r.action+" "+r.code+" "+r.name), func(t *testing.T) {
				if r.fakeOnly && real() {
					t.Skip("only a fake can bring this about")
				}
				parallel(t)
				w := newWorld(t, r.with)
				defer seen.note(w)
				seen.check(w, r, r.send(w))
			})
		}
	})
	if f := flag.Lookup("test.run"); strings.Contains(f.Value.String(), "/") || real() {
		return // a part of the table does not make it whole
	}
	table, untested := seen.table(handler)
	t.Logf("\n%s", table)
	if path := os.Getenv("CONFORMANCE_TABLE"); path != "" {
		if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, pair := range untested {
		t.Errorf("no test for %s", pair)
	}
	for _, action := range handler.Actions() {
		for _, code := range handler.Codes(action) {
			delete(seen.seen, action+" "+code)
		}
	}
	for _, pair := range slices.Sorted(maps.Keys(seen.seen)) {
		t.Errorf("%s is tested, but the action does not own up to it", pair)
	}
}

// associated are the actions whose good request needs an association.
func associated() []string {
	return []string{"AssociateTrunkInterface", "DisassociateTrunkInterface", "DescribeTrunkInterfaceAssociations"}
}

// table is the table for people, a line for each code and a column for each action, and the pairs that no test has seen.
func (p *pairs) table(h *ec2api.Handler) (text string, untested []string) {
	actions, codes := h.Actions(), map[string]bool{}
	var out strings.Builder
	for n, action := range actions {
		fmt.Fprintf(&out, "%2d %s\n", n+1, action)
		for _, code := range h.Codes(action) {
			codes[code] = true
		}
	}
	const width = 46
	fmt.Fprintf(&out, "\n%-*s", width, "x refused so in a test, ! no test")
	for n := range actions {
		fmt.Fprintf(&out, "%3d", n+1)
	}
	out.WriteString("\n")
	count := 0
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&out, "%-*s", width, code)
		for _, action := range actions {
			mark := "."
			switch owns := slices.Contains(h.Codes(action), code); {
			case owns && p.seen[action+" "+code]:
				mark = "x"
			case owns:
				mark = "!"
				untested = append(untested, action+" refusing with "+code)
			}
			if mark != "." {
				count++
			}
			fmt.Fprintf(&out, "%3s", mark)
		}
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "%d actions, %d pairs of action and error code, %d without a test\n", len(actions), count, len(untested))
	return out.String(), untested
}

// parallel is for fakes: EC2's quota of VPCs is small.
func parallel(t *testing.T) {
	if !real() {
		t.Parallel()
	}
}
