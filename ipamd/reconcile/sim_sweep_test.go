package reconcile_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	simSeeds    = 300 // what `make test` runs
	repeatSeeds = 50  // of which so many are run in two processes
)

// remembered gives seeds beyond the first ones that found a fault once, or that see one of the deliberate bugs (package
// mutants) which the first ones do not. They are run with those.
func remembered() []uint64 {
	return []uint64{523, 1027, 1241, 1265, 1582, 1919, 2139, 2546, 2638, 2924}
}

// verdict is what a process says of one seed.
type verdict struct {
	Seed  uint64
	Hash  string
	Law   string         `json:",omitempty"` // the first that was broken
	Text  string         `json:",omitempty"`
	Cover map[string]int `json:",omitempty"`
}

// TestSimulation runs the loop and the pool against the VPC model under virtual time, with everything that goes wrong on a
// node drawn from the seed, an hour for each. `make simulate` gives other seeds: SIM_SEEDS=n is the first n, SIM_SEED=n is
// one, whose trace is printed, SIM_OPS=3,7 some of its operations only. SIM_SHAKE=1 shakes them (see sim_time_test.go).
func TestSimulation(t *testing.T) {
	if one := os.Getenv("SIM_SEED"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			t.Fatalf("SEED=%s is no number", one)
		}
		replay(t, seed)
		return
	}
	verdicts, err := swept()
	if err != nil {
		t.Fatal(err)
	}
	var broken []verdict
	cover := map[string]int{}
	for _, v := range verdicts {
		if v.Law != "" {
			broken = append(broken, v)
		}
		for what, times := range v.Cover {
			cover[what] += times
		}
	}
	if len(broken) > 0 {
		report(t, broken)
		return
	}
	t.Logf("%d seeds, an hour each: all laws hold", len(verdicts))
	if os.Getenv("SIM_SEEDS") == "" {
		checkCover(t, cover)
	}
}

// TestSimulationRepeats shows that a seed is one run, also in another process, whose maps have other orders, and when its
// goroutines are held up by chance: what fails once fails again. Traces are compared as they are.
func TestSimulationRepeats(t *testing.T) {
	if os.Getenv("SIM_SEEDS")+os.Getenv("SIM_SEED") != "" {
		t.Skip("make simulate asked for other seeds than those that are compared")
	}
	verdicts, err := swept()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts[:repeatSeeds] {
		if out := simulate(t, task{seed: v.Seed, ops: plan(v.Seed), shaken: true}); out.hash() != v.Hash {
			t.Errorf("seed %d: this process's shaken trace is %s, another's calm one %s; compare runs of: SIM_SHAKE=1 make simulate SEED=%d", v.Seed, out.hash(), v.Hash, v.Seed)
		}
	}
}

// TestSimulationPart is one process's share of the seeds: SIM_PART is a first seed, a last one and the step between, and where
// it ends with "+" the remembered ones too, before the others.
func TestSimulationPart(t *testing.T) {
	var first, last, step uint64
	var more string
	if n, _ := fmt.Sscanf(os.Getenv("SIM_PART"), "%d-%d/%d%s", &first, &last, &step, &more); n < 3 {
		t.Skip("a part of TestSimulation, for a process of its own")
	}
	var seeds []uint64
	if more != "" {
		seeds = remembered()
	}
	for seed := first; seed <= last; seed += step {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		out := simulate(t, whole(seed))
		v := verdict{Seed: seed, Hash: out.hash(), Cover: out.cover}
		if len(out.faults) > 0 {
			v.Law, v.Text = out.faults[0].law, out.faults[0].text
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("SIM %s\n", text)
		if v.Law != "" && os.Getenv("SIM_FIRST") != "" {
			return
		}
	}
}

// swept runs the seeds in as many processes as there are processors: bubbles of one process do not run beside each other well.
var swept = sync.OnceValues(func() ([]verdict, error) {
	last, more := uint64(simSeeds), len(remembered())
	if many := os.Getenv("SIM_SEEDS"); many != "" {
		n, err := strconv.ParseUint(many, 10, 64)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("SEEDS=%s is no number of seeds", many)
		}
		last, more = n, 0
	}
	processes := uint64(min(runtime.NumCPU(), 8))
	verdicts := make([][]verdict, processes)
	errs := make([]error, processes)
	var all sync.WaitGroup
	for k := range processes {
		seeds := fmt.Sprintf("%d-%d/%d", k+1, last, processes)
		if k == 0 && more > 0 {
			seeds += "+"
		}
		all.Go(func() { verdicts[k], errs[k] = part(seeds) })
	}
	all.Wait()
	list := slices.Concat(verdicts...)
	slices.SortFunc(list, func(a, b verdict) int { return cmp.Compare(a.Seed, b.Seed) })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if want := int(last) + more; len(list) != want {
		return nil, fmt.Errorf("%d of %d seeds were run", len(list), want)
	}
	return list, nil
})

