package cni_test

import (
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

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

var versions = []string{"0.4.0", "1.0.0", "1.1.0"}

func TestAddCheckDelInEveryVersion(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, version)
			s := n.sandbox("one", "web-0")
			got := n.add(s)
			host, err := netlink.LinkByName(got.Interfaces[0].Name)
			if err != nil {
				t.Fatal(err)
			}
			gateway := net.IPv4(169, 254, 1, 1).To4()
			want := &current.Result{
				CNIVersion: current.ImplementedSpecVersion,
				Interfaces: []*current.Interface{
					{Name: recipe(&assignment{pod: api.Pod{Namespace: "default", Name: "web-0"}}).HostVeth, Mac: host.Attrs().HardwareAddr.String()},
					{Name: "eth0", Mac: "0a:58:0a:00:01:14", Sandbox: s.NetNS},
				},
				IPs: []*current.IPConfig{{
					Interface: current.Int(1), Gateway: gateway,
					Address: net.IPNet{IP: net.IPv4(10, 0, 1, 20).To4(), Mask: net.CIDRMask(32, 32)},
				}},
				Routes: []*types.Route{{Dst: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, GW: gateway}},
			}
			if diff := cmp.Diff(want, got, cmp.Transformer("ip", func(ip net.IP) string { return ip.String() })); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if err := n.check(s); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			n.del(s)
			n.clean()
			n.del(s)
			n.clean()
		})
	}
}

func TestChainedPluginReadsTheResult(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, version)
			chained := filepath.Join(n.folder, "chained")
			script := fmt.Sprintf("#!/bin/sh\ncat > %s/seen\n[ \"$CNI_COMMAND\" = ADD ] && cat %s/result || true\n", n.folder, n.folder)
			if err := os.WriteFile(chained, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			empty := fmt.Sprintf(`{"cniVersion":%q}`, version)
			if err := os.WriteFile(filepath.Join(n.folder, "result"), []byte(empty), 0o644); err != nil {
				t.Fatal(err)
			}
			n.chain(t, version, "chained")
			s := n.sandbox("one", "web-0")
			n.add(s)
			raw, err := os.ReadFile(filepath.Join(n.folder, "seen"))
			if err != nil {
				t.Fatal(err)
			}
			var seen struct {
				PrevResult struct {
					CNIVersion string `json:"cniVersion"`
					IPs        []struct {
						Address   string `json:"address"`
						Interface int    `json:"interface"`
					} `json:"ips"`
				} `json:"prevResult"`
			}
			if err := json.Unmarshal(raw, &seen); err != nil {
				t.Fatal(err)
			}
			if got := seen.PrevResult; got.CNIVersion != version || len(got.IPs) != 1 || got.IPs[0].Address != "10.0.1.20/32" || got.IPs[0].Interface != 1 {
				t.Errorf("chained plugin saw %+v", got)
			}
			n.del(s)
			n.clean()
		})
	}
}

func TestAddIsRepeatable(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	first := n.add(s)
	before, _ := netlink.LinkByName(first.Interfaces[0].Name)
	second := n.add(s)
	after, _ := netlink.LinkByName(second.Interfaces[0].Name)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("second result differs (-first +second):\n%s", diff)
	}
	if before.Attrs().Index != after.Attrs().Index {
		t.Error("the veth of a live pod was replaced")
	}
	n.del(s)
	n.clean()
}

func TestFailedRepeatLeavesALivePodAlone(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	n.add(s)
	n.allocator.beforeDone = func(context.Context) error { return api.NewError(api.CodeInternal, "disk is full", "") }
	if _, err := n.tryAdd(s); code(t, err) != api.CodeTryAgain {
		t.Fatalf("repeat: %v", err)
	}
	if err := n.check(s); err != nil {
		t.Errorf("live pod was harmed: %v", err)
	}
	if n.allocator.live() != 1 {
		t.Error("live pod's address was given up")
	}
}

func TestRefusedDoneLeavesNothing(t *testing.T) {
	n := newNode(t, "1.0.0")
	n.allocator.beforeDone = func(context.Context) error { return api.NewError(api.CodeInternal, "disk is full", "") }
	_, err := n.tryAdd(n.sandbox("one", "web-0"))
	if code(t, err) != api.CodeTryAgain || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("got %v", err)
	}
	await(t, "abort", func() bool { return n.allocator.live() == 0 })
	n.clean()
}

