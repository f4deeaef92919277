// Package bench_test measures the whole chain on simulated nodes: the real plugin, executed as a runtime does it, against the
// real daemon, with a real API server. Each benchmark is a whole measurement whose samples e2e/figures takes; `make bench`
// runs them. By hand:
//
//	go test -run '^$' -bench '^BenchmarkADD$' -benchtime 1x -v ./e2e/bench
package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/distance"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) {
	for name, be := range map[string]func(string) error{distance.Var: distance.Be, patcherVar: bePatcher} {
		if described := os.Getenv(name); described != "" {
			if err := be(described); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
				os.Exit(1)
			}
			return
		}
	}
	if err := netns.Prepare(context.Background(), os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
	netlab.Main(m)
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// world is a cluster to measure on.
type world struct {
	*netns.Cluster
	b     *testing.B
	empty string // a program that does nothing
}

// instanceType has room for 735 pods, the most that one network card takes.
const (
	instanceType = "m5.24xlarge"
	capacity     = 735
)

// boot boots a cluster whose nodes hold so many addresses from the start and use a released one again after a second, so
// that no ADD waits for EC2 or for a cooldown. Nodes go before the API server. The kubelets are stopped: pods are this
// package's.
func boot(b *testing.B, nodes, addresses int) *world {
	b.Helper()
	logs := filepath.Join(b.TempDir(), "logs")
	c, err := netns.Start(b.Context(), netns.Options{
		Logs: logs, Nodes: nodes, InstanceType: instanceType, Out: b.Output(), NodesFirst: true,
		Settings: map[string]string{
			"MINIMUM_IP_TARGET": strconv.Itoa(addresses), "WARM_IP_TARGET": "1", "IP_COOLDOWN_PERIOD": "1",
			"AWS_VPC_K8S_CNI_LOGLEVEL": "INFO",
		},
		Policy: cluster.Policy{Annotation: true},
	})
	check(b, err)
	b.Cleanup(func() { check(b, c.Stop(context.Background())) })
	for _, node := range c.Info().Nodes {
		check(b, c.StopKubelet(b.Context(), node.Name))
	}
	return &world{Cluster: c, b: b, empty: buildEmpty(b)}
}

// buildEmpty compiles the program that does nothing, with the flags of a release.
func buildEmpty(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "empty")
	output, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "../../cni/testdata/empty").CombinedOutput()
	if err != nil {
		b.Fatalf("build the empty program: %v: %s", err, output)
	}
	return path
}
