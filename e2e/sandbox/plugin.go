package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	cni "github.com/containernetworking/cni/pkg/types"
	result "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
)

// plugin runs the CNI plugins of a node's network configuration.
type plugin struct {
	confDir string
	config  *libcni.CNIConfig
}

func newPlugin(options Options) *plugin {
	cache := filepath.Join(options.Dir, "cni", options.Node)
	return &plugin{
		confDir: options.ConfDir,
		config:  libcni.NewCNIConfigWithCacheDir([]string{options.BinDir}, cache, nil),
	}
}

// errNoNetwork is returned while no network configuration is there.
var errNoNetwork = errors.New("no network configuration found")

// network reads the first network configuration of the folder, anew each time, as container runtimes do after a change.
func (p *plugin) network() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(p.confDir, []string{".conflist"})
	if err != nil {
		return nil, fmt.Errorf("look for network configuration: %w", err)
	}
	if len(files) == 0 {
		return nil, errNoNetwork
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("read network configuration: %w", err)
	}
	return list, nil
}

// callTimeout is the time that kubelet gives a sandbox call to its runtime (runtime-request-timeout).
const callTimeout = 2 * time.Minute

func (p *plugin) add(ctx context.Context, pod *corev1.Pod, in box) (netip.Addr, error) {
	list, err := p.network()
	if err != nil {
		return netip.Addr{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := p.config.AddNetworkList(ctx, list, runtimeConf(pod, in.id, in.path))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("add sandbox %s: %w", in.id, err)
	}
	return podAddress(got)
}

func (p *plugin) del(ctx context.Context, pod *corev1.Pod, id, netns string) error {
	list, err := p.network()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.config.DelNetworkList(ctx, list, runtimeConf(pod, id, netns)); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, err)
	}
	return nil
}

// runtimeConf is what containerd passes for a pod sandbox. Source: containerd, internal/cri/server, cniNamespaceOpts.
func runtimeConf(pod *corev1.Pod, id, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: id,
		NetNS:       netns,
		IfName:      "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", pod.Namespace},
			{"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", id},
			{"K8S_POD_UID", string(pod.UID)},
		},
	}
}

// podAddress is the address that kubelet would report: the first one of the result.
func podAddress(got cni.Result) (netip.Addr, error) {
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

// newSandboxID makes an id as containerd does: 32 random bytes in hex.
func newSandboxID() string {
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
