package ipamd_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// inherit makes a pod's kernel state that of one which the incumbent connected: a veth of any MAC, a route in the main table.
func (w *world) inherit(p *pod, last byte) {
	w.t.Helper()
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, last}
	w.check(w.node.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		found, err := handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: api.PodsTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range found {
			if addr, _ := netip.AddrFromSlice(r.Dst.IP.To4()); addr != p.addr {
				continue
			}
			link, err := handle.LinkByIndex(r.LinkIndex)
			if err != nil {
				return err
			}
			if err := handle.LinkSetHardwareAddr(link, mac); err != nil {
				return err
			}
			if err := handle.RouteDel(&r); err != nil {
				return err
			}
			return handle.RouteAdd(&netlink.Route{LinkIndex: r.LinkIndex, Dst: r.Dst, Scope: netlink.SCOPE_LINK, Table: unix.RT_TABLE_MAIN})
		}
		return fmt.Errorf("no route to %s", p.addr)
	}))
	w.check(netlab.Neigh(p.ns, "eth0", netip.MustParseAddr("169.254.1.1"), mac))
}

// allocations is what the incumbent writes of pods.
func allocations(pods ...*pod) string {
	var entries []string
	for i, p := range pods {
		entries = append(entries, fmt.Sprintf(`{"networkName":"aws-cni","containerID":%q,"ifName":"eth0","ipv4":"%s","allocationTimestamp":%d,`+
			`"metadata":{"k8sPodNamespace":"default","k8sPodName":%q,"interfacesCount":1}}`, p.conf.ContainerID, p.addr, 1796095438598978183+i, p.conf.Args[2][1]))
	}
	return `{"version":"vpc-cni-ipam/1","allocations":[` + strings.Join(entries, ",") + `]}`
}

// Pods of the incumbent keep their addresses, whatever has become of its file; with it, the daemon knows who they are.
func TestPodsOfTheIncumbentKeepTheirAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		file  func(a, b *pod) string
		known bool
		load  string // trouble, 0 or 1
	}{
		"its file is whole": {func(a, b *pod) string { return allocations(a, b) }, true, "0"},
		"with an older sandbox's entry": {func(a, b *pod) string {
			return allocations(a, b, &pod{conf: runtimeConf("sandbox-old", "", a.conf.Args), addr: a.addr.Next()})
		}, true, "0"},
		"with an entry of a pod that is gone": {func(a, b *pod) string {
			gone := [][2]string{{}, {}, {"K8S_POD_NAME", "gone"}}
			return allocations(a, b, &pod{conf: runtimeConf("sandbox-gone", "", gone), addr: a.addr.Next()})
		}, true, "0"},
		"its file is cut off":        {func(a, b *pod) string { return allocations(a, b)[:40] }, false, "1"},
		"its file is of another age": {func(a, b *pod) string { return strings.Replace(allocations(a, b), "ipam/1", "ipam/9", 1) }, false, "1"},
		"there is no file":           {func(*pod, *pod) string { return "" }, false, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, false)
			path := filepath.Join(w.dir, "ipam.json")
			w.env = append(w.env, "AWS_VPC_K8S_CNI_BACKING_STORE="+path)
			w.start()
			a, b := w.add("a"), w.add("b")
			_ = w.end(syscall.SIGKILL)
			w.check(os.RemoveAll(w.stateDir()))
			w.inherit(a, 1)
			w.inherit(b, 2)
			text := c.file(a, b)
			if text != "" {
				w.check(os.WriteFile(path, []byte(text), 0o600))
			}

			w.start()
			w.shows("metrics.sock", "/metrics", `vpccni_state_trouble{kind="load"} `+c.load)
			w.assigned("2")
			w.addSoon("c", a, b)
			w.reaches(a, ec2Addr+":80")
			if told := strings.Contains(w.statusTable(), "default/a"); told != c.known {
				t.Errorf("status names the pod: %v\n%s", told, w.statusTable())
			}
			w.del(a)
			w.assigned("2") // b and c
			if left, err := os.ReadFile(path); text != "" && (err != nil || string(left) != text) {
				t.Errorf("the file was touched: %v\n%s", err, left)
			}
		})
	}
}

// statusTable is what `ipamd status` says.
func (w *world) statusTable() string {
	w.t.Helper()
	page, err := ipamd.AskStatus(w.t.Context(), "unix:"+filepath.Join(w.dir, "ipamd.sock"))
	w.check(err)
	var text strings.Builder
	w.check(page.Write(&text))
	return text.String()
}
