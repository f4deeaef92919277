package figures

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// OutVar names the folder that samples are written to; what runs the benchmarks sets it. Without it a benchmark only logs
// its rows.
const OutVar = "BENCH_OUT"

// Series is one kind of value that a benchmark measures.
type Series struct{ Name, Unit string }

// Recorder takes the samples of one group. It is not safe for concurrent use.
type Recorder struct {
	measured Measured
}

// Record begins the record of a group. It is written, and its rows are logged, when the benchmark and its other cleanups
// have ended without a failure.
func Record(tb testing.TB, group string) *Recorder {
	tb.Helper()
	r := &Recorder{measured: Measured{Environment: environment()}}
	tb.Cleanup(func() {
		if tb.Failed() {
			return
		}
		if dir := os.Getenv(OutVar); dir != "" {
			if err := r.measured.write(file(dir, group)); err != nil {
				tb.Error(err)
			}
		}
		lines, err := tableOf(group).Lines(map[string]Measured{group: r.measured})
		if err != nil {
			tb.Error(err)
		}
		tb.Logf("\n%s\n%s", Text(lines, group), matrixText(Matrix(map[string]Measured{group: r.measured})))
	})
	return r
}

// Add takes values of a series that were measured in a block.
func (r *Recorder) Add(series Series, block int, values ...float64) {
	for _, value := range values {
		r.measured.Samples = append(r.measured.Samples, Sample{Series: series.Name, Unit: series.Unit, Block: block, Value: value})
	}
}

// Times takes durations in the series' unit, which is "us", "ms" or "s".
func (r *Recorder) Times(series Series, block int, times ...time.Duration) {
	unit := map[string]time.Duration{"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second}[series.Unit]
	for _, took := range times {
		r.Add(series, block, float64(took)/float64(unit))
	}
}

func environment() Environment {
	e := Environment{Kernel: "unknown", CPU: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().UTC().Truncate(time.Second)}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		e.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(text), "model name"); ok {
			model, _, _ := strings.Cut(rest, "\n")
			e.CPU = strings.TrimLeft(model, "\t :")
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			e.Load, _ = strconv.ParseFloat(fields[0], 64) // the kernel's own format
		}
	}
	return e
}
