package cni_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/perf/benchmath"
)

// The benchmarks measure the plugin against a daemon in memory. Each round is a whole measurement, so run them with
// -benchtime 1x:
//
//	go test -run '^$' -bench . -benchtime 1x ./cni

// confidence of the intervals beside a median.
const confidence = 0.95

// fewest values have an interval of that confidence: the extremes of six enclose the median in 97 of 100 samples.
const fewest = 6

// report gives the median of durations with its interval, in milliseconds.
func report(b *testing.B, name string, durations []time.Duration) float64 {
	values := make([]float64, len(durations))
	for i, d := range durations {
		values[i] = float64(d) / float64(time.Millisecond)
	}
	sample := benchmath.NewSample(values, &benchmath.DefaultThresholds)
	summary := benchmath.AssumeNothing.Summary(sample, confidence)
	b.ReportMetric(summary.Center, name+"-p50-ms")
	if len(values) < fewest {
		return summary.Center
	}
	b.Logf("%s: median %.2f ms, %.0f %% interval %.2f to %.2f ms, n %d", name, summary.Center, 100*summary.Confidence, summary.Lo, summary.Hi, len(values))
	return summary.Center
}

func size(b *testing.B, path string) float64 {
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size())
}

// timed runs a command and returns how long it took from exec to exit.
func timed(b *testing.B, cmd *exec.Cmd) time.Duration {
	began := time.Now()
	output, err := cmd.Output()
	took := time.Since(began)
	if err != nil {
		b.Fatalf("%v: %s", err, output)
	}
	return took
}

// BenchmarkPluginExec sets VERSION beside a Go program that does nothing, in turns, so that both see the same machine.
func BenchmarkPluginExec(b *testing.B) {
	const pairs = 200
	bin, err := buildOnce()
	if err != nil {
		b.Fatal(err)
	}
	empty, plugin := filepath.Join(bin, "empty"), filepath.Join(bin, "aws-cni")
	if err := compile(empty, "./testdata/empty"); err != nil {
		b.Fatal(err)
	}
	var empties, versions []time.Duration
	for b.Loop() {
		for range pairs {
			empties = append(empties, timed(b, exec.Command(empty)))
			version := exec.Command(plugin)
			version.Env = []string{"CNI_COMMAND=VERSION"}
			versions = append(versions, timed(b, version))
		}
	}
	base := report(b, "empty", empties)
	b.ReportMetric(report(b, "version", versions)/base, "version/empty")
	b.ReportMetric(size(b, plugin), "plugin-bytes")
	b.ReportMetric(size(b, empty), "empty-bytes")
}

// BenchmarkPluginADD adds 200 pods, one after the other, from exec to exit. It also gives DEL.
func BenchmarkPluginADD(b *testing.B) {
	const pods = 200
	var adds, dels []time.Duration
	for b.Loop() {
		b.StopTimer()
		n, sandboxes := manySandboxes(b, pods)
		b.StartTimer()
		for _, s := range sandboxes {
			adds = append(adds, timed(b, n.command("ADD", s, n.conf(""))))
		}
		b.StopTimer()
		for _, s := range sandboxes {
			dels = append(dels, timed(b, n.command("DEL", s, n.conf(""))))
		}
		n.clean()
		b.StartTimer()
	}
	report(b, "add", adds)
	report(b, "del", dels)
}

// BenchmarkPluginParallelADD adds 110 pods at once, as many as a node of Kubernetes' default runs, and gives the time until the
// last one is done.
func BenchmarkPluginParallelADD(b *testing.B) {
	const pods = 110
	var totals []time.Duration
	for b.Loop() {
		b.StopTimer()
		n, sandboxes := manySandboxes(b, pods)
		b.StartTimer()
		began := time.Now()
		errs := make(chan error)
		for _, s := range sandboxes {
			go func() {
				output, err := n.command("ADD", s, n.conf("")).Output()
				if err != nil {
					err = fmt.Errorf("ADD %s: %w: %s", s.ContainerID, err, output)
				}
				errs <- err
			}()
		}
		for range sandboxes {
			if err := <-errs; err != nil {
				b.Error(err)
			}
		}
		totals = append(totals, time.Since(began))
		b.StopTimer()
		if got := len(n.podRoutes()); got != pods {
			b.Errorf("%d pod routes", got)
		}
		n.sweep()
		b.StartTimer()
	}
	report(b, "110-adds", totals)
}

func manySandboxes(b *testing.B, pods int) (*node, []sandbox) {
	n := newNode(b, "1.0.0")
	sandboxes := make([]sandbox, pods)
	for i := range sandboxes {
		sandboxes[i] = n.sandbox(fmt.Sprintf("sb%d", i), fmt.Sprintf("web-%d", i))
	}
	return n, sandboxes
}
