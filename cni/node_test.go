package cni_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// The test process' own namespace, which netlab made, is the node.
func TestMain(m *testing.M) { netlab.Main(m) }

const network = "aws-cni"

// buildOnce compiles the plugin as it is released.
var buildOnce = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("/run", "bin") // a tmpfs of this test alone
	if err != nil {
		return "", err
	}
	return folder, compile(filepath.Join(folder, "aws-cni"), "./cmd/aws-cni")
})

// compile builds a program with the flags of a release.
func compile(into, source string) error {
	output, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", into, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %s: %w: %s", source, err, output)
	}
	return nil
}

// node is a daemon in memory behind a real socket, the plugin behind libcni, and the kernel between.
type node struct {
	t         testing.TB
	allocator *allocator
	folder    string
	bin       string
	stop      func()
	list      *libcni.NetworkConfigList
	runtime   *libcni.CNIConfig
}

func newNode(t testing.TB, version string) *node {
	t.Helper()
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("/run", "node") // a short path: a socket's address has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, allocator: newAllocator(), folder: folder, bin: bin, stop: func() {}}
	n.list, err = libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion":%q,"name":%q,"plugins":[{"type":"aws-cni","socket":%q,"logFile":%q}]}`,
		version, network, n.socket(), folder+"/plugin.log"))
	if err != nil {
		t.Fatal(err)
	}
	n.runtime = libcni.NewCNIConfigWithCacheDir([]string{bin}, folder+"/cache", nil)
	n.start()
	t.Cleanup(func() {
		n.stop()
		n.sweep()
		_ = os.RemoveAll(folder)
	})
	return n
}

func (n *node) socket() string { return n.folder + "/cni.sock" }

// start brings the daemon up; stop is then its end.
func (n *node) start() {
	n.t.Helper()
	listener, err := api.Listen(n.socket())
	if err != nil {
		n.t.Fatal(err)
	}
	server := api.NewServer(n.allocator, n.allocator, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			n.t.Errorf("Serve: %v", err)
		}
	})
}

// sandbox is a pod's sandbox as a runtime makes it.
type sandbox struct {
	*libcni.RuntimeConf
	ns *netlab.Namespace
}

func (n *node) sandbox(id, pod string) sandbox {
	n.t.Helper()
	ns, err := netlab.New(filepath.Join(n.folder, "netns", id))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ns.Close() })
	return sandbox{ns: ns, RuntimeConf: &libcni.RuntimeConf{
		ContainerID: id, NetNS: ns.Path(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", pod},
			{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", "uid-of-" + id},
		},
	}}
}

func (n *node) add(s sandbox) *current.Result {
	n.t.Helper()
	result, err := n.tryAdd(s)
	if err != nil {
		n.t.Fatalf("ADD %s: %v", s.ContainerID, err)
	}
	return result
}

func (n *node) tryAdd(s sandbox) (*current.Result, error) {
	raw, err := n.runtime.AddNetworkList(context.Background(), n.list, s.RuntimeConf)
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(raw)
}

func (n *node) del(s sandbox) {
	n.t.Helper()
	if err := n.runtime.DelNetworkList(context.Background(), n.list, s.RuntimeConf); err != nil {
		n.t.Fatalf("DEL %s: %v", s.ContainerID, err)
	}
}

func (n *node) check(s sandbox) error {
	return n.runtime.CheckNetworkList(context.Background(), n.list, s.RuntimeConf)
}

// command is the plugin as the runtime executes it, for what libcni hides.
func (n *node) command(verb string, s sandbox, stdin string) *exec.Cmd {
	var args []string
	for _, pair := range s.Args {
		args = append(args, pair[0]+"="+pair[1])
	}
	cmd := exec.Command(filepath.Join(n.bin, "aws-cni"))
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + s.ContainerID, "CNI_NETNS=" + s.NetNS, "CNI_IFNAME=" + s.IfName,
		"CNI_PATH=" + n.bin, "CNI_ARGS=" + strings.Join(args, ";"),
	}
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// conf is what libcni would pass on stdin, with more keys.
func (n *node) conf(more string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":%q,"type":"aws-cni","socket":%q%s}`, n.list.CNIVersion, network, n.socket(), more)
}

// code is the CNI error code of a failed call, 0 for success.
func code(t testing.TB, err error) uint {
	t.Helper()
	if err == nil {
		return 0
	}
	var refused *types.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error is not CNI's: %v", err)
	}
	return refused.Code
}

// refused runs a command that must fail, and returns the error on its stdout.
func refused(t testing.TB, cmd *exec.Cmd) *types.Error {
	t.Helper()
	output, err := cmd.Output()
	var failed types.Error
	if jsonErr := json.Unmarshal(output, &failed); err == nil || jsonErr != nil {
		t.Fatalf("err %v, stdout %q", err, output)
	}
	return &failed
}

// leftovers lists pod links and pod routes of the node.
func (n *node) leftovers() []string {
	n.t.Helper()
	links, err := netlink.LinkList() //nolint:forbidigo // an interrupted dump fails the test, which says so
	if err != nil {
		n.t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if link.Type() == "veth" {
			found = append(found, "link "+link.Attrs().Name)
		}
	}
	for _, route := range n.podRoutes() {
		found = append(found, "route "+route.String())
	}
	return found
}

// sweep removes what a test left: the kernel itself takes its time to end a namespace that nobody holds.
func (n *node) sweep() {
	n.t.Helper()
	links, err := netlink.LinkList() //nolint:forbidigo // an interrupted dump fails the test, which says so
	if err != nil {
		n.t.Fatal(err)
	}
	for _, link := range links {
		if link.Type() == "veth" {
			_ = netlink.LinkDel(link)
		}
	}
}

func (n *node) podRoutes() []netlink.Route {
	n.t.Helper()
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: api.PodsTable}, netlink.RT_FILTER_TABLE) //nolint:forbidigo // as above
	if err != nil {
		n.t.Fatal(err)
	}
	return routes
}

// clean fails the test unless kernel and daemon are as before the first pod.
func (n *node) clean() {
	n.t.Helper()
	if found := n.leftovers(); len(found) > 0 {
		n.t.Errorf("kernel keeps %q", found)
	}
	if live := n.allocator.live(); live != 0 {
		n.t.Errorf("daemon keeps %d assignments", live)
	}
}

// await polls for what another process does.
func await(t testing.TB, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !met(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // pace of polling, bounded by the deadline
	}
}

// chain puts a program of the node's folder behind the plugin.
func (n *node) chain(t *testing.T, version, program string) {
	t.Helper()
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion":%q,"name":%q,"plugins":[{"type":"aws-cni","socket":%q},{"type":%q}]}`, version, network, n.socket(), program))
	if err != nil {
		t.Fatal(err)
	}
	n.list = list
	n.runtime = libcni.NewCNIConfigWithCacheDir([]string{n.bin, n.folder}, n.folder+"/cache", nil)
}
