package figures

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	fast = Series{"fast", "ms"}
	slow = Series{"slow", "ms"}
)

// drifting is a machine that becomes ten times slower while it is measured: slow is always twice fast.
func drifting(n int) Measured {
	r := &Recorder{}
	for block := range n {
		drift := 1 + 9*float64(block)/float64(n)
		r.Add(fast, block, drift, drift*1.01, drift*0.99)
		r.Add(slow, block, 2*drift, 2*drift*1.01, 2*drift*0.99)
	}
	return r.measured
}

func TestRatioIsOfNeighbouringBlocks(t *testing.T) {
	series := drifting(20).series()
	got, err := ratio(series[slow.Name], series[fast.Name])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Estimate{Center: 2, Lo: 2, Hi: 2, N: 20}, got); diff != "" {
		t.Errorf("ratio (-want +got):\n%s", diff)
	}
	if pooled := estimate(series[slow.Name].all()); pooled.Hi < 1.2*pooled.Lo {
		t.Errorf("the drift does not show in the pooled values: %+v", pooled)
	}
}

func TestRatioNeedsBothInEveryBlock(t *testing.T) {
	r := &Recorder{}
	r.Add(slow, 1, 2)
	r.Add(fast, 2, 1)
	series := r.measured.series()
	if got, err := ratio(series[slow.Name], series[fast.Name]); err == nil {
		t.Errorf("ratio of blocks that were not measured together = %+v", got)
	}
	r.Add(fast, 1, 1)
	series = r.measured.series()
	if got, err := ratio(series[slow.Name], series[fast.Name]); err == nil {
		t.Errorf("ratio with a block missing = %+v", got)
	}
}

func TestEstimateLeavesTheOrderAlone(t *testing.T) {
	values := []float64{3, 1, 2, 6, 5, 4, 7}
	got := estimate(values)
	if got.Center != 4 || !got.Sure() || got.Lo > 2 || got.Hi < 6 {
		t.Errorf("estimate = %+v", got)
	}
	if diff := cmp.Diff([]float64{3, 1, 2, 6, 5, 4, 7}, values); diff != "" {
		t.Errorf("values were sorted (-want +got):\n%s", diff)
	}
	if few := estimate(values[:5]); few.Sure() {
		t.Errorf("five values have an interval of 95 %%: %+v", few)
	}
	if one := estimate(values[:1]); one.Sure() {
		t.Errorf("one value has an interval: %+v", one)
	}
}

func TestVerdicts(t *testing.T) {
	between := func(lo, center, hi float64) Estimate { return Estimate{Center: center, Lo: lo, Hi: hi, N: 9} }
	unsure := estimate([]float64{1, 1})
	for _, test := range []struct {
		name   string
		goal   Goal
		figure Estimate
		want   string
	}{
		{"no goal", Goal{}, between(8, 9, 10), ""},
		{"below", atMost(2), between(1, 1.5, 2), "yes"},
		{"at the limit", atMost(2), between(2, 2, 2), "yes"},
		{"the interval reaches beyond", atMost(2), between(1, 1.9, 2.1), "by the median"},
		{"above", atMost(2), between(1.9, 2.2, 2.5), "MISSED by 10.0 %"},
		{"one value", atMost(2), estimate([]float64{1}), "yes"},
		{"upper bound below", Goal{Upper, 1.1}, between(0.9, 1, 1.1), "yes"},
		{"upper bound above, the median below", Goal{Upper, 1.1}, between(0.9, 1, 1.21), "MISSED by 10.0 %"},
		{"upper bound of too few", Goal{Upper, 1.1}, unsure, "MISSED: too few blocks"},
		{"equal", Goal{Equal, 1}, between(0.9, 0.95, 1), "yes"},
		{"more", Goal{Equal, 1}, between(1.02, 1.05, 1.1), "MISSED by 2.0 %"},
		{"less", Goal{Equal, 1}, between(0.8, 0.9, 0.95), "MISSED by 5.0 %"},
		{"equal, as anything would be", Goal{Equal, 1}, between(0.85, 1, 1.1), "MISSED: too wide an interval"},
		{"equal by too few", Goal{Equal, 1}, unsure, "MISSED: too few blocks"},
	} {
		l := Line{Row: Row{Goal: test.goal}, Measured: true, Figure: test.figure}
		if got := l.Verdict(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if l.Missed() != strings.HasPrefix(test.want, "MISSED") {
			t.Errorf("%s: missed %t", test.name, l.Missed())
		}
	}
}

// everything is a run of all groups in which every series is there.
func everything(t Table) map[string]Measured {
	all := map[string]Measured{}
	for _, g := range t.Groups {
		r := &Recorder{measured: Measured{Environment: Environment{
			Kernel: "6.1", CPU: "cpu", Cores: 2, Go: "go1", Date: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		}}}
		seen := map[Series]bool{{}: true}
		for _, row := range t.Rows {
			for _, s := range []Series{row.Of, row.Beside} {
				if row.Group != g.Name || seen[s] {
					continue
				}
				seen[s] = true
				for block := range 9 {
					r.Add(s, block, 3)
				}
			}
		}
		all[g.Name] = r.measured
	}
	return all
}

func TestTableTakesEveryGroupAndFitsItsCheck(t *testing.T) {
	bench := Bench()
	begin, end := bench.begin(), bench.end()
	table, err := bench.Markdown(everything(bench))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"on Linux 6.1, 2 cores (cpu), go1, 2026-11-30", "| Plugin binary | at most 4 MB | 3.00 MB | 3.00 to 3.00 | yes |  |",
		"| VERSION, to an empty Go program's exec | at most 1.8 x | 1.00 x | 1.00 to 1.00 | yes | 3.00, 3.00 ms |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("table lacks %q:\n%s", want, table)
		}
	}
	readme, err := bench.Splice("# head\n"+begin+"stale text\n"+end+"\ntail\n", table)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(readme, "# head\n") || !strings.HasSuffix(readme, end+"\ntail\n") || strings.Contains(readme, "stale text") {
		t.Errorf("README:\n%s", readme)
	}
	if err := bench.Check(readme); err != nil {
		t.Errorf("check of a new table: %v", err)
	}
	for name, spoilt := range map[string]string{
		"goal":   strings.Replace(readme, "at most 4 MB", "at most 5 MB", 1),
		"row":    strings.Replace(readme, "| Plugin binary | at most 4 MB | 3.00 MB | 3.00 to 3.00 | yes |  |\n", "", 1),
		"figure": strings.Replace(readme, "| 3.00 MB |", "| |", 1),
		"begin":  strings.Replace(readme, begin, "", 1),
		"end":    strings.Replace(readme, end, "", 1),
	} {
		if spoilt == readme {
			t.Fatalf("%s: nothing was spoilt", name)
		}
		if err := bench.Check(spoilt); err == nil {
			t.Errorf("a README without the right %s passes", name)
		}
	}
}

