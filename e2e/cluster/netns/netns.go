// Package netns is a whole cluster in this machine's namespaces: a simulated VPC, a real API server, and on every node the
// real daemon, the real plugin, a tiny kubelet and a policy agent, each a process of its own.
//
// It owns those processes, their logs and the folder that they share. It must run inside netlab.Isolate: nothing of it
// outlives the program, however that ends, and nothing touches the machine's own network. It never looks into a pod or
// decides what a suite should see. Start with Start in netns.go; boot.go has the order of things, node.go what runs on a
// node, process.go how a process is watched.
package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// Kind is this implementation's name.
const Kind = "netns"

// stateDir is the folder that the processes share: sockets (whose paths must stay short), namespaces, configurations. It
// is on Isolate's own tmpfs, so it is empty at start and gone at the end.
const stateDir = "/run/vpc-cni"

// Options describe the cluster to boot.
type Options struct {
	Logs         string            // folder of logs; made if missing
	InstanceType string            // of every node; "" is m5.xlarge
	Nodes        int               // 0 is 2, or none where there are machines
	Machines     []Machine         // beside the nodes; at most 15
	Settings     map[string]string // of the daemons, beyond what the cluster itself needs
	StatusDelay  *sandbox.Delay    // nil: a real kubelet's
	Lags         map[string]string // of the VPC's views, in place of the usual ones: see scenario.LagNames
	Seed         uint64            // of the kubelets' delays and the VPC's choices
	Policy       cluster.Policy
	Keys         string    // annotations that the policy agents read, joined by commas; "" is the AWS key
	Out          io.Writer // progress
	// NodesFirst turns priorities round: the API server yields to the programs of the nodes (Niceness), not they to it. For
	// who measures a node's own time, since elsewhere the API server's work costs the node nothing.
	NodesFirst bool
	// Away is how far the API server is from the programs of each node; those beyond its length are near. Not nil: every node
	// has a proxy, so that SetWay can break its daemon's way.
	Away  []time.Duration
	Audit bool // the API server keeps an audit log of pods, which Audit reads
}

// Machine is an instance of the VPC on which the cluster starts nothing: the API server knows no node of that name.
type Machine struct {
	Name         string
	InstanceType string
}

// Cluster is a booted cluster.
type Cluster struct {
	options   Options
	show      *progress
	config    *rest.Config
	inside    namespaces // opened handles
	nodes     []*node
	fake      *process
	control   *process
	apiServer *netlab.Namespace // where the API server listens
	dead      chan *DiedError   // the first process that ended by itself

	ring sync.Mutex // of keys
	keys keyring

	mu        sync.Mutex
	followers map[int]func(event.Event)
	next      int
}

var (
	_ cluster.Cluster   = (*Cluster)(nil)
	_ cluster.Follower  = (*Cluster)(nil)
	_ cluster.Orderer   = (*Cluster)(nil)
	_ cluster.Gated     = (*Cluster)(nil)
	_ cluster.Daemons   = (*Cluster)(nil)
	_ cluster.Breakable = (*Cluster)(nil)
	_ cluster.Audited   = (*Cluster)(nil)
	_ cluster.Metered   = (*Cluster)(nil)
)

// Info implements cluster.Cluster.
func (c *Cluster) Info() cluster.Info { return c.options.Info() }

// Config implements cluster.Cluster. Its connections are made inside the API server's namespace: the harness itself is not
// in the VPC.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Ping implements cluster.Cluster.
func (c *Cluster) Ping(pod cluster.Pod) (net.PacketConn, error) {
	ns, err := netlab.Open(sandbox.PodPath(podsDir, pod.Node, pod.NamespacedName))
	if err != nil {
		return nil, fmt.Errorf("open namespace of pod %s: %w", pod, err)
	}
	var conn net.PacketConn
	err = ns.Do(func() (err error) {
		conn, err = ping.Listen()
		return err
	})
	return conn, errors.Join(err, ns.Close()) // the socket stays in the namespace after the handle is closed
}

// Reconfigure implements cluster.Cluster.
func (c *Cluster) Reconfigure(ctx context.Context, settings map[string]string) error {
	if err := c.admit(ctx, settings); err != nil {
		return err
	}
	err := c.onNodes(ctx, func(n *node, ctx context.Context) error { return n.reconfigure(ctx, settings) })
	return errors.Join(err, c.retire(ctx))
}

