package eksnode

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	cni "github.com/containernetworking/cni/pkg/types"
	result "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// Sandbox is a pod's on a node: its network namespace and what the runtime knows of it.
type Sandbox struct {
	types.NamespacedName
	UID  types.UID
	ID   string
	node *Node
	ns   *netlab.Namespace
}

// Sandbox makes the network namespace of a pod. The pod need not be in the API server.
func (n *Node) Sandbox(pod types.NamespacedName, uid types.UID) (*Sandbox, error) {
	var id [32]byte // as containerd's
	_, _ = rand.Read(id[:])
	s := &Sandbox{NamespacedName: pod, UID: uid, ID: hex.EncodeToString(id[:]), node: n}
	var err error
	s.ns, err = netlab.New(filepath.Join(n.tree.netns, s.file()))
	return s, err
}

func (s *Sandbox) file() string { return "cni-" + s.ID[:12] }

// Network is the pod's network namespace.
func (s *Sandbox) Network() *netlab.Namespace { return s.ns }

// Remove lets the namespace go.
func (s *Sandbox) Remove() error { return s.ns.Close() }

// Add has the node's plugins connect the pod, as a container runtime does, and gives its address.
func (s *Sandbox) Add(ctx context.Context) (netip.Addr, error) {
	list, config, err := s.node.libcni()
	if err != nil {
		return netip.Addr{}, err
	}
	got, err := config.AddNetworkList(ctx, list, s.runtimeConf())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("add pod %s to %s: %w", s.NamespacedName, s.node.name, err)
	}
	current, err := result.GetResult(got)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read result of ADD: %w", err)
	}
	if len(current.IPs) == 0 {
		return netip.Addr{}, errors.New("read result of ADD: it has no address")
	}
	address, ok := netip.AddrFromSlice(current.IPs[0].Address.IP)
	if !ok {
		return netip.Addr{}, fmt.Errorf("read result of ADD: %q is not an address", current.IPs[0].Address.IP)
	}
	return address.Unmap(), nil
}

// Del has the node's plugins disconnect the pod.
func (s *Sandbox) Del(ctx context.Context) error {
	list, config, err := s.node.libcni()
	if err != nil {
		return err
	}
	if err := config.DelNetworkList(ctx, list, s.runtimeConf()); err != nil {
		return fmt.Errorf("delete pod %s of %s: %w", s.NamespacedName, s.node.name, err)
	}
	return nil
}

// Env is what CNI puts into a plugin's environment for a command ("ADD", "DEL").
func (s *Sandbox) Env(command string) []string {
	rt := s.runtimeConf()
	args := &invoke.Args{
		Command: command, ContainerID: rt.ContainerID, NetNS: rt.NetNS, IfName: rt.IfName, PluginArgs: rt.Args, Path: pluginDir,
	}
	var env []string
	for _, variable := range args.AsEnv() {
		if cniVariable(variable) {
			env = append(env, variable)
		}
	}
	return env
}

// runtimeConf is what containerd passes for a pod. Source: containerd, internal/cri/server, cniNamespaceOpts.
func (s *Sandbox) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: s.ID, NetNS: filepath.Join(netnsDir, s.file()), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", s.Namespace}, {"K8S_POD_NAME", s.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", s.ID}, {"K8S_POD_UID", string(s.UID)},
		},
	}
}

// libcni gives the node's network configuration, and libcni with plugins that run on the node.
func (n *Node) libcni() (*libcni.NetworkConfigList, *libcni.CNIConfig, error) {
	list, err := libcni.NetworkConfFromFile(filepath.Join(n.tree.root, confDir, conflistName))
	if err != nil {
		return nil, nil, fmt.Errorf("read network configuration of %s: %w", n.name, err)
	}
	return list, libcni.NewCNIConfigWithCacheDir([]string{pluginDir}, n.cache, &onNode{node: n}), nil
}

// onNode runs plugins in a node's mount and network namespaces.
type onNode struct {
	node *Node
	version.PluginDecoder
}

var _ invoke.Exec = (*onNode)(nil)

// FindInPath implements invoke.Exec: the runtime's folder is the node's.
func (*onNode) FindInPath(plugin string, _ []string) (string, error) {
	return filepath.Join(pluginDir, plugin), nil
}

// ExecPlugin implements invoke.Exec. Of the environment the plugin gets what CNI says, and PATH.
func (o *onNode) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	return o.node.Plugin(ctx, path, stdin, environ)
}

// failed is the error of a plugin that ended with another code than 0.
func failed(stdout, stderr []byte, err error) error {
	var told cni.Error
	if json.Unmarshal(stdout, &told) == nil && told.Msg != "" {
		return &told
	}
	return fmt.Errorf("%w: %s%s", err, stdout, stderr)
}
