package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	cni "github.com/containernetworking/cni/pkg/types"
	result "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// pluginName is the CNI plugin of these tests: this program under another name.
const pluginName = "recorder"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == pluginName {
		skel.PluginMainFuncs(skel.CNIFuncs{Add: record, Del: record}, version.All, "")
		return
	}
	netlab.Main(m)
}

// call is what the plugin notes of each of its runs.
type call struct {
	Command, ID, NetNS, Args string
	Prev                     bool // a prevResult was passed
	Alive                    bool // NetNS was there
}

// record is the plugin: it notes the call, fails as often as the file "failures" is long, and answers.
func record(args *skel.CmdArgs) error {
	dir := filepath.Dir(os.Getenv("CNI_PATH"))
	_, err := os.Stat(args.Netns)
	conf := struct {
		PrevResult json.RawMessage `json:"prevResult"`
	}{}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return err
	}
	line, err2 := json.Marshal(call{os.Getenv("CNI_COMMAND"), args.ContainerID, args.Netns, args.Args, len(conf.PrevResult) > 0, err == nil})
	file, err3 := os.OpenFile(filepath.Join(dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err := errors.Join(err2, err3); err != nil {
		return err
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		return err
	}
	if os.Getenv("CNI_COMMAND") != "ADD" {
		return nil
	}
	if os.Remove(filepath.Join(dir, "fail-once")) == nil {
		return errors.New("asked to fail")
	}
	_, address, _ := net.ParseCIDR("10.0.1.5/32")
	return cni.PrintResult(&result.Result{CNIVersion: "0.4.0", IPs: []*result.IPConfig{{Address: *address}}}, "0.4.0")
}

// rig is an agent with its plugin, its API, and a record of everything.
type rig struct {
	t       *testing.T
	dir     string
	options sandbox.Options
	api     *memoryAPI
	events  chan event.Event
	agent   *sandbox.Agent
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, dir: dir, events: make(chan event.Event, 64), api: &memoryAPI{handler: make(chan podapi.Handler, 1), pods: map[string]*corev1.Pod{}}}
	self, err := os.Executable()
	check(t, err)
	check(t, errors.Join(os.Mkdir(r.path("bin"), 0o755), os.Mkdir(r.path("net.d"), 0o755), os.Symlink(self, r.path("bin/"+pluginName))))
	r.options = sandbox.Options{
		Node: "node-a", NodeIP: netip.MustParseAddr("10.0.1.10"), Dir: r.path("pods"), ConfDir: r.path("net.d"), BinDir: r.path("bin"),
		Backoff: time.Millisecond, Events: event.NewLog(r),
	}
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// Write is the event log's end.
func (r *rig) Write(line []byte) (int, error) {
	err := event.Follow(bytes.NewReader(line), func(e event.Event) { r.events <- e })
	return len(line), err
}

func (r *rig) start() {
	r.t.Helper()
	r.agent = sandbox.New(r.options, r.api)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		check(r.t, <-ended)
		left, err := filepath.Glob(filepath.Join(r.options.Dir, "netns", "*")) // pods outlive their kubelet
		check(r.t, err)
		for _, path := range left {
			check(r.t, unix.Unmount(path, unix.MNT_DETACH))
		}
	})
	select {
	case r.api.watcher = <-r.api.handler:
	case <-time.After(deadline):
		r.t.Fatal("the agent does not watch")
	}
}

func (r *rig) network() {
	r.t.Helper()
	list := fmt.Sprintf(`{"name":"aws-cni","cniVersion":"0.4.0","plugins":[{"type":%q}]}`, pluginName)
	check(r.t, os.WriteFile(r.path("net.d/10-aws.conflist"), []byte(list), 0o600))
}

const deadline = 20 * time.Second

// expect waits for an event of a kind about a pod; others may come before it.
func (r *rig) expect(kind event.Kind, uid types.UID) event.Event {
	r.t.Helper()
	timeout := time.After(deadline)
	var seen []string
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind && e.UID == string(uid) {
				return e
			}
			seen = append(seen, fmt.Sprintf("%s %s %s", e.Kind, e.UID, e.Detail))
		case <-timeout:
			r.t.Fatalf("no event %s of %q; seen: %s", kind, uid, strings.Join(seen, "; "))
		}
	}
}