func TestAddWithoutAddressSaysTryAgainAndWhy(t *testing.T) {
	n := newNode(t, "1.0.0")
	n.allocator.beforeAssign = func(context.Context) error {
		return api.NewError(api.CodeTryAgain, "no free address", "the subnet is full since 10:00")
	}
	_, err := n.tryAdd(n.sandbox("one", "web-0"))
	if code(t, err) != api.CodeTryAgain || !strings.Contains(err.Error(), "no free address") || !strings.Contains(err.Error(), "subnet is full") {
		t.Errorf("got %v", err)
	}
	n.clean()
}

func TestAddWithDaemonDownSaysTryAgain(t *testing.T) {
	n := newNode(t, "1.0.0")
	n.stop()
	_, err := n.tryAdd(n.sandbox("one", "web-0"))
	if code(t, err) != api.CodeTryAgain || !strings.Contains(err.Error(), n.socket()) || !strings.Contains(err.Error(), "DaemonSet") {
		t.Errorf("got %v", err)
	}
	n.clean()
}

func TestDelSucceedsWhateverIsMissing(t *testing.T) {
	cases := map[string]func(n *node, s *sandbox){
		"empty netns":    func(_ *node, s *sandbox) { _ = s.ns.Close(); s.NetNS = "" },
		"vanished netns": func(_ *node, s *sandbox) { _ = s.ns.Close() },
		"netns path is a plain file": func(n *node, s *sandbox) {
			_ = s.ns.Close()
			s.NetNS = filepath.Join(n.folder, "plain")
			_ = os.WriteFile(s.NetNS, nil, 0o644)
		},
		"link removed by hand": func(_ *node, s *sandbox) { _ = s.ns.Do(func() error { return delLink("eth0") }) },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "1.0.0")
			s := n.sandbox("one", "web-0")
			n.add(s)
			spoil(n, &s)
			n.del(s)
			await(t, "kernel to drop the namespace", func() bool { return len(n.leftovers()) == 0 })
			n.clean()
			n.del(s)
		})
	}
	t.Run("unknown sandbox", func(t *testing.T) {
		n := newNode(t, "0.4.0")
		n.del(n.sandbox("never", "added"))
		n.clean()
	})
}

func delLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

func TestDelWithDaemonDownLeavesARecord(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	n.add(s)
	n.stop()
	n.del(s)
	n.del(s)
	if found := n.leftovers(); len(found) > 0 {
		t.Errorf("kernel keeps %q", found)
	}
	records, err := api.CollectPending(n.socket())
	want := api.ReleaseRequest{
		Attachment: api.Attachment{Network: network, ContainerID: "one", IfName: "eth0"},
		Pod:        api.Pod{Namespace: "default", Name: "web-0", UID: "uid-of-one"},
	}
	if err != nil || len(records) != 1 || records[0].ReleaseRequest != want {
		t.Fatalf("records %+v, err %v", records, err)
	}
	log, err := os.ReadFile(n.folder + "/plugin.log")
	if err != nil || strings.Count(string(log), "deletion left for the daemon") != 2 {
		t.Errorf("log %q, err %v", log, err)
	}
	n.start()
	n.add(s) // the same sandbox again: the record must not end it
	if records, err := api.CollectPending(n.socket()); err != nil || len(records) != 0 {
		t.Errorf("record outlived the ADD: %+v, err %v", records, err)
	}
}

func TestDelThatTheDaemonFailsLeavesARecord(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	n.add(s)
	n.allocator.onRelease = errors.New("disk is full")
	n.del(s)
	if found := n.leftovers(); len(found) > 0 {
		t.Errorf("kernel keeps %q", found)
	}
	if records, err := api.CollectPending(n.socket()); err != nil || len(records) != 1 {
		t.Errorf("records %+v, err %v", records, err)
	}
}

func TestSecondSandboxOfAPodNameWins(t *testing.T) {
	n := newNode(t, "1.0.0")
	host := n.route()
	old, young := n.sandbox("old", "db-0"), n.sandbox("young", "db-0")
	n.add(old) // and it still lives
	addr, _ := netip.AddrFromSlice(n.add(young).IPs[0].Address.IP.To4())
	for range 2 { // a late DEL, and once more
		n.del(old)
		if err := n.check(young); err != nil {
			t.Fatalf("CHECK of the second after a late DEL of the first: %v", err)
		}
		if err := ping(host, addr); err != nil {
			t.Fatal(err)
		}
	}
	if routes := n.podRoutes(); len(routes) != 1 {
		t.Errorf("pod routes: %v", routes)
	}
	n.del(young)
	n.clean()
}

