package figures

import (
	"strings"
	"testing"
)

func TestTheMatrixHasARowForEachBurst(t *testing.T) {
	r := &Recorder{}
	r.Add(Reached(ReachFailed99, "pings", ReachOff, 20), 0, 138)
	r.Add(Reached(ReachFailed99, "pings", ReachOff, 20), 1, 140)
	r.Add(Reached(ReachFailed99, "pings", ReachOff, 20), 2, 150)
	table := Matrix(map[string]Measured{"reach": r.measured})
	if len(table) != 1+len(Delays())*len(Modes()) {
		t.Fatalf("%d rows", len(table))
	}
	row := table[1+len(Modes())] // the first of the second delay
	if row[0] != "20" || row[1] != ReachOff || row[3] != "140" || row[2] != "" {
		t.Errorf("row %q, want off at 20 ms with a median of 140 pings at p99 and nothing else", row)
	}
	if got := Matrix(nil); got != nil {
		t.Errorf("a matrix of nothing: %v", got)
	}
	if text := matrixMarkdown(table); strings.Count(text, "\n|") != len(table)+1 {
		t.Errorf("not a table:\n%s", text)
	}
}
