package ipamd_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/install"
)

// daemonVar makes this test program a daemon: it is then what cmd/ipamd is, without a second build.
const daemonVar = "VPC_TEST_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(daemonVar) != "" {
		os.Exit(runDaemon())
	}
	kubetest.Main(m)
}

func runDaemon() int {
	settings, err := config.Load(config.Environment(), annotate.Keys)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := underFire(settings, log).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// patience is how long a process, a link or a packet may take on a busy machine.
const patience = 20 * time.Second

// world is a simulated AWS with one node, in namespaces that the test made.
type world struct {
	t        *testing.T
	dir      string
	bin      string
	model    *vpc.VPC
	plane    *dataplane.Plane
	faults   *fault.Table
	instance vpc.Instance
	node     *netlab.Namespace
	env      []string
	runtime  *libcni.CNIConfig
	list     atomic.Pointer[libcni.NetworkConfigList] // as read last
	daemon   *exec.Cmd
	ended    chan error
	log      *os.File
}

// buildPlugin compiles the real plugin once.
var buildPlugin = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("/run", "bin") // a tmpfs of this test program alone
	if err != nil {
		return "", err
	}
	output, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(folder, install.PluginName), "../cni/cmd/aws-cni").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build plugin: %w: %s", err, output)
	}
	return folder, nil
})

// newWorld builds a VPC whose instance type has 2 ENIs with 2 pod addresses each. Settings are added to the environment of
// the daemon, which is not started yet.
func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	return newWorldOf(t, vpc.InstanceType{Name: "toy", ENIs: 2, IPv4: 3}, settings...)
}

func newWorldOf(t *testing.T, kind vpc.InstanceType, settings ...string) *world {
	t.Helper()
	bin, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/run", "w") // short: a socket's address has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, bin: bin, faults: &fault.Table{}}
	w.model = vpc.New(vpc.Options{
		Seed: 7, AttachDelay: 100 * time.Millisecond, LinkDelay: 300 * time.Millisecond, DetachDelay: 300 * time.Millisecond, IMDSLag: -1,
		Types: []vpc.InstanceType{kind},
	})
	w.furnish(kind.Name)
	w.drive()
	w.runtime = libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(dir, "cache"), nil)
	w.env = append([]string{
		daemonVar + "=1", "PATH=/nonexistent", "NETLAB_INSIDE=" + os.Getenv("NETLAB_INSIDE"),
		"AWS_ENDPOINT_URL_EC2=http://" + ec2Addr + ":80", "AWS_ACCESS_KEY_ID=AKIDTEST", "AWS_SECRET_ACCESS_KEY=secret",
		"MY_NODE_NAME=node-1", "WARM_ENI_TARGET=0", "WARM_IP_TARGET=0", "IP_COOLDOWN_PERIOD=1",
		"VPC_CNI_SOCKET=" + w.socket(), "VPC_CNI_STATE_DIR=" + filepath.Join(dir, "state"),
		"HOST_CNI_CONFDIR_PATH=" + filepath.Join(dir, "net.d"), "HOST_CNI_BIN_PATH=" + bin,
		"AWS_VPC_K8S_PLUGIN_LOG_FILE=" + filepath.Join(dir, "plugin.log"),
		"INTROSPECTION_BIND_ADDRESS=unix:" + filepath.Join(dir, "introspection.sock"),
		"VPC_CNI_METRICS_BIND_ADDRESS=unix:" + filepath.Join(dir, "metrics.sock"),
	}, settings...)
	return w
}

// ec2Addr is the EC2 endpoint, a service address of the VPC that the node reaches by its primary ENI.
const ec2Addr = "10.0.255.20"

func (w *world) furnish(kind string) {
	w.t.Helper()
	network, err := w.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	w.check(err)
	nodes, err := w.model.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	w.check(err)
	services, err := w.model.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.0.255.0/24")})
	w.check(err)
	w.check(w.model.AddService(vpc.Service{Name: "ec2", Addr: netip.MustParseAddr(ec2Addr), SubnetID: services.ID}))
	w.instance, err = w.model.Launch(time.Now(), vpc.LaunchInput{Type: kind, SubnetID: nodes.ID, Name: "node-1", Role: "node"})
	w.check(err)
}

// drive makes the world's namespaces, serves EC2 and metadata in them, and lets time pass in the model.
func (w *world) drive() {
	w.t.Helper()
	metadata := imds.New(w.model, imds.Options{})
	w.plane = dataplane.New(w.model, dataplane.Options{Dir: w.dir, Metadata: metadata})
	w.check(w.plane.Sync())
	w.node = w.open("node-1")
	endpoint := w.open("ec2")
	listener, err := endpoint.Listen(w.t.Context(), "tcp", ec2Addr+":80")
	w.check(err)
	server := &http.Server{Handler: ec2api.New(ec2api.Options{VPC: w.model, Faults: w.faults}), ReadHeaderTimeout: patience}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { _ = w.plane.Run(ctx) })
	running.Go(func() { w.tick(ctx) })
	w.t.Cleanup(func() {
		stop()
		_ = server.Close()
		running.Wait()
		w.check(w.node.Close())
		w.check(endpoint.Close())
		w.check(w.plane.Close())
	})
}

// tick carries out the model's transitions when they are due.
func (w *world) tick(ctx context.Context) {
	for {
		changed := w.model.Changed()
		wait := time.Hour
		if next, ok := w.model.Next(); ok {
			wait = time.Until(next)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case now := <-timer.C:
			w.model.Advance(now)
		}
	}
}

