// Package compare_test sets this project beside the incumbent (amazon-vpc-cni-k8s, unmodified, see e2e/eksnode): both on machines
// of the same simulated VPC, before the same API server, with the same runtime, in turns. Each benchmark is a whole measurement
// whose samples e2e/figures takes; `make compare` runs them. By hand:
//
//	go test -run '^$' -bench '^BenchmarkServe$' -benchtime 1x -v ./e2e/compare
//
// Start with contender (contender_test.go), then boot and node.
package compare_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/distance"
	"github.com/vpc-cni/vpc-cni/e2e/eksnode"
	"github.com/vpc-cni/vpc-cni/e2e/proc"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) {
	if described := os.Getenv(distance.Var); described != "" {
		if err := distance.Be(described); err != nil {
			fmt.Fprintf(os.Stderr, "proxy: %v\n", err)
			os.Exit(1)
		}
		return
	}
	for _, prepare := range []func() error{
		func() error { return netns.Prepare(context.Background(), os.Stderr) },
		func() error { return eksnode.Prepare(context.Background()) },
	} {
		if err := prepare(); err != nil {
			fmt.Fprintf(os.Stderr, "compare: %v\n", err)
			os.Exit(1)
		}
	}
	netlab.Main(m)
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// pause lets time go by that belongs to no measurement.
func pause(tb testing.TB, d time.Duration) {
	tb.Helper()
	select {
	case <-time.After(d):
	case <-tb.Context().Done():
		check(tb, tb.Context().Err())
	}
}

// quietTimeout is after what time a machine that never idles is taken as it is.
const quietTimeout = 10 * time.Second

// quiet waits until the machine idles.
func quiet(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), quietTimeout)
	defer cancel()
	calm, err := proc.Quiet(ctx)
	check(tb, err)
	if !calm {
		tb.Logf("the machine is busy with something else; measuring all the same")
	}
}
