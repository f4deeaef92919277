package ipamd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/crash"
	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/install"
)

// crashVar names the folder with a test's orders to the daemon.
const crashVar = "VPC_TEST_CRASH"

// Times of the daemon that a test with hundreds of restarts cannot wait for.
const (
	fireAudit   = 300 * time.Millisecond
	fireSurplus = 300 * time.Millisecond
	fireSettle  = time.Second
)

// underFire is the daemon's options: where the environment names a folder, its effects obey the orders there.
func underFire(settings config.Settings, log *slog.Logger) ipamd.Options {
	o := ipamd.Options{Settings: settings, Log: log}
	if folder := os.Getenv(crashVar); folder != "" {
		o.Around = crash.Role{Dir: folder, Name: "daemon"}.Around()
		o.Audit, o.SurplusAge, o.Settle = fireAudit, fireSurplus, fireSettle
	}
	return o
}

// fire is a world in which the daemon and the plugin are killed, with a real API server behind an address of the VPC.
type fire struct {
	*world
	daemonRole, pluginRole crash.Role
	admin                  client.Client
	namespace, nodeName    string
	key                    string       // of the annotation
	life                   atomic.Int64 // number of the daemon's life; 0 while none is ready

	mu      sync.Mutex
	gone    chan struct{} // closed when the daemon has ended
	lives   int64
	serial  int
	live    map[string]*guest // by sandbox: ADD gave a result, DEL has not begun
	holders map[netip.Addr]string
	past    []*guest // ended; their objects in the API are still there
	trains  map[string]*ping.Train
}

// guest is a sandbox with its object in the API.
type guest struct {
	*pod
	object *corev1.Pod
}

var buildCrashPlugin = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("/run", "bin")
	if err != nil {
		return "", err
	}
	output, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(folder, install.PluginName), "../e2e/crash/aws-cni").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build plugin: %w: %s", err, output)
	}
	return folder, nil
})

// newFire makes a world with room for 40 ENIs of 3 pod addresses each: an ADD that a restart cut off keeps its address out
// of use for half a minute. Two pods run in it, on two ENIs, and are pinged from all sides until the end.
func newFire(t *testing.T, name string) *fire {
	t.Helper()
	f := &fire{
		world:    newWorldOf(t, vpc.InstanceType{Name: "wide", ENIs: 40, IPv4: 4}),
		nodeName: name, namespace: name, key: annotate.DefaultKey,
		live: map[string]*guest{}, holders: map[netip.Addr]string{}, trains: map[string]*ping.Train{},
	}
	bin, err := buildCrashPlugin()
	f.check(err)
	f.daemonRole, f.pluginRole = crash.Role{Dir: f.dir, Name: "daemon"}, crash.Role{Dir: f.dir, Name: "plugin"}
	f.model.SetDelays(vpc.Delays{Attach: 20 * time.Millisecond, Link: 50 * time.Millisecond, Detach: 50 * time.Millisecond, IMDS: -1})
	f.cluster()
	f.env = append(f.env, crashVar+"="+f.dir, "HOST_CNI_BIN_PATH="+bin, "MY_NODE_NAME="+name, "ANNOTATE_POD_IP=true",
		"HOST_CNI_CACHE_PATH="+filepath.Join(f.dir, "cache"), "KUBECONFIG="+filepath.Join(f.dir, "kubeconfig"), "WARM_IP_TARGET=1", "IP_COOLDOWN_PERIOD=0")
	f.runtime = libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(f.dir, "cache"), nil)
	f.bin = bin
	f.log, err = os.Create(filepath.Join(f.dir, "ipamd.log"))
	f.check(err)
	t.Cleanup(f.stop)
	f.start()
	f.settleIn()
	return f
}

// stop ends the daemon and shows the end of its log if the test failed.
func (f *fire) stop() {
	f.kill()
	if f.t.Failed() {
		text, _ := os.ReadFile(f.log.Name())
		lines := strings.Split(string(text), "\n")
		f.t.Logf("end of the daemon's log:\n%s", strings.Join(lines[max(0, len(lines)-150):], "\n"))
		text, _ = os.ReadFile(filepath.Join(f.dir, "plugin.log"))
		lines = strings.Split(string(text), "\n")
		f.t.Logf("end of the plugin's log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	_ = f.log.Close()
}

// cluster gives the world its part of the API server: a namespace, a user for the daemon, and a way from the VPC.
func (f *fire) cluster() {
	f.t.Helper()
	server, err := apiServer()
	f.check(err)
	f.admin, err = client.New(server.Config(), client.Options{})
	f.check(err)
	namespace := &corev1.Namespace{}
	namespace.Name = f.namespace
	f.check(f.admin.Create(f.t.Context(), namespace))
	f.grant()
	path := filepath.Join(f.dir, "kubeconfig")
	f.check(server.Kubeconfig(path, f.nodeName))
	kubeconfig, err := clientcmd.LoadFromFile(path)
	f.check(err)
	token := f.token()
	for _, user := range kubeconfig.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: token}
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = "https://" + apiAddr + ":6443"
		cluster.TLSServerName = kubetest.Address // what the certificate names
	}
	f.check(clientcmd.WriteToFile(*kubeconfig, path))
	services := f.model.Services()[0].SubnetID
	f.check(f.model.AddService(vpc.Service{Name: "apiserver", Addr: netip.MustParseAddr(apiAddr), SubnetID: services}))
	place := filepath.Join(f.dir, "netns", "apiserver")
	f.await("namespace of the API server's address", func() bool { _, err := os.Stat(place); return err == nil && f.plane.Sync() == nil })
	(&annotated{world: f.world}).passOn(f.open("apiserver"))
}

