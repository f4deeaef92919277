// Package proc reads from /proc what processes and processors have used.
//
// It owns the formats (proc(5)) and nothing else: what a number means, and when to look, is the caller's. Start with CPU.
package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, in which /proc counts processor time: 100 on every architecture that Kubernetes runs on.
const ticksPerSecond = 100

// Usage is the time of all processors so far, in ticks.
type Usage struct{ Idle, All float64 }

// Processors gives the machine's.
func Processors() (Usage, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Usage{}, fmt.Errorf("read processor times: %w", err)
	}
	return parseProcessors(string(text))
}

// parseProcessors reads the first line of /proc/stat: user, nice, system, idle, iowait and so on.
func parseProcessors(text string) (u Usage, err error) {
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
		u.All += value
		if i == 3 || i == 4 { // idle, and idle with input or output pending
			u.Idle += value
		}
	}
	return u, nil
}

// CPU is the processor time of a process so far, all threads, user and system, to 10 ms: its own, and that of children that
// have ended and were waited for.
func CPU(pid int) (own, children time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read processor time: %w", err)
	}
	return parseCPU(string(text))
}

// parseCPU reads utime, stime, cutime and cstime of /proc/<pid>/stat, fields 14 to 17. The name before them may hold anything,
// so fields are counted from its closing parenthesis.
func parseCPU(text string) (own, children time.Duration, err error) {
	const utime, cstime = 11, 14 // among those after the name
	end := strings.LastIndex(text, ") ")
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) <= cstime {
		return 0, 0, fmt.Errorf("read processor time from %q: too few fields", text)
	}
	var ticks [4]int
	for i := range ticks {
		if ticks[i], err = strconv.Atoi(fields[utime+i]); err != nil {
			return 0, 0, fmt.Errorf("read processor time: %w", err)
		}
	}
	const tick = time.Second / ticksPerSecond
	return time.Duration(ticks[0]+ticks[1]) * tick, time.Duration(ticks[2]+ticks[3]) * tick, nil
}

// Ran is the processor time of a process' threads so far, to the nanosecond. Threads that have ended are not in it, but a Go
// program keeps its own.
func Ran(pid int) (sum time.Duration, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("read schedstat of process %d: it has no tasks: %w", pid, err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			return 0, fmt.Errorf("read schedstat: %w", err)
		}
		took, err := parseRan(string(text))
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum, nil
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

// Anonymous is a process' resident anonymous memory, in MiB: what it has allocated, without its program's pages. RssAnon of
// /proc/<pid>/status is a counter that threads fold in now and then.
func Anonymous(pid int) (mib float64, err error) {
	return field(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:")
}

// AnonymousPages is the same as counted page by page (Anonymous of /proc/<pid>/smaps_rollup), which costs the process its map's lock.
func AnonymousPages(pid int) (mib float64, err error) {
	return field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "\nAnonymous:")
}

func field(path, name string) (mib float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return parseField(string(text), name)
}

func parseField(text, name string) (mib float64, err error) {
	_, rest, ok := strings.Cut(text, name)
	line, _, _ := strings.Cut(rest, "\n")
	number, unit, _ := strings.Cut(strings.TrimSpace(line), " ")
	kib, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || unit != "kB" {
		return 0, fmt.Errorf("read %s from %q: want a number of kB", strings.TrimSpace(name), line)
	}
	return kib / 1024, nil
}
