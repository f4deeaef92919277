package podnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// recipe is a pod's, with a host veth of the given name.
func recipe(veth, addr string) api.PodNetwork {
	return api.PodNetwork{
		HostVeth: veth, MTU: 9001, Addr: netip.PrefixFrom(netip.MustParseAddr(addr), 32),
		Gateway: netip.MustParseAddr("169.254.1.1"), Table: api.PodsTable, Protocol: api.RouteProtocol,
	}
}

// always is the May of a sandbox that nobody disputes the pod.
func always() error { return nil }

func namespace(t testing.TB, name string) *netlab.Namespace {
	t.Helper()
	folder, err := os.MkdirTemp("/run", "ns")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netlab.New(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = Teardown(ns.Path(), "eth0") // at once; the kernel takes its time to end a namespace
		_ = ns.Close()
	})
	return ns
}

// dumpHost and dumpPod are what `ip` says, without what differs from run to run.
func dumpHost(t testing.TB) string {
	t.Helper()
	return ip(t, "", "-d", "link", "show", "type", "veth") + ip(t, "", "neigh", "show", "nud", "permanent") +
		ip(t, "", "route", "show", "table", fmt.Sprint(api.PodsTable))
}

func dumpPod(t testing.TB, ns *netlab.Namespace) string {
	t.Helper()
	return ip(t, ns.Path(), "-4", "addr", "show", "dev", "eth0") + ip(t, ns.Path(), "neigh", "show", "nud", "permanent") +
		ip(t, ns.Path(), "-4", "route", "show", "table", "main")
}

var volatile = regexp.MustCompile(`(?m)^\d+: |if\d+|link-netns(id)? \S+|qlen \d+|numtxqueues.*$|LOWERLAYERDOWN|state \S+|,LOWER_UP|NO-CARRIER,`)

func ip(t testing.TB, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command("ip", args...)
	if path != "" {
		cmd = exec.Command("nsenter", append([]string{"--net=" + path, "ip"}, args...)...)
	}
	output, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(output), "table does not exist") {
		t.Fatalf("%s: %v: %s", cmd, err, output)
	}
	return volatile.ReplaceAllString(string(output), "")
}

func TestSetupGivesExactlyThisState(t *testing.T) {
	ns := namespace(t, "pod")
	pair, err := Setup(ns.Path(), "eth0", recipe("eniaaaa", "10.0.1.20"), always)
	if err != nil {
		t.Fatal(err)
	}
	if pair.PodMAC.String() != "0a:58:0a:00:01:14" || pair.HostMAC.String() != "0e:58:0a:00:01:14" {
		t.Errorf("MACs %v", pair)
	}
	wantPod := []string{
		"mtu 9001", "inet 10.0.1.20/32 scope global eth0",
		"169.254.1.1 dev eth0 lladdr 0e:58:0a:00:01:14 PERMANENT",
		"default via 169.254.1.1 dev eth0 proto 201 onlink", "169.254.1.1 dev eth0 proto 201 scope link",
	}
	wantHost := []string{
		"eniaaaa@", "mtu 9001", "10.0.1.20 dev eniaaaa lladdr 0a:58:0a:00:01:14 PERMANENT",
		"10.0.1.20 dev eniaaaa proto 201 scope link",
	}
	contains(t, "pod", dumpPod(t, ns), wantPod)
	contains(t, "host", dumpHost(t), wantHost)
	if got := strings.Count(ip(t, ns.Path(), "-4", "route", "show", "table", "main"), "\n"); got != 2 {
		t.Errorf("%d routes in the pod", got)
	}
	if err := Check(ns.Path(), "eth0", recipe("eniaaaa", "10.0.1.20")); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func contains(t *testing.T, what, dump string, wanted []string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(dump, want) {
			t.Errorf("%s lacks %q:\n%s", what, want, dump)
		}
	}
}

