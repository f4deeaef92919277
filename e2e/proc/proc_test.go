package proc

import (
	"os"
	"testing"
	"time"
)

func TestProcIsRead(t *testing.T) {
	own, children, err := parseCPU("17 (a) b (c) S 1 17 17 0 -1 4194560 1 2 3 4 150 25 3 4 20 0 1 0 0 0")
	if err != nil || own != 1750*time.Millisecond || children != 70*time.Millisecond {
		t.Errorf("processor time %s, of children %s, error %v, want 1.75 s and 70 ms", own, children, err)
	}
	u, err := parseProcessors("cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1 1 1 1\n")
	if err != nil || u != (Usage{Idle: 70, All: 100}) {
		t.Errorf("processors %+v, error %v", u, err)
	}
	mib, err := parseField("Name:\tipamd\nRssAnon:\t    2048 kB\nRssFile:\t 1 kB\n", "RssAnon:")
	if err != nil || mib != 2 {
		t.Errorf("anonymous memory %v MiB, error %v", mib, err)
	}
	if took, err := parseRan("1500000 20 3\n"); err != nil || took != 1500*time.Microsecond {
		t.Errorf("time on a processor %s, error %v", took, err)
	}
	_, _, noCPU := parseCPU("17 (a) S 1")
	for name, err := range map[string]error{
		"stat":   noCPU,
		"cpu":    errorOf(parseProcessors("intr 1 2 3 4 5 6")),
		"sched":  errorOf(parseRan("")),
		"status": errorOf(parseField("Name:\tipamd\n", "RssAnon:")),
	} {
		if err == nil {
			t.Errorf("%s: what cannot be read is no error", name)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// This process has memory and has run, and the kernel says so in these formats.
func TestOwnProcessIsRead(t *testing.T) {
	for name, read := range map[string]func(int) (float64, error){"RssAnon": Anonymous, "smaps_rollup": AnonymousPages} {
		if mib, err := read(os.Getpid()); err != nil || mib < 0.1 || mib > 10_000 {
			t.Errorf("%s: %v MiB, error %v", name, mib, err)
		}
	}
	if ran, err := Ran(os.Getpid()); err != nil || ran <= 0 {
		t.Errorf("ran %s, error %v", ran, err)
	}
	if own, _, err := CPU(os.Getpid()); err != nil || own < 0 {
		t.Errorf("processor time %s, error %v", own, err)
	}
	if u, err := Processors(); err != nil || u.All <= u.Idle {
		t.Errorf("processors %+v, error %v", u, err)
	}
	if _, err := Ran(1 << 30); err == nil {
		t.Error("a process that is not there has run")
	}
}
