package netns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/assets"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// The folders below stateDir.
const (
	vpcDir     = stateDir + "/vpc"     // fakeec2's: namespaces, admin socket
	controlDir = stateDir + "/control" // the control plane's: kubeconfigs
	podsDir    = stateDir + "/pods"    // the kubelets'
)

// Start boots a cluster: the VPC with its machines, the control plane, then all nodes at once. What it started is stopped
// again when a step fails.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options = options.WithDefaults()
	c := &Cluster{
		options: options, show: &progress{out: options.Out},
		dead: make(chan *DiedError, 1), followers: map[int]func(event.Event){},
	}
	guarded, cancel := c.Guard(ctx)
	defer cancel()
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"VPC with its nodes (fakeec2)", c.startVPC},
		{"kube-apiserver and etcd", c.startControlPlane},
		{"nodes: kubelet, policy agent, daemon", c.startNodes},
	} {
		if err := c.show.step(guarded, s.name, s.do); err != nil {
			return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		}
	}
	return c, nil
}

// removeLogs removes what an earlier run left: the last lines of a log must be this run's. Daemons that are restarted
// within a run append.
func removeLogs(dir string) error {
	for _, pattern := range []string{"*.log", "*.events", "*.jsonl"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return fmt.Errorf("look for logs of an earlier run: %w", err)
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				return fmt.Errorf("remove log of an earlier run: %w", err)
			}
		}
	}
	return nil
}

// startVPC starts the simulated VPC and opens the namespaces of its machines.
func (c *Cluster) startVPC(ctx context.Context) error {
	for _, dir := range []string{vpcDir, controlDir, podsDir, c.options.Logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder of the cluster: %w", err)
		}
	}
	if err := removeLogs(c.options.Logs); err != nil {
		return err
	}
	scenario := filepath.Join(c.options.Logs, "scenario.yaml")
	if err := c.options.writeWorld(scenario); err != nil {
		return err
	}
	host, err := c.inside.current()
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	c.fake, err = c.launch(program{
		name: "fakeec2", in: host, path: binary("fakeec2"), env: plainEnv(),
		args:   []string{"serve", "--check", "--dir", vpcDir, "--scenario", scenario}, // the books, after every request
		events: func(event.Event) { once() },                                          // its one line of output says that the world stands
	})
	if err != nil {
		return err
	}
	if err := await(ctx, ready, "the VPC", c.fake); err != nil {
		return err
	}
	for i, info := range c.options.Info().Nodes {
		ns, err := c.inside.open(info.Name)
		if err != nil {
			return err
		}
		n := &node{
			cluster: c, name: info.Name, address: c.options.nodeAddress(i), capacity: info.Capacity, ns: ns,
			settings: map[string]string{}, policy: c.options.Policy,
		}
		maps.Copy(n.settings, c.options.Settings)
		c.nodes = append(c.nodes, n)
	}
	return nil
}

// startControlPlane starts the API server inside the VPC, and makes the administrator's access to it.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	ns, err := c.inside.open(apiServerName)
	if err != nil {
		return err
	}
	_, nice := c.options.niceness()
	args := []string{"-address", apiServerAddress, "-dir", controlDir}
	if c.options.Audit {
		args = append(args, "-audit", c.options.audit())
	}
	c.control, err = c.launch(program{
		name: "controlplane", in: ns, path: binary("controlplane"), nice: nice,
		env:    append(plainEnv(), assets.Var+"="+os.Getenv(assets.Var)),
		args:   args,
		events: func(event.Event) {},
	})
	if err != nil {
		return err
	}
	if err := await(ctx, c.control.ready, "the control plane", c.control); err != nil {
		return err
	}
	c.config, err = clientcmd.BuildConfigFromFlags("", account.Kubeconfig(controlDir, account.Admin))
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	c.config.Dial = ns.DialContext
	c.apiServer = ns
	return nil
}

// startNodes starts all nodes at once.
func (c *Cluster) startNodes(ctx context.Context) error {
	for i, n := range c.nodes {
		if err := n.layWays(i); err != nil {
			return err
		}
	}
	if err := c.ship(ctx); err != nil {
		return err
	}
	if err := c.retire(ctx); err != nil {
		return err
	}
	return c.onNodes(ctx, (*node).start)
}

// namespaces are the handles that the cluster holds.
type namespaces []*netlab.Namespace

// open opens the namespace of a machine or service of the VPC.
func (l *namespaces) open(name string) (*netlab.Namespace, error) {
	return l.keep(netlab.Open(filepath.Join(vpcDir, "netns", name)))
}

// current opens the harness's own namespace.
func (l *namespaces) current() (*netlab.Namespace, error) { return l.keep(netlab.Current()) }

func (l *namespaces) keep(ns *netlab.Namespace, err error) (*netlab.Namespace, error) {
	if err == nil {
		*l = append(*l, ns)
	}
	return ns, err
}

// Close closes all.
func (l *namespaces) Close() error {
	var errs []error
	for _, ns := range *l {
		errs = append(errs, ns.Close())
	}
	*l = nil
	return errors.Join(errs...)
}
