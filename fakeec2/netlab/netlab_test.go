package netlab_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// childVar makes this test binary play a program that calls Isolate.
const childVar = "NETLAB_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childVar); role != "" {
		netlab.Isolate()
		playChild(role)
	}
	netlab.Main(m)
}

func playChild(role string) {
	switch role {
	case "exit7":
		os.Exit(7)
	case "killself":
		// PID 1 cannot be killed from its own namespace: exit as a crashed program would.
		panic("killself")
	case "hang":
		os.Stdout.WriteString("hanging\n")
		select {}
	}
	os.Exit(99)
}

// outside returns this test binary as a command that is not inside yet.
func outside(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{childVar + "=" + role}
	return cmd
}

func TestIsolatePassesTheExitCode(t *testing.T) {
	for role, want := range map[string]int{"exit7": 7, "killself": 2} {
		err := outside(t, role).Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != want {
			t.Errorf("%s: got %v, want exit code %d", role, err, want)
		}
	}
}

func TestIsolatedProgramGetsSignalsAndDiesWithItsParent(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cmd := outside(t, "hang")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("hanging\n"))
		if _, err := io.ReadFull(out, line); err != nil {
			t.Fatalf("read greeting: %v", err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		// The pipe's end comes when the inner program is gone too: it holds the same descriptor.
		if _, err := io.ReadAll(out); err != nil {
			t.Errorf("%v: read to the end: %v", sig, err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%v: the program ended well, want a failure", sig)
		}
	}
}

func TestInsideIsPrivate(t *testing.T) {
	if os.Getpid() != 1 {
		t.Errorf("pid is %d, want 1", os.Getpid())
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != "1" {
		t.Errorf("/proc/self is %q, %v; want 1", self, err)
	}
	entries, err := os.ReadDir("/run")
	if err != nil || len(entries) != 1 {
		t.Errorf("/run holds %v, %v; want the folder netns only", entries, err)
	}
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Name != "lo" || links[0].Flags&net.FlagUp == 0 {
		t.Errorf("links are %v, %v; want lo alone, up", links, err)
	}
}

func newNS(t *testing.T, name string) *netlab.Namespace {
	t.Helper()
	n, err := netlab.New(filepath.Join(t.TempDir(), "netns", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestNewBindsAndCloseRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "ns")
	n, err := netlab.New(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.New(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("second New on one path: %v, want file exists", err)
	}
	again, err := netlab.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.SetSysctl("net.ipv4.ip_forward", "1"); err != nil {
		t.Error(err)
	}
	if v, err := n.Sysctl("net.ipv4.ip_forward"); err != nil || v != "1" {
		t.Errorf("ip_forward through the first handle is %q, %v; want 1", v, err)
	}
	if own, err := netlab.Current(); err != nil {
		t.Error(err)
	} else {
		if v, err := own.Sysctl("net.ipv4.ip_forward"); err != nil || v != "0" {
			t.Errorf("own ip_forward is %q, %v; want 0", v, err)
		}
		own.Close()
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("closing an opened handle removed the namespace: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v, want not exist", err)
	}
}

func TestOpenRefusesWhatIsNoNamespace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.Open(path); err == nil {
		t.Error("opened an empty file as a namespace")
	}
}

// pair is two namespaces joined by a veth, 192.0.2.1 and .2, without a subnet route: only what the calls below add.
func pair(t *testing.T) (a, b *netlab.Namespace) {
	t.Helper()
	a, b = newNS(t, "a"), newNS(t, "b")
	macA, macB := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(netlab.Veth(netlab.End{NS: a, Name: "left", MAC: macA, MTU: 9001}, netlab.End{NS: b, Name: "right", MAC: macB, MTU: 9001}))
	addrA, addrB := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	check(netlab.AddAddr(a, "left", netip.PrefixFrom(addrA, 32)))
	check(netlab.AddAddr(b, "right", netip.PrefixFrom(addrB, 32)))
	check(netlab.AddRoute(a, netlab.Route{Dst: netip.PrefixFrom(addrB, 32), Link: "left"}))
	check(netlab.AddRoute(b, netlab.Route{Via: addrA, Link: "right", Onlink: true}))
	check(netlab.Neigh(a, "left", addrB, macB))
	check(netlab.Neigh(b, "right", addrA, macA))
	return a, b
}

func TestVethCarriesSocketsMadeInside(t *testing.T) {
	a, b := pair(t)
	listener, err := b.Listen(t.Context(), "tcp", "192.0.2.2:80")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "hello") // the reader's side is what the test judges
			conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := a.DialContext(ctx, "tcp", "192.0.2.2:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil || string(text) != "hello" {
		t.Errorf("read %q, %v; want hello", text, err)
	}
	if _, err := a.DialContext(ctx, "tcp", "localhost:80"); err == nil {
		t.Error("a name was accepted, though names are looked up outside the namespace")
	}
}

func TestVethKeepsMACAndMTUAndMayStayDown(t *testing.T) {
	a, b := newNS(t, "a"), newNS(t, "b")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	err := netlab.Veth(netlab.End{NS: a, Name: "up", MTU: 9001}, netlab.End{NS: b, Name: "eth1", MAC: mac, MTU: 9001, Down: true})
	if err != nil {
		t.Fatal(err)
	}
	h, err := b.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link, err := h.LinkByName("eth1")
	if err != nil {
		t.Fatal(err)
	}
	attrs := link.Attrs()
	if attrs.HardwareAddr.String() != mac.String() || attrs.MTU != 9001 || attrs.Flags&net.FlagUp != 0 {
		t.Errorf("eth1 is %v, MTU %d, %v; want %v, 9001, down", attrs.HardwareAddr, attrs.MTU, attrs.Flags, mac)
	}
	if err := netlab.DelLink(a, "up"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.LinkByName("eth1"); err == nil {
		t.Error("eth1 outlived its peer")
	}
}

func TestRouteIsAddedOnceAndRemoved(t *testing.T) {
	a, _ := pair(t)
	r := netlab.Route{Dst: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("192.0.2.2"), Link: "left", Onlink: true, Table: 77}
	if err := netlab.AddRoute(a, r); err != nil {
		t.Fatal(err)
	}
	if err := netlab.AddRoute(a, r); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("second add: %v, want file exists", err)
	}
	if err := netlab.DelRoute(a, r); err != nil {
		t.Error(err)
	}
	if err := netlab.DelRoute(a, r); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("second delete: %v, want no such process", err)
	}
}

func TestStartRunsInTheNamespace(t *testing.T) {
	n := newNS(t, "n")
	inode := func(path string) string {
		target, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	var want string
	if err := n.Do(func() error { want = inode("/proc/thread-self/ns/net"); return nil }); err != nil {
		t.Fatal(err)
	}
	for range 20 { // more than one, because a thread that ends early kills its child only sometimes
		cmd := exec.CommandContext(t.Context(), "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if got := inode("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net"); got != want {
			t.Errorf("child's namespace is %s, want %s", got, want)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("child ended with %v", err)
		}
	}
	if err := n.Start(exec.Command("/does/not/exist")); err == nil {
		t.Error("started a program that does not exist")
	}
}

func TestDoNestsAndComesBack(t *testing.T) {
	a, b := newNS(t, "a"), newNS(t, "b")
	here := func() string {
		target, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	before := here()
	var inA, inB, inAAgain string
	err := a.Do(func() error {
		inA = here()
		err := b.Do(func() error { inB = here(); return errors.New("from b") })
		inAAgain = here()
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "from b") {
		t.Errorf("error is %v, want that of the inner function", err)
	}
	if inA == inB || inA == before || inAAgain != inA || here() != before {
		t.Errorf("namespaces: before %s, a %s, b %s, a again %s, after %s", before, inA, inB, inAAgain, here())
	}
}
