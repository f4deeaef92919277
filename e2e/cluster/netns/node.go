package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// node is one node and its processes.
type node struct {
	cluster  *Cluster
	name     string
	address  netip.Addr
	capacity int
	ns       *netlab.Namespace
	settings map[string]string // of the daemon, as last asked for
	policy   cluster.Policy
	pod      types.UID // of the daemon's pod

	kubelet, gate, daemon *process
	networked             sync.Once
	ways                  *ways // nil: straight
}

// Where a node keeps its files: what /etc/cni/net.d, /opt/cni/bin and /var/run/aws-node are on a machine of its own.
func (n *node) dir(name string) string { return filepath.Join(stateDir, "nodes", n.name, name) }
func (n *node) socket() string         { return n.dir("cni.sock") }
func (n *node) control() string        { return n.dir("sandbox.sock") }

// start starts what runs on the node and waits until the node can run pods.
func (n *node) start(ctx context.Context) error {
	for _, name := range []string{"net.d", "bin", "state"} {
		if err := os.MkdirAll(n.dir(name), 0o755); err != nil {
			return fmt.Errorf("make folder of node %s: %w", n.name, err)
		}
	}
	// On a real node the daemon's init container brings the plugin.
	if err := install(binary("aws-cni"), filepath.Join(n.dir("bin"), "aws-cni")); err != nil {
		return err
	}
	networked := make(chan struct{})
	err := errors.Join(n.startKubelet(networked), n.startGate(ctx), n.startDaemon(ctx))
	if err != nil {
		return err
	}
	return await(ctx, networked, "Ready node "+n.name, n.kubelet, n.daemon)
}

// Niceness is added to that of all programs of the nodes, the plugins included: in a real cluster the API server has a
// machine of its own, here thirty plugins at once would compete with it for the same cores. Within a node all are equal.
const Niceness = 10

// niceness of the nodes' programs, and of the API server with its etcd.
func (o Options) niceness() (nodes, apiServer int) {
	if o.NodesFirst {
		return 0, Niceness
	}
	return Niceness, 0
}

func (n *node) startKubelet(networked chan<- struct{}) (err error) {
	delay := n.cluster.options.StatusDelay
	nice, _ := n.cluster.options.niceness()
	n.kubelet, err = n.cluster.launch(program{
		name: "sandbox-" + n.name, in: n.ns, path: binary("sandbox"), env: plainEnv(), nice: nice,
		args: []string{
			"-node", n.name, "-node-ip", n.address.String(), "-dir", podsDir,
			"-conf-dir", n.dir("net.d"), "-bin-dir", n.dir("bin"),
			"-status-delay-min", delay.Min.String(), "-status-delay-max", delay.Max.String(),
			"-seed", strconv.FormatUint(n.cluster.options.Seed, 10),
			"-kubeconfig", n.kubeconfig(account.Sandbox), "-control", n.control(),
		},
		events: func(e event.Event) {
			if e.Kind == event.NetworkReady {
				n.networked.Do(func() { close(networked) })
			}
			n.cluster.tell(e)
		},
	})
	return err
}

func (n *node) startGate(ctx context.Context) (err error) {
	nice, _ := n.cluster.options.niceness()
	n.gate, err = n.cluster.launch(program{
		name: "policygate-" + n.name, in: n.ns, path: binary("policygate"), env: plainEnv(), nice: nice,
		args: []string{
			"-node", n.name, "-kubeconfig", n.kubeconfig(account.PolicyGate),
			"-keys", n.cluster.options.Keys,
			"-annotation=" + strconv.FormatBool(n.policy.Annotation),
			"-default-deny=" + strconv.FormatBool(n.policy.DefaultDeny),
			"-views=" + strconv.FormatBool(n.cluster.options.Audit),
		},
		events: n.cluster.tell,
	})
	if err != nil {
		return err
	}
	return await(ctx, n.gate.ready, "policy agent of "+n.name, n.gate)
}

// startDaemon starts the daemon and waits until it serves the plugin.
func (n *node) startDaemon(ctx context.Context) error {
	if err := n.launchDaemon(ctx); err != nil {
		return err
	}
	poll, stop := context.WithCancel(ctx)
	defer stop()
	serving := make(chan struct{})
	go func() {
		if n.awaitServing(poll) == nil {
			close(serving)
		}
	}()
	return await(ctx, serving, "daemon of "+n.name, n.daemon)
}

func (n *node) launchDaemon(ctx context.Context) (err error) {
	if err := n.renew(ctx); err != nil {
		return err
	}
	nice, _ := n.cluster.options.niceness()
	n.daemon, err = n.cluster.launch(program{
		name: "ipamd-" + n.name, in: n.ns, path: binary("ipamd"), env: n.daemonEnv(), nice: nice,
	})
	return err
}

