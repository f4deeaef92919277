package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ticksPerSecond is USER_HZ, in which /proc counts processor time: 100 on every architecture that Kubernetes runs on.
const ticksPerSecond = 100

// processors is the time of all processors so far, in ticks.
type usage struct{ idle, all float64 }

func processors(b *testing.B) usage {
	b.Helper()
	text, err := os.ReadFile("/proc/stat")
	check(b, err)
	u, err := parseProcessors(string(text))
	check(b, err)
	return u
}

// parseProcessors reads the first line of /proc/stat: user, nice, system, idle, iowait and so on (proc(5)).
func parseProcessors(text string) (u usage, err error) {
	first, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(first)
	if len(fields) < 6 || fields[0] != "cpu" {
		return u, fmt.Errorf("read processor times from %q: want cpu and its counters", first)
	}
	const guest = 9 // from here on times are also among the user's
	for i, field := range fields[1:min(len(fields), guest)] {
		value, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return u, fmt.Errorf("read processor times: %w", err)
		}
		u.all += value
		if i == 3 || i == 4 { // idle, and idle with input or output pending
			u.idle += value
		}
	}
	return u, nil
}

// cpu is the processor time of a process so far, all threads, user and system, to 10 ms.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(b, err)
	took, err := parseCPU(string(text))
	check(b, err)
	return took
}

// parseCPU reads utime and stime of /proc/<pid>/stat, fields 14 and 15. The name before them may hold anything, so fields
// are counted from its closing parenthesis.
func parseCPU(text string) (time.Duration, error) {
	const utime, stime = 11, 12 // among those after the name
	_, rest, ok := cutLast(text, ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) <= stime {
		return 0, fmt.Errorf("read processor time from %q: too few fields", text)
	}
	var ticks int
	for _, field := range []string{fields[utime], fields[stime]} {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// ran is the processor time of a process' threads so far, to the nanosecond. Threads that have ended are not in it, but a Go
// program keeps its own.
func ran(b *testing.B, pid int) time.Duration {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	check(b, err)
	var sum time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		check(b, err)
		took, err := parseRan(string(text))
		check(b, err)
		sum += took
	}
	return sum
}

// parseRan reads the first number of /proc/<pid>/task/<tid>/schedstat: nanoseconds on a processor.
func parseRan(text string) (time.Duration, error) {
	first, _, _ := strings.Cut(text, " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read schedstat from %q: %w", text, err)
	}
	return time.Duration(ns), nil
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// anonymous is a process' resident anonymous memory (RssAnon), in MiB: what it has allocated, without its program's pages.
func anonymous(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(b, err)
	mib, err := parseAnonymous(string(text))
	check(b, err)
	return mib
}

func parseAnonymous(text string) (mib float64, err error) {
	_, rest, ok := strings.Cut(text, "RssAnon:")
	line, _, _ := strings.Cut(rest, "\n")
	number, unit, _ := strings.Cut(strings.TrimSpace(line), " ")
	kib, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || unit != "kB" {
		return 0, fmt.Errorf("read RssAnon from %q: want a number of kB", line)
	}
	return kib / 1024, nil
}

func TestProcIsRead(t *testing.T) {
	took, err := parseCPU("17 (a) b (c) S 1 17 17 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 0 0")
	if err != nil || took != 1750*time.Millisecond {
		t.Errorf("processor time %s, error %v, want 1.75 s", took, err)
	}
	u, err := parseProcessors("cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1 1 1 1\n")
	if err != nil || u != (usage{idle: 70, all: 100}) {
		t.Errorf("processors %+v, error %v", u, err)
	}
	mib, err := parseAnonymous("Name:\tipamd\nRssAnon:\t    2048 kB\nRssFile:\t 1 kB\n")
	if err != nil || mib != 2 {
		t.Errorf("anonymous memory %v MiB, error %v", mib, err)
	}
	if took, err := parseRan("1500000 20 3\n"); err != nil || took != 1500*time.Microsecond {
		t.Errorf("time on a processor %s, error %v", took, err)
	}
	for name, err := range map[string]error{
		"stat":   errorOf(parseCPU("17 (a) S 1")),
		"cpu":    errorOf(parseProcessors("intr 1 2 3 4 5 6")),
		"sched":  errorOf(parseRan("")),
		"status": errorOf(parseAnonymous("Name:\tipamd\n")),
	} {
		if err == nil {
			t.Errorf("%s: what cannot be read is no error", name)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }
