// Command figures runs the benchmarks of `make bench` or `make compare`, prints the table of their figures and writes it into the
// README. A goal that is missed is shown as missed and is no failure; a benchmark that breaks is one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// groupTimeout is a group's longest time: the longest takes eight minutes, on a machine that is not idle twice that.
const groupTimeout = "20m"

func main() { os.Exit(guarded()) }

// guarded runs until it is done or told to end, and gives the exit code.
func guarded() int {
	target := flag.String("for", figures.Bench().Target, "the make target whose table it is: bench or compare")
	only := flag.String("only", "", "groups to measure, separated by commas; others keep what an earlier run recorded (default: all)")
	out := flag.String("out", "build/bench", "folder of raw samples and of the benchmarks' output")
	readme := flag.String("readme", "README.md", "where the table goes once every group has been measured")
	again := flag.Bool("table", false, "measure nothing: make the table of what is recorded, and write it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	table, err := tableFor(*target)
	if err == nil {
		err = job{Table: table, only: *only, out: *out, readme: *readme, again: *again}.run(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "figures: %v\n", err)
		return 1
	}
	return 0
}

// tableFor gives the table of a make target.
func tableFor(target string) (figures.Table, error) {
	var known []string
	for _, t := range figures.Tables() {
		if t.Target == target {
			return t, nil
		}
		known = append(known, t.Target)
	}
	return figures.Table{}, fmt.Errorf("there is no table for %q; tables: %s", target, strings.Join(known, " "))
}

// job is what to do about a table.
type job struct {
	figures.Table
	only, out, readme string
	again             bool // measure nothing
}

// run measures and shows. What an earlier run recorded is shown too where this one breaks.
func (j job) run(ctx context.Context) error {
	names, err := choose(j.Groups, j.only)
	if err == nil && !j.again {
		err = measure(ctx, names, j.out)
	}
	return errors.Join(err, j.show(err == nil && (j.only == "" || j.again)))
}

// choose gives the groups that are named, or all.
func choose(groups []figures.Group, only string) (chosen []figures.Group, err error) {
	if only == "" {
		return groups, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(groups, func(g figures.Group) bool { return g.Name == strings.TrimSpace(name) })
		if i < 0 {
			var known []string
			for _, g := range groups {
				known = append(known, g.Name)
			}
			return nil, fmt.Errorf("there is no group %q; groups: %s", name, strings.Join(known, " "))
		}
		chosen = append(chosen, groups[i])
	}
	return chosen, nil
}

// measure runs the groups one after the other: they must not see each other. One that breaks does not stop the others.
func measure(ctx context.Context, groups []figures.Group, out string) error {
	dir, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("use folder %s: %w", out, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of samples: %w", err)
	}
	var errs []error
	for _, g := range groups {
		began := time.Now()
		fmt.Printf("  ...  %-12s %s\n", g.Name, g.Package)
		result := "ok"
		if err := run(ctx, g, dir); err != nil {
			result = "FAIL"
			errs = append(errs, fmt.Errorf("measure %s: %w", g.Name, err))
		}
		fmt.Printf("  %-4s %-12s %6.1f s\n", result, g.Name, time.Since(began).Seconds())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}

// run runs a group's benchmark. What it prints goes to <out>/<group>.txt, and to the screen if it fails.
func run(ctx context.Context, g figures.Group, dir string) error {
	// Samples of an earlier run must not pass for this one's.
	if err := os.Remove(filepath.Join(dir, g.Name+".jsonl")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove samples of an earlier run: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^"+g.Benchmark+"$", "-benchtime", "1x", "-v", "-timeout", groupTimeout, "./"+g.Package)
	cmd.Env = append(os.Environ(), figures.OutVar+"="+dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	text, err := cmd.CombinedOutput()
	if writeErr := os.WriteFile(filepath.Join(dir, g.Name+".txt"), text, 0o644); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s\n", text)
	}
	return err
}

// show prints the table, and writes it into the README if that is asked for and every group has been measured: rows of
// different runs, perhaps of different programs, are put together only by -table.
func (j job) show(write bool) error {
	measured, err := j.Read(j.out)
	if err != nil {
		return err
	}
	lines, err := j.Lines(measured)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\nraw samples and output: %s\n", figures.Text(lines), j.out)
	for _, l := range lines {
		if l.Measured && l.Missed() {
			fmt.Printf("goal missed: %s: %s\n", l.Name, l.Verdict())
		}
	}
	if !write || len(measured) < len(j.Groups) {
		fmt.Printf("%s stays as it is: this run has not measured every group\n", j.readme)
		return nil
	}
	text, err := j.Markdown(measured)
	if err != nil {
		return err
	}
	return j.Rewrite(j.readme, text)
}
