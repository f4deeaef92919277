package ipamd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// newFieldWorld is newWorld with an instance type of another size: enis ENIs with ipv4 addresses each, the ENI's own among
// them.
func newFieldWorld(t *testing.T, enis, ipv4 int, settings ...string) *world {
	t.Helper()
	return newWorldOf(t, vpc.InstanceType{Name: "toy", ENIs: enis, IPv4: ipv4}, settings...)
}

// statusView is what these tests read of /v1/status.
type statusView struct {
	Warnings []string
	Kernel   []string
}

func (w *world) view() statusView {
	w.t.Helper()
	_, body, _ := strings.Cut(w.page("introspection.sock", "/v1/status"), "\n")
	var view statusView
	w.check(json.Unmarshal([]byte(body), &view))
	return view
}

// metric is the value of one line of the metrics page; -1 where there is none.
func (w *world) metric(series string) int {
	w.t.Helper()
	value := -1
	for line := range strings.SplitSeq(w.page("metrics.sock", "/metrics"), "\n") {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			w.check(err)
		}
	}
	return value
}

const assigned = "awscni_assigned_ip_addresses"

func repairs(kind string) string { return fmt.Sprintf("vpccni_kernel_repairs_total{kind=%q}", kind) }

// ip runs ip(8) in the node, as an administrator or another program there would.
func (w *world) ip(args ...string) string {
	w.t.Helper()
	return w.inNodeRun("ip", args...)
}

// inNodeRun runs a program in the node's namespace and gives what it printed.
func (w *world) inNodeRun(program string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + w.node.Path(), program}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v: %s", cmd, err, output)
	}
	return string(output)
}

// podRoutes are the node's routes to pods, by address: the links that they lead over.
func (w *world) podRoutes() map[netip.Addr]string {
	w.t.Helper()
	routes := map[netip.Addr]string{}
	w.check(w.node.Do(func() error {
		list, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: api.PodsTable}, netlink.RT_FILTER_TABLE) //nolint:forbidigo // an interrupted dump fails the test, which says so
		for _, r := range list {
			addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
			if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
				routes[addr] = link.Attrs().Name
			}
		}
		return err
	}))
	return routes
}

var vethLine = regexp.MustCompile(`(?m)^\d+: (eni[0-9a-f]{11})`)

// veths are the pods' links on the node.
func (w *world) veths() []string {
	w.t.Helper()
	var names []string
	for _, m := range vethLine.FindAllStringSubmatch(w.ip("-o", "link", "show", "type", "veth"), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// empty waits until nothing of any pod is left: in the kernel at once, in the daemon when it has heard of it.
func (w *world) empty() {
	w.t.Helper()
	w.await("the kernel holds nothing of a pod", func() bool { return len(w.podRoutes()) == 0 && len(w.veths()) == 0 })
	w.await("no address is assigned", func() bool { return w.metric(assigned) == 0 })
}

// plugin runs the plugin as a runtime does, for what libcni hides; it gives the exit code's error and all that was printed.
func (w *world) plugin(verb string, p *pod, conf string) (stdout string, err error) {
	w.t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(w.bin, "aws-cni"))
	var args []string
	for _, pair := range p.conf.Args {
		args = append(args, pair[0]+"="+pair[1])
	}
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + p.conf.ContainerID, "CNI_NETNS=" + p.conf.NetNS, "CNI_IFNAME=" + p.conf.IfName,
		"CNI_PATH=" + w.bin, "CNI_ARGS=" + strings.Join(args, ";"),
	}
	var out strings.Builder
	cmd.Stdin, cmd.Stdout = strings.NewReader(conf), &out
	if err := w.node.Start(cmd); err != nil {
		return "", err
	}
	err = cmd.Wait()
	return out.String(), err
}

// conf is the plugin's configuration as libcni passes it, with more keys.
func (w *world) conf(version, more string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":"aws-cni","type":"aws-cni","socket":%q%s}`, version, w.socket(), more)
}
