package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// node is a node on which pods are made as a runtime does, without a kubelet.
type node struct {
	b      *testing.B
	name   string
	ns     *netlab.Namespace
	plugin string
	conf   []byte // what the plugin gets on standard input
	dir    string // of the pods' namespaces
	next   int
	free   []*netlab.Namespace // of pods that are gone, to be used again
}

// pod is one sandbox.
type pod struct {
	ns            *netlab.Namespace
	id, name, uid string
}

func (w *world) node(name string) *node {
	w.b.Helper()
	place, err := w.Places(name)
	check(w.b, err)
	network, err := libcni.NetworkConfFromFile(filepath.Join(place.ConfDir, "10-aws.conflist"))
	check(w.b, err)
	ns, err := netlab.Open(place.Namespace)
	check(w.b, err)
	w.b.Cleanup(func() { check(w.b, ns.Close()) })
	conf, err := configuration(network)
	check(w.b, err)
	return &node{b: w.b, name: name, ns: ns, plugin: filepath.Join(place.BinDir, "aws-cni"), conf: conf, dir: w.b.TempDir()}
}

// configuration is what libcni passes to the first plugin of a list.
func configuration(network *libcni.NetworkConfigList) ([]byte, error) {
	conf, err := libcni.InjectConf(network.Plugins[0], map[string]any{"name": network.Name, "cniVersion": network.CNIVersion})
	if err != nil {
		return nil, err
	}
	return conf.Bytes, nil
}

// make makes the sandboxes of pods that have no API objects. Their namespaces are used again once the pods are gone: taking
// one down costs the kernel milliseconds under the lock that every ADD needs.
func (n *node) make(count int) []pod {
	n.b.Helper()
	pods := make([]pod, count)
	for i := range pods {
		n.next++
		pods[i] = pod{ns: n.namespace(), id: fmt.Sprintf("%064d", n.next), name: fmt.Sprintf("%s-%d", n.name, n.next), uid: fmt.Sprintf("uid-%s-%d", n.name, n.next)}
	}
	return pods
}

func (n *node) namespace() *netlab.Namespace {
	n.b.Helper()
	if last := len(n.free) - 1; last >= 0 {
		ns := n.free[last]
		n.free = n.free[:last]
		return ns
	}
	ns, err := netlab.New(filepath.Join(n.dir, strconv.Itoa(n.next)))
	check(n.b, err)
	n.b.Cleanup(func() { check(n.b, ns.Close()) })
	return ns
}

// command is the plugin as a runtime executes it.
func (n *node) command(verb string, p pod) *exec.Cmd {
	cmd := exec.Command(n.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + p.id, "CNI_NETNS=" + p.ns.Path(), "CNI_IFNAME=eth0", "CNI_PATH=" + filepath.Dir(n.plugin),
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.name + ";K8S_POD_INFRA_CONTAINER_ID=" + p.id + ";K8S_POD_UID=" + p.uid,
		"PATH=" + os.Getenv("PATH"),
	}
	cmd.Stdin = strings.NewReader(string(n.conf))
	return cmd
}

// instead is another program, executed exactly as the plugin.
func (n *node) instead(program string, p pod) *exec.Cmd {
	cmd := n.command("ADD", p)
	cmd.Path, cmd.Args = program, []string{program}
	return cmd
}

// time executes a command in the node's namespace and says how long it took until its result was read.
func (n *node) time(cmd *exec.Cmd) (took time.Duration, err error) {
	err = n.ns.Do(func() error {
		began := time.Now()
		output, err := cmd.Output()
		took = time.Since(began)
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", cmd.Env[0], cmd.Env[1], err, output)
		}
		return nil
	})
	return took, err
}

// timed is time, for what must succeed.
func (n *node) timed(cmd *exec.Cmd) time.Duration {
	n.b.Helper()
	took, err := n.time(cmd)
	check(n.b, err)
	return took
}

// each does the same for all pods, one after the other.
func (n *node) each(verb string, pods []pod) (times []time.Duration) {
	n.b.Helper()
	for _, p := range pods {
		times = append(times, n.timed(n.command(verb, p)))
	}
	if verb == "DEL" {
		n.release(pods)
	}
	return times
}

func (n *node) release(pods []pod) {
	for _, p := range pods {
		n.free = append(n.free, p.ns)
	}
}

// atOnce executes commands at once, and gives the time until the last is done and their processor time together.
func (n *node) atOnce(commands []*exec.Cmd) (total, processor time.Duration) {
	n.b.Helper()
	errs := make([]error, len(commands))
	var done sync.WaitGroup
	began := time.Now()
	for i, cmd := range commands {
		done.Go(func() { _, errs[i] = n.time(cmd) })
	}
	done.Wait()
	total = time.Since(began)
	for i, cmd := range commands {
		check(n.b, errs[i])
		processor += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return total, processor
}

// fill gives the node so many pods, a few at a time.
func (n *node) fill(ctx context.Context, count int) {
	n.b.Helper()
	const together = 4 // as many as two cores can use
	for count > 0 && ctx.Err() == nil {
		pods := n.make(min(count, together))
		count -= len(pods)
		var commands []*exec.Cmd
		for _, p := range pods {
			commands = append(commands, n.command("ADD", p))
		}
		n.atOnce(commands)
	}
}