func (w *world) open(name string) *netlab.Namespace {
	w.t.Helper()
	ns, err := netlab.Open(filepath.Join(w.dir, "netns", name))
	w.check(err)
	return ns
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) socket() string { return filepath.Join(w.dir, "cni.sock") }

// start starts the daemon in the node's namespace and waits for its network configuration, the sign for the runtime that
// pods can start. It is stopped at the test's end, and its log is shown if the test failed.
func (w *world) start() {
	w.t.Helper()
	w.launch()
	conflist := filepath.Join(w.dir, "net.d", install.FileName)
	w.await("network configuration", func() bool {
		_, err := os.Stat(conflist)
		return err == nil && w.status() == nil
	})
}

func (w *world) launch() {
	w.t.Helper()
	self, err := os.Executable()
	w.check(err)
	if w.log == nil {
		w.log, err = os.Create(filepath.Join(w.dir, "ipamd.log"))
		w.check(err)
		w.t.Cleanup(func() {
			w.kill()
			if w.t.Failed() {
				text, _ := os.ReadFile(w.log.Name())
				w.t.Logf("daemon's log:\n%s", text)
			}
			_ = w.log.Close()
		})
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, w.log, w.log
	w.check(w.node.Start(cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	w.daemon, w.ended = cmd, ended
}

// end signals the daemon and waits for its end.
func (w *world) end(sig syscall.Signal) error {
	w.t.Helper()
	w.check(w.daemon.Process.Signal(sig))
	select {
	case err := <-w.ended:
		w.daemon = nil
		return err
	case <-time.After(patience):
		w.t.Fatalf("daemon does not end on %s", sig)
		return nil
	}
}

func (w *world) kill() {
	if w.daemon != nil {
		_ = w.daemon.Process.Kill()
		<-w.ended //nolint:errcheck // killed: how it ended is known
		w.daemon = nil
	}
}

func (w *world) status() error {
	client, err := api.Dial(w.t.Context(), w.socket())
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Status(w.t.Context())
}

// await polls for what another process or the kernel does.
func (w *world) await(what string, met func() bool) {
	w.t.Helper()
	w.awaitFor(patience, what, met)
}

// pod is a sandbox and what ADD gave it.
type pod struct {
	ns   *netlab.Namespace
	conf *libcni.RuntimeConf
	addr netip.Addr
}

// sandbox makes a pod's namespace, as a container runtime does before ADD.
func (w *world) sandbox(name string) *pod {
	w.t.Helper()
	ns, err := netlab.New(filepath.Join(w.dir, "pods", name))
	w.check(err)
	w.t.Cleanup(func() { _ = ns.Close() })
	return &pod{ns: ns, conf: runtimeConf("sandbox-"+name, ns.Path(), [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name},
		{"K8S_POD_INFRA_CONTAINER_ID", "sandbox-" + name}, {"K8S_POD_UID", "uid-" + name},
	})}
}

// inNode calls libcni as a runtime on the node would, with the configuration that the daemon wrote. A runtime keeps what it
// has read.
func (w *world) inNode(f func(list *libcni.NetworkConfigList) error) error {
	list, err := libcni.ConfListFromFile(filepath.Join(w.dir, "net.d", install.FileName))
	if err == nil {
		w.list.Store(list)
	} else if list = w.list.Load(); list == nil {
		return err
	}
	return w.node.Do(func() error { return f(list) })
}

func (w *world) tryAdd(p *pod) error {
	return w.inNode(func(list *libcni.NetworkConfigList) error {
		raw, err := w.runtime.AddNetworkList(context.Background(), list, p.conf)
		if err != nil {
			return err
		}
		result, err := current.NewResultFromResult(raw)
		if err != nil {
			return err
		}
		if len(result.IPs) != 1 {
			return fmt.Errorf("result has %d addresses", len(result.IPs))
		}
		addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
		p.addr = addr.Unmap()
		return nil
	})
}

func (w *world) add(name string) *pod {
	w.t.Helper()
	p := w.sandbox(name)
	if err := w.tryAdd(p); err != nil {
		w.t.Fatalf("ADD %s: %v", name, err)
	}
	return p
}

func (w *world) cniCheck(p *pod) error {
	return w.inNode(func(list *libcni.NetworkConfigList) error {
		return w.runtime.CheckNetworkList(context.Background(), list, p.conf)
	})
}

func (w *world) del(p *pod) {
	w.t.Helper()
	w.check(w.tryDel(p))
}

func (w *world) tryDel(p *pod) error {
	return w.inNode(func(list *libcni.NetworkConfigList) error {
		return w.runtime.DelNetworkList(context.Background(), list, p.conf)
	})
}

// reaches fails the test unless a pod can talk, over the laws of the VPC, with the EC2 endpoint: out by the right ENI with
// its own address, and back.
func (w *world) reaches(p *pod, address string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conn, err := p.ns.DialContext(ctx, "tcp", address)
	if err != nil {
		w.t.Errorf("pod %s (%s) to %s: %v", p.conf.ContainerID, p.addr, address, err)
		return
	}
	if local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); local != p.addr {
		w.t.Errorf("pod %s speaks as %s", p.addr, local)
	}
	_ = conn.Close()
}

// page reads a page over the daemon's unix socket.
func (w *world) page(socket, path string) string {
	w.t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.dir, socket))
	}}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://node" + path)
	w.check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	w.check(err)
	return response.Status + "\n" + string(body)
}