// await waits for something that processes are to bring about, and is over when one of them ends or it takes too long.
func await(ctx context.Context, done <-chan struct{}, what string, by ...*process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	first, last := by[0], by[len(by)-1]
	select {
	case <-done:
		return nil
	case <-first.ended:
		return first.died()
	case <-last.ended:
		return last.died()
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w; last lines of %s:\n%sthe rest is in %s", what, context.Cause(ctx), last.name, tail(last.log), last.log)
	}
}

// readyTimeout is how long a process may take until it serves: a daemon that reads IMDS, EC2 and the API server needs two
// seconds on two idle cores.
const readyTimeout = time.Minute

func (n *node) reconfigure(ctx context.Context, settings map[string]string) error {
	if err := n.daemon.stop(ctx); err != nil {
		return err
	}
	for name, value := range settings {
		if value == cluster.Unset {
			delete(n.settings, name)
			continue
		}
		n.settings[name] = value
	}
	return n.startDaemon(ctx)
}

func (n *node) setPolicy(ctx context.Context, policy cluster.Policy) error {
	if err := n.gate.stop(ctx); err != nil {
		return err
	}
	n.policy = policy
	return n.startGate(ctx)
}

func (n *node) stop(ctx context.Context) error {
	var errs []error
	for _, p := range []*process{n.kubelet, n.gate, n.daemon} {
		if p != nil {
			errs = append(errs, p.stop(ctx))
		}
	}
	return errors.Join(append(errs, n.ways.close())...)
}

// daemonEnv is the daemon's whole environment: nothing of the harness's own reaches it.
func (n *node) daemonEnv() []string {
	env := map[string]string{
		"MY_NODE_NAME":                n.name,
		"CLUSTER_NAME":                "netns",
		"KUBECONFIG":                  n.daemonKubeconfig(),
		"AWS_ENDPOINT_URL_EC2":        "http://" + ec2Address,
		"VPC_CNI_SOCKET":              n.socket(),
		"VPC_CNI_STATE_DIR":           n.dir("state"),
		"HOST_CNI_CONFDIR_PATH":       n.dir("net.d"),
		"HOST_CNI_BIN_PATH":           n.dir("bin"),
		"AWS_VPC_K8S_PLUGIN_LOG_FILE": filepath.Join(n.cluster.options.Logs, "plugin-"+n.name+".log"),
	}
	maps.Copy(env, n.settings)
	list := plainEnv()
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// plainEnv is what every program gets: where programs are, where a home is, and netlab's mark.
func plainEnv() (list []string) {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "NETLAB_INSIDE"} {
		if value, ok := os.LookupEnv(name); ok {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// binary is where a program is; Prepare has seen to it.
func binary(name string) string { return filepath.Join(os.Getenv(BinVar), name) }

// install copies a program.
func install(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(to), err)
	}
	defer func() { _ = source.Close() }() // read only
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(to), err)
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(to), err)
	}
	return nil
}

// servingPoll is how often a starting daemon is asked whether it serves.
const servingPoll = 50 * time.Millisecond

// awaitServing waits until the daemon holds the addresses that its settings want on the node, and the plugin is answered.
func (n *node) awaitServing(ctx context.Context) error {
	want, _ := strconv.Atoi(n.settings["MINIMUM_IP_TARGET"]) // unset or not a number: the daemon's own business
	client := &http.Client{Transport: &http.Transport{DialContext: n.ns.DialContext, DisableKeepAlives: true}}
	ticker := time.NewTicker(servingPoll)
	defer ticker.Stop()
	for {
		if n.addresses(ctx, client) >= max(1, min(want, n.capacity)) && answers(ctx, n.socket()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// addresses asks the daemon's introspection how many addresses it can use or uses; 0 while it does not answer. Those that
// EC2 has assigned and the kernel does not hold yet are not among them.
func (n *node) addresses(ctx context.Context, client *http.Client) (usable int) {
	var cards map[string]struct {
		ENIs map[string]struct {
			Reported  bool
			Addresses []struct{ Condition string }
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, introspection, nil)
	if err != nil {
		return 0
	}
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }() // read only
	if json.NewDecoder(response.Body).Decode(&cards) != nil {
		return 0
	}
	for _, eni := range cards["0"].ENIs {
		for _, address := range eni.Addresses {
			if eni.Reported && address.Condition != "coming" {
				usable++
			}
		}
	}
	return usable
}

// introspection is the daemon's page of ENIs, at its default address in the node's namespace.
const introspection = "http://127.0.0.1:61679/v1/enis"

// answers tells whether somebody serves a unix socket.
func answers(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	return err == nil && conn.Close() == nil
}
