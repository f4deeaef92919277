// Package harness is what every end-to-end suite shares: the cluster that CLUSTER names, and pods on it.
//
// It owns the choice of the cluster and its end. It holds no expectations of its own beyond "a pod starts". A suite has
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// and boots its one cluster in BeforeSuite with Boot. Start there; pods.go has the pods.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// ClusterVar names the kind of cluster that suites run on; unset means netns.
const ClusterVar = "CLUSTER"

// LogsVar names the folder for logs; unset means a temporary one, which is kept when the suite fails.
const LogsVar = "E2E_LOGS"

// Main is a suite's TestMain: it builds what the cluster needs and isolates the suite.
func Main(m *testing.M) {
	if kind := os.Getenv(ClusterVar); kind != "" && kind != netns.Kind {
		fmt.Fprintf(os.Stderr, "harness: %s=%s: the only cluster there is today is %s\n", ClusterVar, kind, netns.Kind)
		os.Exit(1)
	}
	if err := netns.Prepare(context.Background(), os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "harness: %v\n", err)
		os.Exit(1)
	}
	netlab.Main(m)
}

// Cluster is a booted cluster with everything that suites may ask for, and a client of its API server.
type Cluster struct {
	*netns.Cluster
	API *podapi.Client
}

// Options are what a suite may want of its cluster.
type Options struct {
	Settings    map[string]string // of the daemons
	StatusDelay *sandbox.Delay    // of the kubelets; nil: a real kubelet's
	// InstanceType is that of the nodes; "": the cluster's default. Keys are what policy agents read; "": the AWS key.
	InstanceType, Keys string
	Seed               uint64 // 0: 1
	// BadDay wants a cluster whose daemons' ways to the API server can be broken, with an audit log and readers' views.
	BadDay bool
}

// Boot boots a cluster.
func Boot(ctx context.Context, name string, options Options, out io.Writer) (*Cluster, error) {
	logs, err := logFolder(name)
	if err != nil {
		return nil, err
	}
	wanted := netns.Options{
		Logs: logs, Settings: options.Settings, StatusDelay: options.StatusDelay, Seed: max(options.Seed, 1), Out: out,
		InstanceType: options.InstanceType, Keys: options.Keys, Audit: options.BadDay,
		Policy: cluster.Policy{Annotation: true, DefaultDeny: true},
	}
	if options.BadDay {
		wanted.Away = []time.Duration{}
	}
	booted, err := netns.Start(ctx, wanted)
	if err != nil {
		return nil, err
	}
	client, err := podapi.New(booted.Config())
	if err != nil {
		return nil, errors.Join(err, booted.Stop(ctx))
	}
	return &Cluster{Cluster: booted, API: client}, nil
}

func logFolder(name string) (string, error) {
	if dir := os.Getenv(LogsVar); dir != "" {
		return filepath.Join(dir, name), nil
	}
	dir, err := os.MkdirTemp("", "e2e-"+name+"-")
	if err != nil {
		return "", fmt.Errorf("make folder of logs: %w", err)
	}
	return dir, nil
}

// RemoveLogs removes the logs of a suite that passed, unless a folder was named for them.
func (c *Cluster) RemoveLogs() error {
	if os.Getenv(LogsVar) != "" {
		return nil
	}
	if err := os.RemoveAll(c.Info().Logs); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	return nil
}

// StartTimeout is how long a pod may take to start: an ADD may have to wait for a second ENI.
const StartTimeout = 60 * time.Second
