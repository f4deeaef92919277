// Package eksnode_test has the incumbent live on the simulated VPC: its agent and plugins, unmodified, know AWS by an endpoint
// URL and the metadata service only. A failure here is first of all a suspicion against the fake.
package eksnode_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/eksnode"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) {
	for _, prepare := range []func() error{
		func() error { return netns.Prepare(context.Background(), os.Stderr) },
		func() error { return eksnode.Prepare(context.Background()) },
	} {
		if err := prepare(); err != nil {
			fmt.Fprintf(os.Stderr, "eksnode: %v\n", err)
			os.Exit(1)
		}
	}
	// The cases wait for timers of the incumbent's most of the time: all at once, however few the processors are.
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintf(os.Stderr, "eksnode: %v\n", err)
		os.Exit(1)
	}
	netlab.Main(m)
}