// TestSetupRepairsEveryHalfBuiltState stops the construction after each of its steps, as a kill would.
func TestSetupRepairsEveryHalfBuiltState(t *testing.T) {
	want := recipe("eniaaaa", "10.0.1.20")
	clean := namespace(t, "clean")
	if _, err := Setup(clean.Path(), "eth0", want, always); err != nil {
		t.Fatal(err)
	}
	golden := dumpHost(t) + dumpPod(t, clean)
	if err := Teardown(clean.Path(), "eth0"); err != nil {
		t.Fatal(err)
	}
	steps := map[string]func(s *sandbox) error{
		"veth only": func(s *sandbox) error { _, err := s.create(want); return err },
		"pod furnished": func(s *sandbox) error {
			built, err := s.create(want)
			return errors.Join(err, s.furnishPod(want, built.pod))
		},
		"host furnished, pod not": func(s *sandbox) error {
			built, err := s.create(want)
			return errors.Join(err, s.furnishHost(want, built.host, always))
		},
		"complete, for another address": func(s *sandbox) error {
			other := recipe("eniaaaa", "10.0.1.21")
			built, err := s.create(other)
			return errors.Join(err, s.furnish(other, built, always))
		},
		"complete, with another MTU": func(s *sandbox) error {
			other := want
			other.MTU = 1500
			built, err := s.create(other)
			return errors.Join(err, s.furnish(other, built, always))
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t, "pod")
			s, _, err := open(ns.Path(), "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if err := step(s); err != nil {
				t.Fatal(err)
			}
			s.close()
			if _, err := Setup(ns.Path(), "eth0", want, always); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(golden, dumpHost(t)+dumpPod(t, ns)); diff != "" {
				t.Errorf("state (-built at once +repaired):\n%s", diff)
			}
		})
	}
}

// TestStatesInRandomOrderEndTheSame visits Setup and Teardown of three sandboxes, two of which share a veth's name and two
// an address, in random order, and then brings all to one end.
func TestStatesInRandomOrderEndTheSame(t *testing.T) {
	recipes := []api.PodNetwork{recipe("eniaaaa", "10.0.1.20"), recipe("eniaaaa", "10.0.1.21"), recipe("enibbbb", "10.0.1.20")}
	var golden string
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 0))
		var all [3]*netlab.Namespace
		for i := range all {
			all[i] = namespace(t, fmt.Sprint("pod", i))
		}
		for range 12 {
			i := random.IntN(3)
			if random.IntN(3) == 0 {
				if err := Teardown(all[i].Path(), "eth0"); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			} else if _, err := Setup(all[i].Path(), "eth0", recipes[i], always); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			} else if err := Check(all[i].Path(), "eth0", recipes[i]); err != nil {
				t.Fatalf("seed %d: after Setup: %v", seed, err)
			}
		}
		for _, last := range []int{1, 2} { // the newer sandbox of the shared name, the newer holder of the address
			if _, err := Setup(all[last].Path(), "eth0", recipes[last], always); err != nil {
				t.Fatal(err)
			}
		}
		if err := Teardown(all[0].Path(), "eth0"); err != nil {
			t.Fatal(err)
		}
		got := sorted(dumpHost(t)) + dumpPod(t, all[1]) + dumpPod(t, all[2])
		if golden == "" {
			golden = got
		}
		if diff := cmp.Diff(golden, got); diff != "" {
			t.Fatalf("seed %d ends elsewhere (-seed 0 +this):\n%s", seed, diff)
		}
		for _, ns := range all {
			if err := Teardown(ns.Path(), "eth0"); err != nil {
				t.Fatal(err)
			}
		}
		if left := dumpHost(t); left != "" {
			t.Fatalf("seed %d leaves:\n%s", seed, left)
		}
	}
}

func sorted(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines { // insertion sort: a dump has some ten lines
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "\n")
}

func TestForeignLinksAreLeftAlone(t *testing.T) {
	ns, other := namespace(t, "pod"), namespace(t, "other")
	here, err := netlab.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })

	t.Run("in the sandbox", func(t *testing.T) {
		if err := netlab.Veth(netlab.End{NS: ns, Name: "eth0"}, netlab.End{NS: other, Name: "peer0"}); err != nil {
			t.Fatal(err)
		}
		if _, err := Setup(ns.Path(), "eth0", recipe("eniaaaa", "10.0.1.20"), always); !errors.Is(err, ErrForeignLink) {
			t.Errorf("Setup: %v", err)
		}
		contains(t, "sandbox", ip(t, ns.Path(), "link", "show", "dev", "eth0"), []string{"eth0"})
	})
	t.Run("no veth in the sandbox", func(t *testing.T) {
		if err := Teardown(ns.Path(), "lo"); !errors.Is(err, ErrForeignLink) {
			t.Errorf("Teardown: %v", err)
		}
	})
	t.Run("on the host", func(t *testing.T) {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "enicccc"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
		if _, err := Setup(other.Path(), "eth0", recipe("enicccc", "10.0.1.20"), always); !errors.Is(err, ErrForeignLink) {
			t.Errorf("Setup: %v", err)
		}
		contains(t, "host", ip(t, "", "link", "show", "dev", "enicccc"), []string{"enicccc"})
	})
	t.Run("own namespace", func(t *testing.T) {
		if _, err := Setup("/proc/self/ns/net", "eth0", recipe("eniaaaa", "10.0.1.20"), always); !errors.Is(err, ErrHostNamespace) {
			t.Errorf("Setup: %v", err)
		}
		if err := Teardown("/proc/self/ns/net", "lo"); !errors.Is(err, ErrHostNamespace) {
			t.Errorf("Teardown: %v", err)
		}
	})
}

