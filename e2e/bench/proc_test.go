package bench_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/proc"
)

// quietTimeout is after what time a machine that never idles is taken as it is.
const quietTimeout = 10 * time.Second

// quiet waits until the machine idles.
func quiet(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), quietTimeout)
	defer cancel()
	calm, err := proc.Quiet(ctx)
	check(b, err)
	if !calm {
		b.Logf("the machine is busy with something else; measuring all the same")
	}
}

// cpu is the processor time of a process so far, all threads, user and system, to 10 ms.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	own, _, err := proc.CPU(pid)
	check(b, err)
	return own
}

// ran is the processor time of a process' threads so far, to the nanosecond.
func ran(b *testing.B, pid int) time.Duration {
	b.Helper()
	took, err := proc.Ran(pid)
	check(b, err)
	return took
}

// anonymous is a process' resident anonymous memory, in MiB.
func anonymous(b *testing.B, pid int) float64 {
	b.Helper()
	mib, err := proc.Anonymous(pid)
	check(b, err)
	return mib
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}