// settleIn starts the pods that run all the time, and their pings.
func (f *fire) settleIn() {
	f.t.Helper()
	var names []string
	for range 4 { // 3 addresses on the primary ENI
		g := f.begin("resident")
		f.check(f.add(g))
		names = append(names, g.conf.ContainerID)
	}
	first, last := f.live[names[0]], f.live[names[3]]
	for _, middle := range names[1:3] {
		f.check(f.end(f.live[middle]))
	}
	endpoint := f.open("ec2")
	f.t.Cleanup(func() { _ = endpoint.Close() })
	away := netip.MustParseAddr(ec2Addr)
	for _, route := range []struct {
		name string
		from *netlab.Namespace
		to   netip.Addr
	}{
		{"first pod to the VPC", first.ns, away}, {"the VPC to the first pod", endpoint, first.addr},
		{"last pod to the VPC", last.ns, away}, {"the VPC to the last pod", endpoint, last.addr},
		{"first to last pod", first.ns, last.addr}, {"node to the last pod", f.node, last.addr},
	} {
		var conn net.PacketConn
		f.check(route.from.Do(func() (err error) { conn, err = ping.Listen(); return err }))
		prober := ping.NewProber(conn)
		ctx, stop := context.WithCancel(context.Background())
		train := prober.Start(ctx, route.to, 20*time.Millisecond)
		f.t.Cleanup(func() { stop(); <-train.Done(); _ = prober.Close() })
		f.trains[route.name] = train
	}
}

// launch starts the daemon; gone is closed when it ends.
func (f *fire) launch() {
	f.t.Helper()
	f.world.launch()
	gone, ended, relay := make(chan struct{}), f.ended, make(chan error, 1)
	go func() {
		err := <-ended
		f.life.Store(0)
		close(gone)
		relay <- err
	}()
	f.ended = relay
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = gone
	f.lives++
}

func (f *fire) dead() bool {
	select {
	case <-f.ending():
		return true
	default:
		return false
	}
}

func (f *fire) ending() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}

// struckError is a failure that the death of a process explains: what a test with orders waits for.
type struckError struct{ why error }

func (e struckError) Error() string { return "struck: " + e.why.Error() }

// struck marks an error that the death of a process since the given life explains.
func (f *fire) struck(life int64, err error) error {
	if err == nil {
		return nil
	}
	if _, fired := f.pluginRole.Fired(); fired || life == 0 || f.life.Load() != life {
		return struckError{err}
	}
	select {
	case <-f.ending(): // its end takes a moment to be seen
		return struckError{err}
	case <-time.After(2 * time.Second):
		return err
	}
}

// unexplained leaves out of an error what deaths explain.
func unexplained(err error) error {
	switch e := err.(type) {
	case struckError:
		return nil
	case interface{ Unwrap() []error }:
		var left []error
		for _, part := range e.Unwrap() {
			left = append(left, unexplained(part))
		}
		return errors.Join(left...)
	}
	return err
}

// until polls, until the daemon dies.
func (f *fire) until(what string, met func() bool) error { return f.within(patience, what, met) }

func (f *fire) within(limit time.Duration, what string, met func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !met(); <-tick.C {
		if f.dead() {
			return struckError{errors.New(what + ": the daemon is dead")}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s", what, limit)
		}
	}
	return nil
}

// ready waits until pods can start.
func (f *fire) ready() error {
	conflist := filepath.Join(f.dir, "net.d", install.FileName)
	if err := f.until("readiness", func() bool {
		_, err := os.Stat(conflist)
		return err == nil && f.status() == nil
	}); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life.Store(f.lives)
	return nil
}

// start starts the daemon, which must get ready.
func (f *fire) start() {
	f.t.Helper()
	f.launch()
	f.check(f.ready())
}

// halt kills the daemon from outside.
func (f *fire) halt() {
	f.t.Helper()
	if f.daemon != nil {
		_ = f.daemon.Process.Signal(syscall.SIGKILL)
		<-f.ending()
		f.daemon = nil
	}
}
