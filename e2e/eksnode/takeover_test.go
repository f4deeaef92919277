package eksnode_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
)

// What a node's own daemon reads and leaves there.
const (
	incumbentFile = "/var/run/aws-node/ipam.json"
	metricsPage   = "http://127.0.0.1:61678/metrics"
	enisPage      = "http://127.0.0.1:61679/v1/enis"
	newConflist   = "/etc/cni/net.d/10-aws.conflist"
)

// TestTakeover has this project's daemon and plugin go on where the incumbent was stopped: pods that run keep their addresses
// and their network, others get other addresses, and a DEL by the new plugin gives an old pod's address back.
func TestTakeover(t *testing.T) {
	w := boot(t, "t3.small")
	n := w.node(0, map[string]string{"WARM_ENI_TARGET": "0", "WARM_IP_TARGET": "2"})
	n.start()
	old := n.addMany(5) // more than the primary ENI holds
	theirs := series(string(n.get(metricsPage)))
	check(t, n.Stop())
	left, err := n.Output(t.Context(), "cat", incumbentFile)
	check(t, err)
	t.Logf("the incumbent leaves:\n%s", left)

	d := n.replace()
	n.holds(old...)
	w.reachable(n, old)
	young := n.connect()
	distinct(t, append([]*pod{young}, old...))
	w.reachable(n, append([]*pod{young}, old...))

	n.tells([]string{"status"}, "ready", "WARM_IP_TARGET=2", "eni-", old[0].Name, old[4].Name, young.Name)
	n.tells([]string{"explain", "-o", "json"}, `"Reason": "the targets are met"`)
	sameMetrics(t, theirs, series(string(n.get(metricsPage))))

	d.end()
	n.replace() // from its own file now
	n.holds(append([]*pod{young}, old...)...)
	n.disconnect(old[0])
	n.holds(append([]*pod{young}, old[1:]...)...)
	w.reachable(n, append([]*pod{young}, old[1:]...))
	n.refill(old[0], append([]*pod{young}, old[1:]...))
	if again, err := n.Output(t.Context(), "cat", incumbentFile); err != nil || again != left {
		t.Errorf("the incumbent's file is not what it left: %v\n%s", err, again)
	}
}

// refill connects pods until the node is full, one of them on the address of a pod that the incumbent had connected: what that
// one left in the kernel must not be in the way.
func (n *node) refill(gone *pod, present []*pod) {
	t := n.w.t
	t.Helper()
	const room = 9 // of a t3.small: 3 ENIs with 3 addresses for pods
	all, again := present, false
	for len(all) < room {
		p := n.connect()
		again = again || p.addr == gone.addr
		all = append(all, p)
	}
	distinct(t, all)
	if !again {
		t.Errorf("nobody got %s", gone.addr)
	}
	n.w.reachable(n, all)
	n.holds(all...)
}

// tells waits until the daemon's program says all of this on the node.
func (n *node) tells(args []string, want ...string) {
	n.w.t.Helper()
	n.w.eventually(fmt.Sprintf("ipamd %v", args), func() error {
		cmd := n.program("ipamd")
		cmd.Args = append(cmd.Args, args...)
		cmd.Env = []string{"WARM_IP_TARGET=2"}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := n.Exec(n.w.t.Context(), cmd); err != nil {
			return fmt.Errorf("%w: %s", err, errs.String())
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				return fmt.Errorf("%q is not in\n%s", text, out.String())
			}
		}
		n.w.t.Logf("ipamd %v:\n%s", args, out.String())
		return nil
	})
}

// absent are metrics of the incumbent's that this project's daemon has not, and why.
var absent = map[string]string{
	"awscni_force_removed_enis":  "an ENI with pods is never removed",
	"awscni_force_removed_ips":   "an address with a pod is never removed",
	"awscni_total_ipv4_prefixes": "there is no prefix delegation yet",
}

// sameMetrics fails for what a dashboard of the incumbent's would miss: a name, its type, or the names of its labels.
func sameMetrics(t *testing.T, theirs, ours map[string]string) {
	t.Helper()
	shared := 0
	for name, want := range theirs {
		got, ok := ours[name]
		switch {
		case !strings.HasPrefix(name, "awscni_"): // of the Go runtime, the process
		case absent[name] != "" && ok:
			t.Errorf("%s is there: it is no longer absent", name)
		case absent[name] != "":
		case got != want:
			t.Errorf("%s is %q, the incumbent's %q", name, got, want)
		default:
			shared++
		}
	}
	t.Logf("%d metrics have the incumbent's names, types and labels", shared)
	if shared == 0 {
		t.Error("nothing was compared")
	}
}

// series gives each metric's type and labels. Bounds of buckets and quantiles are left out.
func series(text string) map[string]string {
	kinds, found := map[string]string{}, map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if declared, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(declared, " ")
			kinds[name] = kind
			continue
		}
		line, _, _ = strings.Cut(line, " ") // no label of these has one
		name, labels, _ := strings.Cut(line, "{")
		for _, suffix := range []string{"_sum", "_count", "_bucket"} {
			if base := strings.TrimSuffix(name, suffix); kinds[name] == "" && kinds[base] != "" {
				name = base
			}
		}
		var names []string
		for label := range strings.SplitSeq(strings.TrimSuffix(labels, "}"), ",") {
			if label, _, ok := strings.Cut(label, "="); ok && label != "le" && label != "quantile" {
				names = append(names, label)
			}
		}
		slices.Sort(names)
		found[name] = kinds[name] + " " + strings.Join(names, ",")
	}
	return found
}

