package pingready

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func number(v float64) *float64 { return &v }

// synthetic is a report with pods whose figures are known: off loses 10 i pings and is ready after 100 i ms, on loses none.
func synthetic(pods int) *Report {
	r := &Report{Environment: Environment{Cluster: "netns", Kernel: "k", Go: "go", Cores: 2, Seed: 7, Flags: map[string]string{"-pods": "3"}}}
	for _, knob := range []Knob{Off, On} {
		round := Round{Knob: knob}
		for i := range pods {
			pod := Pod{
				Name: "p", Node: "node-a", AddMS: number(20), ContainerStart: number(21), StatusVisible: number(700),
				PolicyProgrammed: number(25), AnnotationVisible: number(15), PingReadyIn: number(1), PingReadyOut: number(2),
			}
			if knob == Off {
				pod.AnnotationVisible, pod.PolicyProgrammed = nil, number(701)
				pod.FailedPingsIn, pod.FailedPingsOut = 4*(i+1), 6*(i+1)
				pod.PingReadyIn, pod.PingReadyOut = number(100*float64(i+1)), number(90*float64(i+1))
			}
			round.Pods = append(round.Pods, pod)
		}
		r.Rounds = append(r.Rounds, round)
	}
	r.Summarize()
	return r
}

func TestSummaryTakesBothDirections(t *testing.T) {
	r := synthetic(10)
	want := Summary{
		Pods:        10,
		FailedPings: Quantiles{P50: number(50), P90: number(90), Max: number(100)},
		PingReadyMS: Quantiles{P50: number(500), P90: number(900), Max: number(1000)},
	}
	if diff := cmp.Diff(want, r.Off); diff != "" {
		t.Errorf("off (-want +got):\n%s", diff)
	}
	if *r.On.FailedPings.Max != 0 || *r.On.PingReadyMS.Max != 2 {
		t.Errorf("on = %+v", r.On)
	}
}

func TestP99NeedsThreeHundredPods(t *testing.T) {
	sample := make([]float64, enoughForP99)
	for i := range sample {
		sample[i] = float64(i + 1)
	}
	if q := quantiles(sample[:enoughForP99-1]); q.P99 != nil {
		t.Errorf("p99 of 299 values = %v, want none", *q.P99)
	}
	if q := quantiles(sample); q.P99 == nil || *q.P99 != 297 {
		t.Errorf("p99 of 300 values = %v, want 297", q.P99)
	}
	if q := quantiles(nil); q != (Quantiles{}) {
		t.Errorf("quantiles of nothing = %+v", q)
	}
}

func TestTableLeavesOutWhatIsNotThere(t *testing.T) {
	text := synthetic(3).Table()
	for _, want := range []string{"pods", "failed pings in", "first reply out", "status.podIP visible", "off p50"} {
		if !strings.Contains(text, want) {
			t.Errorf("table lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "p99") {
		t.Errorf("table has a p99 of three pods:\n%s", text)
	}
	if text := synthetic(300).Table(); !strings.Contains(text, "p99") {
		t.Errorf("table lacks the p99 of 300 pods:\n%s", text)
	}
}

// The JSON's names are read by tools: they are spelt out here, and nowhere else.
func TestJSONHasTheAgreedNames(t *testing.T) {
	text, err := json.Marshal(synthetic(1))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	quantile := map[string]any{"p50": true, "p90": true, "p99": true, "max": true}
	side := map[string]any{"pods": true, "failed_pings": quantile, "ping_ready_ms": quantile}
	want := map[string]any{
		"environment": map[string]any{"cluster": true, "kernel": true, "go": true, "cores": true, "seed": true, "flags": map[string]any{"-pods": true}},
		"rounds": []any{map[string]any{"knob": true, "all_added_ms": true, "all_ready_ms": true, "pods": []any{map[string]any{
			"name": true, "node": true, "add_ms": true, "annotation_visible_ms": true, "policy_programmed_ms": true,
			"container_start_ms": true, "status_visible_ms": true, "failed_pings_in": true, "failed_pings_out": true,
			"sent_pings_in": true, "sent_pings_out": true, "ping_ready_in_ms": true, "ping_ready_out_ms": true,
		}}}},
		"off": side, "on": side,
	}
	if diff := cmp.Diff(want, names(got)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// names keeps the names of a JSON value, the first element of each list, and true for everything else.
func names(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = names(inner)
		}
		return v
	case []any:
		return []any{names(v[0])}
	default:
		return true
	}
}

func TestWriteMakesThreeFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := synthetic(30).Write(dir); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "report.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
	}
	for _, name := range []string{"report.json", "report.md"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// A report without any pod of one side must still be written: a run may have been cut short.
func TestWriteTakesAnEmptySide(t *testing.T) {
	r := synthetic(3)
	r.Rounds = r.Rounds[:1]
	r.Summarize()
	if err := r.Write(t.TempDir()); err != nil {
		t.Fatal(err)
	}
}