func part(seeds string) ([]verdict, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-test.run=^TestSimulationPart$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), "SIM_PART="+seeds, "GOMAXPROCS=1", "GOGC=400")
	out, err := cmd.CombinedOutput()
	var list []verdict
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "SIM ")
		if !ok {
			continue
		}
		var v verdict
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if err != nil {
		return list, fmt.Errorf("the process with seeds %s, after %d of them: %w\n%s", seeds, len(list), err, out[max(0, len(out)-8000):])
	}
	return list, nil
}

// report tells of seeds that broke laws, and shortens the first one's list of operations.
func report(t *testing.T, broken []verdict) {
	t.Helper()
	for _, v := range broken[:min(20, len(broken))] {
		t.Errorf("seed %d breaks the law %q: %s", v.Seed, v.Law, v.Text)
	}
	if len(broken) > 20 {
		t.Errorf("and %d more seeds", len(broken)-20)
	}
	seed := broken[0].Seed
	out := simulate(t, whole(seed))
	if len(out.faults) == 0 {
		t.Errorf("seed %d breaks no law in this process: a run is not one order of things", seed)
		return
	}
	tell(t, shrink(t, out), out)
}

// tell prints the shortest list that was found, with the end of its trace.
func tell(t *testing.T, short, whole outcome) {
	t.Helper()
	var text strings.Builder
	for _, o := range short.ops {
		fmt.Fprintf(&text, "  %s\n", o)
	}
	for _, b := range short.faults {
		fmt.Fprintf(&text, "law %q broken at %s: %s\n", b.law, b.at, b.text)
	}
	at := slices.IndexFunc(short.trace, func(l string) bool { return strings.Contains(l, "BROKEN") })
	end := short.trace[max(0, at-70):min(len(short.trace), at+8)]
	t.Errorf("seed %d: the shortest list found has %d of %d operations:\n%s%s\n\nreplay it:    make simulate SEED=%d OPS=%s\nthe whole:    make simulate SEED=%d",
		short.seed, len(short.ops), len(whole.ops), &text, strings.Join(end, "\n"),
		short.seed, numbers(short.ops), short.seed)
}

// replay runs one seed and prints its trace; a long one goes to a file below SIM_TRACES.
func replay(t *testing.T, seed uint64) {
	ops, err := chosen(plan(seed), os.Getenv("SIM_OPS"))
	if err != nil {
		t.Fatal(err)
	}
	out := simulate(t, task{seed: seed, ops: ops})
	shown := out.trace
	if folder := os.Getenv("SIM_TRACES"); folder != "" && len(shown) > 400 {
		path := filepath.Join(folder, fmt.Sprintf("simulate-%d.txt", seed))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(shown, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("the first 50 and last 350 of %d lines; all are in %s\n", len(shown), path)
		shown = slices.Concat(shown[:50], []string{"..."}, shown[len(shown)-350:])
	}
	fmt.Println(strings.Join(shown, "\n"))
	fmt.Printf("seed %d, %d operations, %d lines, hash %s\n", seed, len(ops), len(out.trace), out.hash())
	if len(out.faults) > 0 {
		short := out
		if os.Getenv("SIM_OPS") == "" {
			short = shrink(t, out)
		}
		tell(t, short, out)
	}
}

// checkCover makes sure that the seeds bring about all that the simulation is there for.
func checkCover(t *testing.T, cover map[string]int) {
	t.Helper()
	var want []string
	for _, k := range kinds() {
		want = append(want, "op "+k.name)
	}
	for _, effect := range effects() {
		want = append(want, "crash before "+effect, "crash after "+effect)
	}
	for _, class := range classes {
		want = append(want, "class "+string(class))
	}
	for _, code := range codes().codes {
		want = append(want, "code "+code)
	}
	for action := range apiNames {
		for _, how := range []string{refuse, answerLost, requestLost, hangDone, hangUndone} {
			want = append(want, how+" "+action)
		}
	}
	for _, f := range fates {
		want = append(want, "plugin "+f.name)
	}
	want = append(want, "kept at restart", "cooled at restart", "apply hangs", "apply fails before", "apply fails halfway", "apply fails after",
		"state file removed", "state file empty", "state file truncated", "state file of a newer version",
		"disk refuses open", "disk refuses write", "disk refuses rename")
	var missing []string
	for _, what := range want {
		if cover[what] == 0 {
			missing = append(missing, what)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("no seed brings about: %s", strings.Join(missing, "; "))
	}
}