// A goal that is missed is shown in the README, never hidden.
func TestMissedGoalsAreShown(t *testing.T) {
	all := everything(Bench())
	for i, s := range all["plugin"].Samples {
		if s.Series == PluginSize.Name {
			all["plugin"].Samples[i].Value = 5
		}
	}
	table, err := Bench().Markdown(all)
	if err != nil {
		t.Fatal(err)
	}
	if want := "| 5.00 MB | 5.00 to 5.00 | **MISSED by 25.0 %** |"; !strings.Contains(table, want) {
		t.Errorf("table lacks %q:\n%s", want, table)
	}
}

func TestGroupsThatWereNotRunAreNamed(t *testing.T) {
	all := everything(Bench())
	delete(all, "crowd")
	lines, err := Bench().Lines(all)
	if err != nil {
		t.Fatal(err)
	}
	text := Text(lines, "crowd", "kernel")
	if !strings.Contains(text, "not measured") || !strings.Contains(text, "Kernel part") || strings.Contains(text, "VERSION") {
		t.Errorf("text:\n%s", text)
	}
	delete(all, "kernel")
	all["kernel"] = Measured{}
	if _, err := Bench().Lines(all); !errors.Is(err, errNone) {
		t.Errorf("a group that lacks its series: error %v, want %v", err, errNone)
	}
}

func TestSamplesSurviveTheirFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bench")
	want := everything(Bench())["add"]
	if err := want.write(file(dir, "add")); err != nil {
		t.Fatal(err)
	}
	got, err := Bench().Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]Measured{"add": want}, got); diff != "" {
		t.Errorf("read (-written +read):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := os.WriteFile(file(dir, "add"), []byte("{\"series\":"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Bench().Read(dir); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a file that was cut: error %v", err)
	}
}

func TestTimesAreInTheSeriesUnit(t *testing.T) {
	r := &Recorder{}
	for _, unit := range []string{"us", "ms", "s"} {
		r.Times(Series{"took", unit}, 0, 1500*time.Millisecond)
	}
	if got := r.measured.series()["took"].all(); !cmp.Equal([]float64{1.5e6, 1500, 1.5}, got) {
		t.Errorf("values %v", got)
	}
}

// Names are how rows find their samples, and how people find a row.
func TestNamesAreUnique(t *testing.T) {
	groups := map[string]bool{}
	for _, table := range Tables() {
		names := map[string]bool{}
		for _, g := range table.Groups {
			if groups[g.Name] {
				t.Errorf("two groups are called %q", g.Name)
			}
			groups[g.Name] = true
			names[g.Name] = true
		}
		rows := map[string]bool{}
		for _, row := range table.Rows {
			if rows[row.Name] {
				t.Errorf("two rows are called %q", row.Name)
			}
			rows[row.Name] = true
			if !names[row.Group] {
				t.Errorf("row %q is of no group of its table", row.Name)
			}
			if row.Beside != (Series{}) && row.Beside.Unit != row.Of.Unit {
				t.Errorf("row %q compares %s with %s", row.Name, row.Of.Unit, row.Beside.Unit)
			}
		}
	}
}

// What is compared with the incumbent names both, and says which calls there were.
func TestComparisonTakesEveryGroupAndFitsItsCheck(t *testing.T) {
	compare := Compare()
	all := everything(compare)
	r := &Recorder{measured: all["calls"]}
	for _, call := range []Series{CallsOf(ThereAndBack, "CreateTags"), CallsOf(ThereAndBack, "DetachNetworkInterface")} {
		r.Add(By(Incumbent, call), 0, 7)
	}
	all["calls"] = r.measured
	text, err := compare.Markdown(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`make compare`", "CreateTags 7, DetachNetworkInterface 7", "| ADD, p50 | at most 0.333 x | 1.00 x |"} {
		if !strings.Contains(text, want) {
			t.Errorf("table lacks %q:\n%s", want, text)
		}
	}
	readme, err := compare.Splice(compare.begin()+compare.end(), text)
	if err != nil {
		t.Fatal(err)
	}
	if err := compare.Check(readme); err != nil {
		t.Errorf("check of a new table: %v", err)
	}
}

// The README's tables have the form that the code gives it; what was measured, and when, is not checked.
func TestReadmeFigures(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range Tables() {
		if err := table.Check(string(text)); err != nil {
			t.Error(err)
		}
	}
}
