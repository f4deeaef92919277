// Package cluster is what an end-to-end suite needs of a cluster, whatever that cluster is made of.
//
// It owns no process and no machine: implementations do (cluster/netns: this machine's namespaces). A suite that needs
// more than Cluster offers asks for one of the small interfaces beside it and is skipped where the cluster lacks it. Start
// with Cluster.
package cluster

import (
	"context"
	"io"
	"net"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vpc-cni/vpc-cni/e2e/apiproxy"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
)

// Cluster is a running cluster whose nodes run this project's daemon.
type Cluster interface {
	// Info says what the cluster is.
	Info() Info
	// Config is the administrator's access to the API server.
	Config() *rest.Config
	// Reconfigure restarts every node's daemon with its present settings and these on top, as an operator's rollout does,
	// and waits until all serve. A setting with the value Unset is taken away.
	Reconfigure(ctx context.Context, settings map[string]string) error
	// Ping opens an ICMP socket for echo requests in a running pod's network namespace (see package ping).
	Ping(pod Pod) (net.PacketConn, error)
}

// Unset as a setting's value takes the setting away, so that the daemon's default holds.
const Unset = "\x00unset"

// Pod is a pod and the node that it is bound to.
type Pod struct {
	types.NamespacedName
	Node string
}

// Info is what a cluster is.
type Info struct {
	Kind   string // "netns"
	Nodes  []Node
	Labels []string // what suites may be run here, as Ginkgo labels
	Logs   string   // folder of every process's log
	// DaemonUser is the user that the daemons are to the API server, and DaemonRole the ClusterRole that lets them patch pods.
	DaemonUser, DaemonRole string
}

// Node is one node.
type Node struct {
	Name         string
	InstanceType string
	Capacity     int // pods with an address of their own that the node can hold
}

// Capacity is how many pods with an address of their own the cluster can hold.
func (i Info) Capacity() int {
	sum := 0
	for _, node := range i.Nodes {
		sum += node.Capacity
	}
	return sum
}

// Follower is a cluster that tells what its kubelets and policy agents do, as it happens.
type Follower interface {
	// Follow calls f for every event from now on, in each program's order, until stop is called. F must not block.
	Follow(f func(event.Event)) (stop func())
}

// Orderer is a cluster whose kubelets can be told to misbehave.
type Orderer interface {
	Order(ctx context.Context, node string, order sandbox.Order, pod types.UID) error
}

// Daemons is a cluster whose daemons can be ended and started one by one; pods stay.
type Daemons interface {
	StopDaemon(ctx context.Context, node string) error
	// StartDaemon starts a daemon that StopDaemon has ended, and waits until it serves.
	StartDaemon(ctx context.Context, node string) error
}

// Breakable is a cluster in which the way from a node's daemon, and from nothing else, to the API server can be made bad.
type Breakable interface {
	SetWay(node string, way apiproxy.Way) error
}

// Audited is a cluster whose API server keeps an audit log of pods: writes with what they led to, and what the daemons read.
type Audited interface {
	// Audit reads the log so far, one JSON object of audit.k8s.io/v1 a line.
	Audit() (io.ReadCloser, error)
}

// Metered is a cluster whose daemons' metrics can be read.
type Metered interface {
	Metrics(ctx context.Context, node string) (page string, err error)
}

// Policy is how the policy agents behave.
type Policy struct {
	Annotation  bool // they read the CNI's annotation
	DefaultDeny bool // they drop the traffic of pods that they do not know
}

// Gated is a cluster whose policy agents can be changed.
type Gated interface {
	// SetPolicy restarts every node's policy agent and waits until all know their pods.
	SetPolicy(ctx context.Context, policy Policy) error
}