func TestAddressComesBackOverAnotherVeth(t *testing.T) {
	n := newNode(t, "1.0.0")
	host := n.route()
	first, second := n.sandbox("first", "web-0"), n.sandbox("second", "web-1")
	before := n.add(first).IPs[0].Address.IP
	// The first pod's address is released by evidence, without a DEL: its veth and route still stand.
	if err := n.allocator.Release(t.Context(), api.ReleaseRequest{Attachment: api.Attachment{Network: network, ContainerID: "first", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	result := n.add(second)
	if after := result.IPs[0].Address.IP; !after.Equal(before) {
		t.Fatalf("address %s, not %s", after, before)
	}
	link, _ := netlink.LinkByName(result.Interfaces[0].Name)
	routes := n.podRoutes()
	if len(routes) != 1 || routes[0].LinkIndex != link.Attrs().Index || routes[0].Protocol != api.RouteProtocol {
		t.Errorf("pod routes: %v", routes)
	}
	n.del(first)
	addr, _ := netip.AddrFromSlice(before.To4())
	if err := ping(host, addr); err != nil {
		t.Errorf("after a late DEL of the address' earlier holder: %v", err)
	}
	n.del(second)
	n.clean()
}

func TestCheckNamesWhatDiffers(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	n.add(s)
	route := n.podRoutes()[0]
	if err := netlink.RouteDel(&route); err != nil {
		t.Fatal(err)
	}
	err := n.check(s)
	if code(t, err) != api.CodeDiffers || !strings.Contains(err.Error(), "route to 10.0.1.20/32 in table 7000 is missing") {
		t.Errorf("got %v", err)
	}
	n.del(s)
	if err := n.check(s); err == nil {
		t.Error("CHECK of a deleted sandbox succeeded")
	}
}

func TestStatus(t *testing.T) {
	n := newNode(t, "1.1.0")
	ask := func() error { return n.runtime.GetStatusNetworkList(context.Background(), n.list) }
	if err := ask(); err != nil {
		t.Errorf("ready: %v", err)
	}
	n.allocator.notReady = api.NewError(api.CodeLimited, "no ENI is attached", "")
	if err := ask(); code(t, err) != api.CodeLimited {
		t.Errorf("limited: %v", err)
	}
	n.allocator.notReady = api.NewError(api.CodeInternal, "starting", "")
	if err := ask(); code(t, err) != api.CodeNotAvailable {
		t.Errorf("not ready: %v", err)
	}
	n.stop()
	if err := ask(); code(t, err) != api.CodeNotAvailable {
		t.Errorf("down: %v", err)
	}
}

func TestGCFreesTheRestAndNothingWithoutAList(t *testing.T) {
	n := newNode(t, "1.1.0")
	live, stale := n.sandbox("live", "web-0"), n.sandbox("stale", "web-1")
	n.add(live)
	n.add(stale)
	for name, list := range map[string]string{"missing": "", "null": `,"cni.dev/valid-attachments":null`} {
		failed := refused(t, n.command("GC", live, n.conf(list)))
		if failed.Code != api.CodeInvalidConfig || !strings.Contains(failed.Msg, "cni.dev/valid-attachments") || n.allocator.live() != 2 {
			t.Errorf("%s list: %+v, %d live", name, failed, n.allocator.live())
		}
	}
	// Without its cache libcni sends no DEL of its own: only the plugin's GC frees.
	if err := os.RemoveAll(n.folder + "/cache"); err != nil {
		t.Fatal(err)
	}
	err := n.runtime.GCNetworkList(context.Background(), n.list, &libcni.GCArgs{
		ValidAttachments: []types.GCAttachment{{ContainerID: "live", IfName: "eth0"}},
	})
	if err != nil || n.allocator.live() != 1 {
		t.Errorf("GC: %v, %d live", err, n.allocator.live())
	}
	if output, err := n.command("GC", live, n.conf(`,"cni.dev/valid-attachments":[]`)).Output(); err != nil || len(output) > 0 {
		t.Errorf("GC with an empty list: %v, %q", err, output)
	}
	if n.allocator.live() != 0 {
		t.Errorf("%d live after a GC with an empty list", n.allocator.live())
	}
}