func (w *world) reachable(n *node, pods []*pod) {
	w.t.Helper()
	outside, public := w.outside()
	for _, p := range pods {
		if !w.answers(n.Network(), p.addr) {
			w.t.Errorf("%s does not answer its own node", p.addr)
		}
		if got := w.seenAs(p.Network(), outside, public); !got.IsValid() {
			w.t.Errorf("%s does not reach the internet", p.addr)
		}
	}
}

// program is one of this project's, to be started on a node, which does not see its file: by its descriptor.
func (n *node) program(name string) *exec.Cmd {
	n.w.t.Helper()
	file, err := os.Open(filepath.Join(os.Getenv(netns.BinVar), name))
	check(n.w.t, err)
	n.w.t.Cleanup(func() { _ = file.Close() }) // read only
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{file}
	return cmd
}

// successor is this project's daemon on a node.
type successor struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// replace starts it with the incumbent's settings and waits until it serves pods.
func (n *node) replace() *successor {
	t := n.w.t
	t.Helper()
	ec2, _ := n.w.EC2()
	cmd := n.program("ipamd")
	cmd.Env = []string{
		"AWS_ENDPOINT_URL_EC2=" + ec2, "AWS_REGION=eu-central-1", "MY_NODE_NAME=" + n.Name(), "WARM_IP_TARGET=2", "WARM_ENI_TARGET=0", "IP_COOLDOWN_PERIOD=1",
		"HOST_CNI_CONFDIR_PATH=/etc/cni/net.d", "HOST_CNI_BIN_PATH=/opt/cni/bin", "HOST_CNI_CACHE_PATH=/var/lib/cni", "VPC_CNI_LOG_FORMAT=text",
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	ctx, stop := context.WithCancel(context.Background())
	s := &successor{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = n.Exec(ctx, cmd) // it is killed at the end
	}()
	t.Cleanup(func() {
		s.end()
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", log.String())
		}
	})
	n.w.eventually("conflist of the new daemon", func() error {
		text, err := n.Output(t.Context(), "cat", newConflist)
		if err == nil && !strings.Contains(text, "cni.sock") {
			err = fmt.Errorf("it is still\n%s", text)
		}
		return err
	})
	n.w.eventually("health check of the DaemonSet's probe", func() error { return n.Probe(t.Context()) })
	return s
}

func (s *successor) end() {
	s.stop()
	<-s.ended
}

// holds waits until the daemon has these pods, and no other, on their addresses.
func (n *node) holds(pods ...*pod) {
	n.w.t.Helper()
	want := map[string]string{}
	for _, p := range pods {
		want[p.addr.String()] = p.ID
	}
	n.w.eventually("addresses in use", func() error {
		got := n.sandboxes()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("held %v, want %v", got, want)
		}
		return nil
	})
}

// sandboxes reads who has which address from the page that both daemons have, in the incumbent's form.
func (n *node) sandboxes() map[string]string {
	n.w.t.Helper()
	var cards map[string]struct {
		ENIs map[string]struct {
			AvailableIPv4Cidrs map[string]struct {
				IPAddresses map[string]struct {
					IPAMKey struct{ ContainerID string }
				}
			}
		}
	}
	check(n.w.t, json.Unmarshal(n.get(enisPage), &cards))
	found := map[string]string{}
	for _, eni := range cards["0"].ENIs {
		for _, cidr := range eni.AvailableIPv4Cidrs {
			for addr, a := range cidr.IPAddresses {
				found[addr] = a.IPAMKey.ContainerID
			}
		}
	}
	return found
}

// connect adds a new pod with this project's plugin.
func (n *node) connect() *pod {
	n.w.t.Helper()
	p := n.sandbox()
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	n.w.eventually("ADD of "+p.Name, func() error {
		out, err := p.plugin("ADD")
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &result)
	})
	p.addr = result.IPs[0].Address.Addr()
	return p
}

func (n *node) disconnect(p *pod) {
	n.w.t.Helper()
	_, err := p.plugin("DEL")
	check(n.w.t, err)
}

// plugin runs this project's plugin for a pod, with the configuration that its daemon has written, and with a cached result.
func (p *pod) plugin(command string, cached ...json.RawMessage) ([]byte, error) {
	n := p.node
	ctx, cancel := context.WithTimeout(n.w.t.Context(), time.Minute)
	defer cancel()
	text, err := n.Output(ctx, "cat", newConflist)
	if err != nil {
		return nil, err
	}
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	for _, result := range cached {
		conf["prevResult"] = result
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	cmd := n.program("aws-cni")
	cmd.Env, cmd.Stdin = append(p.Env(command), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"), bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := n.Exec(ctx, cmd); err != nil {
		return nil, errors.Join(err, fmt.Errorf("%s%s", out.String(), errs.String()))
	}
	return out.Bytes(), nil
}
