package mutants_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root = "../../.."
	// seeds is how many first ones `make test` runs of the simulation, beside the remembered ones: each bug must be caught
	// within them.
	seeds = 300
	// atOnce is how many bugs are looked for at once: one process each.
	atOnce = 2
)

// caught is what a process of the simulation says of a seed.
type caught struct {
	Seed      uint64
	Law, Text string
}

var (
	firstLine = regexp.MustCompile(`^[A-C]\d+(, [A-C]\d+)*: \S.*\.$`)
	// knownSeed is a seed that caught the bug when the patch was written: it is tried first, for speed. What it means changes
	// with the code, and then the others are.
	knownSeed = regexp.MustCompile(`(?m)^Seed (\d+)\.$`)
)

// TestDeliberateBugs proves that the simulation's laws see what they are there for.
func TestDeliberateBugs(t *testing.T) {
	patches, err := filepath.Glob("testdata/*.patch")
	if err != nil || len(patches) < 8 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	free := make(chan struct{}, atOnce)
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			free <- struct{}{}
			defer func() { <-free }()
			text, err := os.ReadFile(patch)
			if err != nil {
				t.Fatal(err)
			}
			head, _, _ := strings.Cut(string(text), "\n")
			if !firstLine.MatchString(head) {
				t.Errorf("the first line must name the field case and the bug (\"B25: ...\"): %q", head)
			}
			program := build(t, patch, string(text))
			found := caught{}
			if known := knownSeed.FindStringSubmatch(string(text)); known != nil {
				found = run(t, program, known[1]+"-"+known[1]+"/1")
			}
			if found.Law == "" {
				found = run(t, program, fmt.Sprintf("1-%d/1+", seeds))
			}
			if found.Law == "" {
				t.Fatalf("no law is broken within the first %d seeds and the remembered ones by: %s", seeds, head)
			}
			t.Logf("%s\nseed %d, law %q: %s", head, found.Seed, found.Law, found.Text)
			if strings.HasPrefix(head, shortened) {
				checkShortened(t, program, found)
			}
		})
	}
}

// build makes the simulation's test program with the patch laid over the source.
func build(t *testing.T, patch, text string) string {
	t.Helper()
	dir := t.TempDir()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		if !ok {
			continue
		}
		source, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatalf("%s is about %s: %v", patch, name, err)
		}
		copied := filepath.Join(dir, "src", name)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, source, 0o644); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(top, name)] = copied
	}
	whole, err := filepath.Abs(patch)
	if err != nil || len(replace) == 0 {
		t.Fatalf("%s patches no file: %v", patch, err)
	}
	apply := exec.Command("git", "apply", "--whitespace=nowarn", whole)
	apply.Dir = filepath.Join(dir, "src")
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+dir)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%s does not apply any more (%v): write it anew for the code as it is now\n%s", patch, err, out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	laid, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulation.test")
	if err := os.WriteFile(laid, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("go", "test", "-c", "-overlay", laid, "-o", program, "./ipamd/reconcile")
	compile.Dir = top
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%s: build: %v\n%s", patch, err, out)
	}
	return program
}

// run gives the first seed of a part that breaks a law.
func run(t *testing.T, program, part string) caught {
	t.Helper()
	out := simulation(t, program, "^TestSimulationPart$", "SIM_PART="+part, "SIM_FIRST=1")
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 1<<20)
	last := caught{}
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "SIM ")
		if !ok {
			continue
		}
		last = caught{}
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			t.Fatal(err)
		}
	}
	if last.Seed == 0 {
		t.Fatalf("no seed was run:\n%s", out)
	}
	return last
}

func simulation(t *testing.T, program, test string, env ...string) string {
	t.Helper()
	cmd := exec.Command(program, "-test.run="+test, "-test.timeout=10m")
	cmd.Dir = filepath.Join(root, "ipamd/reconcile")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "SIM_") }), "GOMAXPROCS=1", "GOGC=400")
	cmd.Env = append(cmd.Env, env...)
	out, _ := cmd.CombinedOutput() // what it found is in its output
	return string(out)
}

// shortened is the bug by which the shortening of a failing list of operations is shown, and shortEnough what a person can
// look through: that seeds have some hundred operations.
const (
	shortened   = "B9"
	shortEnough = 12
)

var (
	shortest = regexp.MustCompile(`the shortest list found has (\d+) of (\d+) operations`)
	again    = regexp.MustCompile(`make simulate SEED=\d+ OPS=([\d,]*)`)
)

// checkShortened replays a failing seed: it prints a short list, which breaks the same law again.
func checkShortened(t *testing.T, program string, found caught) {
	t.Helper()
	seed := fmt.Sprintf("SIM_SEED=%d", found.Seed)
	out := simulation(t, program, "^TestSimulation$", seed)
	length, ops := shortest.FindStringSubmatch(out), again.FindStringSubmatch(out)
	if length == nil || ops == nil {
		t.Fatalf("seed %d is not shortened:\n%s", found.Seed, out)
	}
	t.Logf("%s, %s", length[0], ops[0])
	if n := strings.Count(ops[1], ",") + 1; n > shortEnough {
		t.Errorf("%d operations are left of %s", n, length[2])
	}
	law := fmt.Sprintf("law %q broken", found.Law)
	if out := simulation(t, program, "^TestSimulation$", seed, "SIM_OPS="+ops[1]); !strings.Contains(out, law) {
		t.Errorf("the short list does not break the law %q:\n%s", found.Law, out)
	}
}
