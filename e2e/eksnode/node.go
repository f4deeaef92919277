package eksnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/assets"
	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// stateDir holds the files of all nodes. It is on Isolate's own tmpfs.
const stateDir = "/run/eksnode"

// release is what the DaemonSet says of itself.
const release = "v1.23.2"

// Cluster is the incumbent's side of a cluster.
type Cluster struct {
	world *netns.Cluster
	api   apiClient
	bin   string
}

// Join makes the incumbent's objects in the API server of a cluster. Its programs must have been built (Prepare).
func Join(ctx context.Context, world *netns.Cluster) (*Cluster, error) {
	bin := os.Getenv(assets.IncumbentVar)
	if bin == "" {
		return nil, fmt.Errorf("join cluster: %s is not set: call Prepare before netlab.Isolate", assets.IncumbentVar)
	}
	api, err := newClient(world.Config())
	if err != nil {
		return nil, err
	}
	if err := api.install(ctx); err != nil {
		return nil, err
	}
	return &Cluster{world: world, api: api, bin: bin}, nil
}

// Create makes an object in the API server, as its administrator, below a path such as "/api/v1/namespaces". The answer is read
// into got unless that is nil.
func (c *Cluster) Create(ctx context.Context, path string, object, got any) error {
	return c.api.create(ctx, path, object, got)
}

// Get reads what is at a path of the API.
func (c *Cluster) Get(ctx context.Context, path string, got any) error {
	return c.api.get(ctx, path, got)
}

// Options of a node.
type Options struct {
	Machine  string            // one of netns.Options.Machines
	MaxPods  int               // 0 is 110
	Settings map[string]string // of the agent, over those of the DaemonSet; cluster.Unset takes one away
	Logs     string            // folder; made if missing
}

// defaultMaxPods is kubelet's.
const defaultMaxPods = 110

// Node is a node of the incumbent's. Its methods are not safe for concurrent use, but for those of its sandboxes.
type Node struct {
	name     string
	cluster  *Cluster
	tree     tree
	ns       *netlab.Namespace
	mounts   *netlab.Mounts
	cache    string // libcni's
	settings map[string]string
	agent    *agent
}

// Node makes a node of a machine and registers it. Its agent is not started.
func (c *Cluster) Node(ctx context.Context, o Options) (*Node, error) {
	place, err := c.world.Machine(o.Machine)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of nodes: %w", err)
	}
	// It stays until Isolate's tmpfs goes: removing a tree in which another namespace has mounted the machine is not worth it.
	dir, err := os.MkdirTemp(stateDir, o.Machine+"-")
	if err != nil {
		return nil, fmt.Errorf("make folder of %s: %w", o.Machine, err)
	}
	n := &Node{
		name: o.Machine, cluster: c, settings: c.settings(o.Machine),
		tree:  tree{root: filepath.Join(dir, "root"), netns: filepath.Join(dir, "netns"), logs: o.Logs, bin: c.bin},
		cache: filepath.Join(dir, "cache"),
	}
	n.Set(o.Settings)
	if n.ns, err = netlab.Open(place.Namespace); err != nil {
		return nil, err
	}
	if n.mounts, err = n.tree.mounts(); err != nil {
		return nil, errors.Join(err, n.ns.Close())
	}
	err = errors.Join(n.prepare(ctx), c.api.register(ctx, n.name, place.Address, cmp.Or(o.MaxPods, defaultMaxPods)))
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Prepare builds the incumbent's programs where the environment does not name them, and puts them into the environment. It
// belongs before netlab.Isolate, as cluster/netns's.
func Prepare(ctx context.Context) error { return assets.Incumbent().Prepare(ctx, os.Stderr) }

// Set changes settings of the agent, from its next start on.
func (n *Node) Set(settings map[string]string) {
	for name, value := range settings {
		if value == cluster.Unset {
			delete(n.settings, name)
			continue
		}
		n.settings[name] = value
	}
}

