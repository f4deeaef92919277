package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/vpc-cni/vpc-cni/e2e/account"
)

// What is said to, or of, a single node. A name that is not in Info is an error.

func (c *Cluster) node(name string) (*node, error) {
	for _, n := range c.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q", name)
}

// Places is where a container runtime finds what it needs on a node.
type Places struct {
	Namespace       string // the node's network namespace
	ConfDir, BinDir string // network configurations, plugins
}

// Places gives a node's.
func (c *Cluster) Places(name string) (Places, error) {
	n, err := c.node(name)
	if err != nil {
		return Places{}, err
	}
	return Places{Namespace: n.ns.Path(), ConfDir: n.dir("net.d"), BinDir: n.dir("bin")}, nil
}

// Place is where a machine or service of the VPC is.
type Place struct {
	Namespace string     // network namespace
	Address   netip.Addr // primary
	Public    netip.Addr // what the internet sees it as
}

// Machine gives the place of one of Options.Machines.
func (c *Cluster) Machine(name string) (Place, error) {
	for i, m := range c.options.Machines {
		if m.Name == name {
			return Place{Namespace: filepath.Join(vpcDir, "netns", name), Address: tenth(machineSubnet(i)), Public: public(c.options.Nodes + i)}, nil
		}
	}
	return Place{}, fmt.Errorf("there is no machine %q", name)
}

// Internet is a host outside the VPC.
func (c *Cluster) Internet() Place {
	address := netip.MustParseAddr(internetAddress)
	return Place{Namespace: filepath.Join(vpcDir, "netns", internetName), Address: address, Public: address}
}

// EC2 is where the EC2 API is answered, for nodes, and the socket of the fake's operator (see fakeec2).
func (c *Cluster) EC2() (url, admin string) {
	return "http://" + ec2Address, filepath.Join(vpcDir, "admin.sock")
}

// ReconfigureNode is Reconfigure for one node.
func (c *Cluster) ReconfigureNode(ctx context.Context, name string, settings map[string]string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	if err := c.admit(ctx, settings); err != nil {
		return err
	}
	return errors.Join(n.reconfigure(ctx, settings), c.retire(ctx))
}

// StopDaemon ends a node's daemon.
func (c *Cluster) StopDaemon(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	return n.daemon.stop(ctx)
}

// LaunchDaemon starts a node's daemon, which StopDaemon has ended, and does not wait for it.
func (c *Cluster) LaunchDaemon(name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	return n.launchDaemon(context.Background())
}

// DaemonPID is the process id of a node's daemon.
func (c *Cluster) DaemonPID(name string) (int, error) {
	n, err := c.node(name)
	if err != nil {
		return 0, err
	}
	return n.daemon.cmd.Process.Pid, nil // a program whose niceness is set is exec'd by nice(1) in the same process
}

// StopKubelet ends a node's kubelet: its pods stay, and pods that are bound to the node from then on are nobody's.
func (c *Cluster) StopKubelet(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	return n.kubelet.stop(ctx)
}

// APIServer is where the API server is: its network namespace, in which etcd listens too, and its address and port.
func (c *Cluster) APIServer() (namespace, address string) {
	return filepath.Join(vpcDir, "netns", apiServerName), apiServerAddress
}

// UserConfig is the kubeconfig of one of the harness's users, good in the API server's namespace and on every node.
func (c *Cluster) UserConfig(user account.User) string { return account.Kubeconfig(controlDir, user) }
