package compare_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // names of links
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	cni "github.com/containernetworking/cni/pkg/types"
	result "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// node is a contender's machine and the container runtime on it, which is the same for both.
type node struct {
	contender
	tb      testing.TB
	side    string // of figures
	machine string
	list    *libcni.NetworkConfigList // of which only the contender's own plugin is called
	cache   string                    // libcni's
	next    int
}

// pod is one sandbox.
type pod struct {
	ns            *netlab.Namespace
	path          string // of the namespace, as the machine's programs see it
	id, name, uid string
}

// configure reads the network configuration, which must be there.
func (n *node) configure() {
	n.tb.Helper()
	text, err := n.conflist(n.tb.Context())
	check(n.tb, err)
	n.list, err = libcni.NetworkConfFromBytes(text)
	check(n.tb, err)
	n.list.Plugins = n.list.Plugins[:1]
}

// start starts the daemon and waits until it serves.
func (n *node) start() {
	n.tb.Helper()
	check(n.tb, n.Start(n.tb.Context()))
	n.configure()
}

// make makes the sandboxes of pods.
func (n *node) make(count int) []pod {
	n.tb.Helper()
	pods := make([]pod, count)
	for i := range pods {
		n.next++
		ns, path, err := n.room()
		check(n.tb, err)
		pods[i] = pod{ns: ns, path: path, id: n.id(), name: fmt.Sprintf("%s-%d", n.machine, n.next), uid: fmt.Sprintf("uid-%s-%d", n.machine, n.next)}
	}
	return pods
}

// id is one as containerd's, in length.
func (n *node) id() string {
	return fmt.Sprintf("%064x", uint64(time.Now().UnixNano())<<16|uint64(n.next)&0xffff)
}

// remove lets the namespaces of pods go, as a runtime does after DEL, and waits until their links are gone from the machine: the
// kernel takes its time for it, under the lock that every ADD needs. The incumbent's DEL leaves that to this moment.
func (n *node) remove(pods []pod) {
	n.tb.Helper()
	for _, p := range pods {
		check(n.tb, p.ns.Close())
	}
	ctx, cancel := context.WithTimeout(n.tb.Context(), goneTimeout)
	defer cancel()
	for {
		left, err := n.linked(pods)
		check(n.tb, err)
		if left == 0 {
			return
		}
		select {
		case <-time.After(gonePoll):
		case <-ctx.Done():
			n.tb.Fatalf("%s still has links of %d pods after %s", n.machine, left, goneTimeout)
		}
	}
}

const (
	goneTimeout = 30 * time.Second
	gonePoll    = time.Millisecond
)

// linked counts the pods whose link is on the machine. Both sides give it the same name: the prefix and the beginning of a hash.
func (n *node) linked(pods []pod) (count int, err error) {
	links := map[string]bool{}
	for _, p := range pods {
		links[fmt.Sprintf("eni%x", sha1.Sum([]byte("default."+p.name)))[:len("eni")+linkDigits]] = true //nolint:gosec // a name, no secret
	}
	err = n.Network().Do(func() error {
		all, err := net.Interfaces()
		for _, link := range all {
			if links[link.Name] {
				count++
			}
		}
		return err
	})
	return count, err
}

const linkDigits = 11

// call is what one call of the runtime came to.
type call struct {
	took    time.Duration // from the runtime's call of libcni until its result
	cpu     time.Duration // of the plugin's process, with its children's
	address netip.Addr    // of ADD
	err     error
}

// add and del have libcni call the plugin, as a runtime does for a pod.
func (n *node) add(ctx context.Context, p pod) (c call) {
	x := &execution{node: n}
	began := time.Now()
	got, err := n.libcni(x).AddNetworkList(ctx, n.list, n.runtimeConf(p))
	c = call{took: time.Since(began), cpu: x.cpu, err: err}
	if err == nil {
		c.address, c.err = address(got)
	}
	return c
}

func (n *node) del(ctx context.Context, p pod) call {
	x := &execution{node: n}
	began := time.Now()
	err := n.libcni(x).DelNetworkList(ctx, n.list, n.runtimeConf(p))
	return call{took: time.Since(began), cpu: x.cpu, err: err}
}

func (n *node) libcni(x *execution) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{n.pluginDir()}, n.cache, x)
}

// runtimeConf is what containerd passes. Source: containerd, internal/cri/server, cniNamespaceOpts.
func (n *node) runtimeConf(p pod) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.id, NetNS: p.path, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.id}, {"K8S_POD_UID", p.uid},
		},
	}
}

func address(got cni.Result) (netip.Addr, error) {
	current, err := result.GetResult(got)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read result of ADD: %w", err)
	}
	if len(current.IPs) == 0 {
		return netip.Addr{}, errors.New("read result of ADD: it has no address")
	}
	addr, ok := netip.AddrFromSlice(current.IPs[0].Address.IP)
	if !ok {
		return netip.Addr{}, fmt.Errorf("read result of ADD: %q is not an address", current.IPs[0].Address.IP)
	}
	return addr.Unmap(), nil
}

// verb is add or del.
type verb func(*node, context.Context, pod) call

// each does the same for all pods, one after the other, and must succeed.
func (n *node) each(do verb, pods []pod) (calls []call) {
	n.tb.Helper()
	for _, p := range pods {
		c := do(n, n.tb.Context(), p)
		check(n.tb, c.err)
		calls = append(calls, c)
	}
	return calls
}

// atOnce does the same for all pods at once, and must succeed; total is the time until the last is done.
func (n *node) atOnce(do verb, pods []pod) (calls []call, total time.Duration) {
	n.tb.Helper()
	calls = make([]call, len(pods))
	var done sync.WaitGroup
	began := time.Now()
	for i, p := range pods {
		done.Go(func() { calls[i] = do(n, n.tb.Context(), p) })
	}
	done.Wait()
	total = time.Since(began)
	for _, c := range calls {
		check(n.tb, c.err)
	}
	return calls, total
}

// execution is libcni's way to a plugin on the machine, and what the plugin's process used.
type execution struct {
	version.PluginDecoder
	node *node
	cpu  time.Duration
}

// FindInPath implements invoke.Exec: the folder is the machine's.
func (*execution) FindInPath(plugin string, paths []string) (string, error) {
	return filepath.Join(paths[0], plugin), nil
}

// ExecPlugin implements invoke.Exec.
func (x *execution) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.Command(path)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return !strings.HasPrefix(v, "CNI_") })...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err := x.node.Exec(ctx, cmd)
	if cmd.ProcessState != nil {
		x.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	var told cni.Error
	if json.Unmarshal(stdout.Bytes(), &told) == nil && told.Msg != "" {
		return nil, &told
	}
	return nil, fmt.Errorf("%w: %s%s", err, stdout.Bytes(), stderr.Bytes())
}