// settings are the agent's environment: the DaemonSet's, without the network policy agent, which needs eBPF and whose absence
// the plugin does not forgive where NETWORK_POLICY_ENFORCING_MODE is set; and where AWS and the API server are.
func (c *Cluster) settings(node string) map[string]string {
	ec2, _ := c.world.EC2()
	_, server := c.world.APIServer()
	host, port, _ := net.SplitHostPort(server) // a constant of netns
	return map[string]string{
		"ADDITIONAL_ENI_TAGS": "{}", "AWS_VPC_CNI_NODE_PORT_SUPPORT": "true", "AWS_VPC_ENI_MTU": "9001",
		"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "false", "AWS_VPC_K8S_CNI_EXTERNALSNAT": "false",
		"AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG", "AWS_VPC_K8S_CNI_LOG_FILE": "/host" + logDir + "/ipamd.log",
		"AWS_VPC_K8S_CNI_RANDOMIZESNAT": "prng", "AWS_VPC_K8S_CNI_VETHPREFIX": "eni",
		"AWS_VPC_K8S_PLUGIN_LOG_FILE": logDir + "/plugin.log", "AWS_VPC_K8S_PLUGIN_LOG_LEVEL": "DEBUG",
		"DISABLE_INTROSPECTION": "false", "DISABLE_METRICS": "false", "DISABLE_NETWORK_RESOURCE_PROVISIONING": "false",
		"ENABLE_IMDS_ONLY_MODE": "false", "ENABLE_IPv4": "true", "ENABLE_IPv6": "false", "ENABLE_MULTI_NIC": "false",
		"ENABLE_POD_ENI": "false", "ENABLE_PREFIX_DELEGATION": "false", "ENABLE_SUBNET_DISCOVERY": "true",
		"VPC_CNI_VERSION": release, "WARM_ENI_TARGET": "1", "WARM_PREFIX_TARGET": "1",
		"MY_NODE_NAME": node, "MY_POD_NAME": agentPod(node), "CLUSTER_NAME": "netns",

		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
		"AWS_ENDPOINT_URL_EC2": ec2,
	}
}

// prepare puts on the node what kubelet and the init container do: the service account, and sysctls of the node's own network.
func (n *Node) prepare(ctx context.Context) error {
	token, err := n.cluster.api.token(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(n.tree.root, tokenDir)
	for name, text := range map[string][]byte{
		"token": []byte(token), "ca.crt": n.cluster.world.Config().CAData, "namespace": []byte(kubeSystem),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("write service account of %s: %w", n.name, err)
		}
	}
	return errors.Join(n.ns.SetSysctl("net.ipv4.conf.eth0.rp_filter", "2"), n.ns.SetSysctl("net.ipv4.tcp_early_demux", "1"))
}

// Launch starts the agent, which must not run, and does not wait for it.
func (n *Node) Launch() (err error) {
	n.agent, err = n.launch()
	return err
}

// startTimeout is how long an agent may take until it serves: it attaches an ENI before, and waits for the metadata to show it.
const startTimeout = 2 * time.Minute

// poll is how often something is looked at that is waited for.
const poll = 50 * time.Millisecond

// Start is Launch and AwaitServing.
func (n *Node) Start(ctx context.Context) error {
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitServing(ctx)
}

// AwaitServing waits until the agent's own probe says that it serves. Then it leaves the network configuration on the node, as
// the agent's container does.
func (n *Node) AwaitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		probed := n.Probe(ctx)
		if probed == nil {
			break
		}
		select {
		case <-n.agent.ended:
			return &EndedError{Node: n.name, Err: n.agent.err, Tail: n.Tail()}
		case <-ctx.Done():
			return fmt.Errorf("wait for agent of %s: %w; the end of its log:\n%s", n.name, probed, n.Tail())
		case <-time.After(poll):
		}
	}
	text, err := conflist(n.settings)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.tree.root, confDir, conflistName), text, 0o644); err != nil {
		return fmt.Errorf("write network configuration: %w", err)
	}
	return nil
}

// EndedError says that an agent ended by itself.
type EndedError struct {
	Node string
	Err  error  // how
	Tail string // of its log
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("agent of %s ended by itself: %v; the end of its log:\n%s", e.Node, e.Err, e.Tail)
}

func (e *EndedError) Unwrap() error { return e.Err }

// Output runs a program of the machine in the node's namespaces and gives what it prints. The program is looked for where the
// node's programs look.
func (n *Node) Output(ctx context.Context, name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("run %s on %s: %w", name, n.name, err)
	}
	stdout, stderr, err := n.run(ctx, n.command(path, args...))
	if err != nil {
		return "", fmt.Errorf("run %s on %s: %w: %s", name, n.name, err, stderr)
	}
	return string(stdout), nil
}

// Probe runs the probe that the DaemonSet gives to kubelet, with its arguments.
func (n *Node) Probe(ctx context.Context) error {
	_, stderr, err := n.run(ctx, n.command(appDir+"/grpc-health-probe", "-addr=unix://"+socketPath, "-connect-timeout=5s", "-rpc-timeout=5s"))
	if err != nil {
		return fmt.Errorf("probe agent of %s: %w: %s", n.name, err, strings.TrimSpace(string(stderr)))
	}
	return nil
}

// Stop ends the agent. Its pods keep their network.
func (n *Node) Stop() error {
	if n.agent == nil {
		return nil
	}
	err := n.agent.kill()
	n.agent = nil
	return err
}

// PID is the agent's process id.
func (n *Node) PID() int { return n.agent.cmd.Process.Pid }

// Name is the node's.
func (n *Node) Name() string { return n.name }

// Network is the node's network namespace.
func (n *Node) Network() *netlab.Namespace { return n.ns }

// Close ends the agent and lets go of the node.
func (n *Node) Close() error { return errors.Join(n.Stop(), n.mounts.Close(), n.ns.Close()) }