func (r *rig) calls() (calls []call) {
	r.t.Helper()
	text, err := os.ReadFile(r.path("calls"))
	check(r.t, err)
	for line := range strings.Lines(string(text)) {
		var c call
		check(r.t, json.Unmarshal([]byte(line), &c))
		calls = append(calls, c)
	}
	return calls
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPod(name, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

func TestAPodLivesAndDies(t *testing.T) {
	r := newRig(t)
	r.network()
	r.start()
	pod := newPod("web", "u1")
	r.api.create(pod)
	added := r.expect(event.AddDone, "u1")
	if added.Address != "10.0.1.5" {
		t.Errorf("address of ADD = %q", added.Address)
	}
	r.expect(event.ContainerStarted, "u1")
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	ns, err := netlab.Open(sandbox.PodPath(r.options.Dir, "node-a", name))
	check(t, err)
	check(t, ns.Close())
	r.expect(event.StatusPosted, "u1")
	r.api.mu.Lock()
	status := r.api.posted["u1"]
	r.api.mu.Unlock()
	if status.PodIP != "10.0.1.5" || status.Phase != corev1.PodRunning || status.HostIP != "10.0.1.10" {
		t.Errorf("posted status = %+v", status)
	}
	r.api.remove(pod)
	r.expect(event.PodGone, "u1")
	if _, err := os.Lstat(sandbox.PodPath(r.options.Dir, "node-a", name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link to the namespace is still there: %v", err)
	}
	id := added.Sandbox
	args := "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=" + id + ";K8S_POD_UID=u1"
	netns := filepath.Join(r.options.Dir, "netns", "cni-"+id[:12])
	want := []call{{"ADD", id, netns, args, false, true}, {"DEL", id, netns, args, true, true}}
	if diff := cmp.Diff(want, r.calls()); diff != "" {
		t.Errorf("calls of the plugin (-want +got):\n%s", diff)
	}
}

func TestTheNodeIsReadyWhenItsNetworkIs(t *testing.T) {
	r := newRig(t)
	r.start()
	r.expect(event.Ready, "")
	pod := newPod("early", "u1")
	r.api.create(pod)
	r.network()
	r.expect(event.NetworkReady, "")
	r.expect(event.AddDone, "u1")
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	if diff := cmp.Diff([]string{"created node-a", "node-a Ready=False", "node-a Ready=True"}, r.api.nodes); diff != "" {
		t.Errorf("said of the node (-want +got):\n%s", diff)
	}
}

func TestAFailedADDIsUndoneAndRepeatedInANewSandbox(t *testing.T) {
	r := newRig(t)
	r.network()
	check(t, os.WriteFile(r.path("fail-once"), nil, 0o600))
	r.start()
	r.api.create(newPod("web", "u1"))
	failed := r.expect(event.AddFailed, "u1")
	if !strings.Contains(failed.Detail, "asked to fail") {
		t.Errorf("detail = %q, want the plugin's words", failed.Detail)
	}
	added := r.expect(event.AddDone, "u1")
	if added.Sandbox == failed.Sandbox {
		t.Error("the second ADD reused the first sandbox")
	}
	var got []string
	for _, c := range r.calls() {
		got = append(got, c.Command+" "+c.ID)
	}
	want := []string{"ADD " + failed.Sandbox, "DEL " + failed.Sandbox, "ADD " + added.Sandbox}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestHostNetworkPodsGetNoCNICall(t *testing.T) {
	r := newRig(t)
	r.start() // without a network
	pod := newPod("agent", "u1")
	pod.Spec.HostNetwork = true
	r.api.create(pod)
	r.expect(event.StatusPosted, "u1")
	r.api.mu.Lock()
	if ip := r.api.posted["u1"].PodIP; ip != "10.0.1.10" {
		t.Errorf("status.podIP = %q, want the node's", ip)
	}
	r.api.mu.Unlock()
	r.api.remove(pod)
	r.expect(event.PodGone, "u1")
	if _, err := os.Stat(r.path("calls")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plugin was called: %v", err)
	}
}

func TestALateDELOfAnEarlierSandboxComesAfterTheNextADD(t *testing.T) {
	r := newRig(t)
	r.network()
	r.start()
	socket := r.path("control")
	listener, err := net.Listen("unix", socket)
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.agent.Serve(ctx, listener) }()
	defer func() {
		stop()
		check(t, <-served)
	}()

	first, second := newPod("db-0", "u1"), newPod("db-0", "u2")
	r.api.create(first)
	one := r.expect(event.AddDone, "u1")
	check(t, sandbox.Ask(ctx, socket, sandbox.HoldDEL, "u1"))
	r.api.watcher.Absent(first, time.Now()) // deleted by force
	r.expect(event.ContainerStopped, "u1")
	r.api.create(second)
	two := r.expect(event.AddDone, "u2")
	check(t, sandbox.Ask(ctx, socket, sandbox.ReleaseDEL, "u1"))
	r.expect(event.DelDone, "u1")
	r.expect(event.PodGone, "u1")
	check(t, sandbox.Ask(ctx, socket, sandbox.ReplayDEL, "u1"))
	if err := sandbox.Ask(ctx, socket, sandbox.ReplayDEL, "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("error = %v, want one that names the UID", err)
	}

	ns, err := netlab.Open(sandbox.PodPath(r.options.Dir, "node-a", types.NamespacedName{Namespace: "default", Name: "db-0"}))
	check(t, err) // the second pod's namespace is still found by the pod's name
	check(t, ns.Close())
	var got []string
	for _, c := range r.calls() {
		got = append(got, fmt.Sprintf("%s %s prev=%t alive=%t", c.Command, c.ID, c.Prev, c.Alive))
	}
	want := []string{
		"ADD " + one.Sandbox + " prev=false alive=true",
		"ADD " + two.Sandbox + " prev=false alive=true",
		"DEL " + one.Sandbox + " prev=true alive=true",
		"DEL " + one.Sandbox + " prev=false alive=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