func TestImpossibleRecipesAreRefused(t *testing.T) {
	ns := namespace(t, "pod")
	for name, spoil := range map[string]func(*api.PodNetwork){
		"empty":                     func(r *api.PodNetwork) { *r = api.PodNetwork{} },
		"no address":                func(r *api.PodNetwork) { r.Addr = netip.Prefix{} },
		"no gateway":                func(r *api.PodNetwork) { r.Gateway = netip.Addr{} },
		"gateway of another family": func(r *api.PodNetwork) { r.Gateway = netip.MustParseAddr("fe80::1") },
		"no veth":                   func(r *api.PodNetwork) { r.HostVeth = "" },
		"long veth":                 func(r *api.PodNetwork) { r.HostVeth = strings.Repeat("e", 16) },
		"no table":                  func(r *api.PodNetwork) { r.Table = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := recipe("eniaaaa", "10.0.1.20")
			spoil(&r)
			if _, err := Setup(ns.Path(), "eth0", r, always); err == nil {
				t.Error("Setup took it")
			}
			if err := Check(ns.Path(), "eth0", r); err == nil {
				t.Error("Check took it")
			}
		})
	}
	if left := dumpHost(t); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestFailedSetupLeavesNothing(t *testing.T) {
	ns := namespace(t, "pod")
	impossible := recipe("eniaaaa", "10.0.1.20")
	impossible.Routes = []netip.Prefix{netip.MustParsePrefix("fd00::/64")} // by an IPv4 gateway
	if _, err := Setup(ns.Path(), "eth0", impossible, always); err == nil {
		t.Fatal("no error")
	}
	if left := dumpHost(t); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestHostSysctlsAreUntouched(t *testing.T) {
	here, err := netlab.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	if err := here.SetSysctl("net.ipv4.conf.default.rp_filter", "2"); err != nil {
		t.Fatal(err)
	}
	ns := namespace(t, "pod")
	if _, err := Setup(ns.Path(), "eth0", recipe("eniaaaa", "10.0.1.20"), always); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rp_filter", "proxy_arp", "forwarding", "accept_local", "arp_ignore"} {
		got, err1 := here.Sysctl("net.ipv4.conf.eniaaaa." + name)
		want, err2 := here.Sysctl("net.ipv4.conf.default." + name)
		if err := errors.Join(err1, err2); err != nil || got != want {
			t.Errorf("%s is %s, the default is %s (%v)", name, got, want, err)
		}
	}
}

func TestDerivedMACsAreLocalUnicastAndDistinct(t *testing.T) {
	seen := make(map[string]bool)
	for _, text := range []string{"10.0.1.20", "10.0.1.21", "192.168.255.254", "2001:db8::1:14"} {
		addr := netip.MustParseAddr(text)
		for _, mac := range []net.HardwareAddr{podMAC(addr), hostMAC(addr)} {
			if len(mac) != 6 || mac[0]&1 != 0 || mac[0]&2 == 0 || seen[mac.String()] {
				t.Errorf("MAC of %s: %s", addr, mac)
			}
			seen[mac.String()] = true
		}
	}
}

func TestInterruptedDumpIsAskedForAgain(t *testing.T) {
	calls := 0
	items, err := dump(func() ([]int, error) {
		calls++
		if calls < 3 {
			return []int{1}, netlink.ErrDumpInterrupted
		}
		return []int{1, 2}, nil
	})
	if err != nil || len(items) != 2 || calls != 3 {
		t.Errorf("%v, %v after %d calls", items, err, calls)
	}
	calls = 0
	_, err = dump(func() ([]int, error) { calls++; return nil, netlink.ErrDumpInterrupted })
	if !errors.Is(err, netlink.ErrDumpInterrupted) || calls != dumpAttempts {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestNamespaceOfAnotherKindIsNoNetworkNamespace(t *testing.T) {
	const mount = "/proc/self/ns/mnt"
	if err := Teardown(mount, "eth0"); err != nil {
		t.Errorf("Teardown: %v", err)
	}
	if _, err := Setup(mount, "eth0", recipe("eniaaaa", "10.0.1.20"), always); err == nil || !strings.Contains(err.Error(), "no network namespace") {
		t.Errorf("Setup: %v", err)
	}
}