// SetPolicy implements cluster.Gated.
func (c *Cluster) SetPolicy(ctx context.Context, policy cluster.Policy) error {
	return c.onNodes(ctx, func(n *node, ctx context.Context) error { return n.setPolicy(ctx, policy) })
}

// Order implements cluster.Orderer.
func (c *Cluster) Order(ctx context.Context, name string, order sandbox.Order, pod types.UID) error {
	for _, n := range c.nodes {
		if n.name == name {
			return sandbox.Ask(ctx, n.control(), order, pod)
		}
	}
	return fmt.Errorf("order %s: there is no node %q", order, name)
}

// Follow implements cluster.Follower.
func (c *Cluster) Follow(f func(event.Event)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.next
	c.next++
	c.followers[id] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.followers, id)
	}
}

func (c *Cluster) tell(e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.followers {
		f(e)
	}
}

// Guard gives a context that ends, with a *DiedError as its cause, as soon as a process of the cluster ends by itself.
func (c *Cluster) Guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case died := <-c.dead:
			c.dead <- died // for the next Guard
			cancel(died)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// watch reports the process's end unless it was asked for.
func (c *Cluster) watch(p *process) {
	go func() {
		<-p.ended
		if p.asked() {
			return
		}
		select {
		case c.dead <- p.died():
		default: // an earlier one is told already
		}
	}()
}

// launch starts a program of the cluster and watches it.
func (c *Cluster) launch(p program) (*process, error) {
	started, err := launch(c.options.Logs, p)
	if err != nil {
		return nil, err
	}
	c.watch(started)
	return started, nil
}

// Stop ends all processes, those first that speak to others, and removes what they shared, so that another cluster can be
// booted. Logs stay.
func (c *Cluster) Stop(ctx context.Context) error {
	return c.show.step(ctx, "stop", func(ctx context.Context) error {
		errs := []error{c.onNodes(ctx, (*node).stop)}
		for _, p := range []*process{c.control, c.fake} {
			if p != nil {
				errs = append(errs, p.stop(ctx))
			}
		}
		return errors.Join(append(errs, c.clean())...)
	})
}

// clean removes the namespaces of pods, which outlive their kubelets, and the shared folder.
func (c *Cluster) clean() error {
	errs := []error{c.inside.Close()}
	left, err := filepath.Glob(filepath.Join(podsDir, "netns", "*"))
	errs = append(errs, err)
	for _, path := range left {
		errs = append(errs, netlab.Remove(path))
	}
	if err := os.RemoveAll(stateDir); err != nil {
		errs = append(errs, fmt.Errorf("remove folder of the cluster: %w", err))
	}
	return errors.Join(errs...)
}

// onNodes does one thing on all nodes at once.
func (c *Cluster) onNodes(ctx context.Context, f func(*node, context.Context) error) error {
	errs := make([]error, len(c.nodes))
	var done sync.WaitGroup
	for i, n := range c.nodes {
		done.Go(func() { errs[i] = f(n, ctx) })
	}
	done.Wait()
	return errors.Join(errs...)
}

// Hints says how to look around in the cluster, for somebody inside its mount and PID namespaces.
func (c *Cluster) Hints() string {
	var out strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&out, "    nsenter --net=%s/netns/%s sh    # on %s\n", vpcDir, n.name, n.name)
	}
	fmt.Fprintf(&out, "    nsenter --net=%s/<node>/<namespace>_<pod> sh    # in a pod that you made (below)\n", filepath.Join(podsDir, "pods"))
	fmt.Fprintf(&out, "    curl -s http://127.0.0.1:61679/v1/enis    # on a node: what its daemon holds (also /v1/status)\n")
	fmt.Fprintf(&out, "    %s state --dir %s    # the VPC (also journal, drops)\n", binary("fakeec2"), vpcDir)
	fmt.Fprintf(&out, "    nsenter --net=%s/netns/%s kubectl --kubeconfig %s get pods -o wide\n",
		vpcDir, apiServerName, account.Kubeconfig(controlDir, account.Admin))
	fmt.Fprintf(&out, "    nsenter --net=%s/netns/%s kubectl --kubeconfig %s run probe --image none --overrides '{\"spec\":{\"nodeName\":\"%s\"}}'    # a pod\n",
		vpcDir, apiServerName, account.Kubeconfig(controlDir, account.Admin), c.nodes[0].name)
	fmt.Fprintf(&out, "    logs: %s\n", c.options.Logs)
	return out.String()
}
