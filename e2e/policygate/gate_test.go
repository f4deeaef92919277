package policygate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// deadline is how long anything here may take; it is met in milliseconds.
const deadline = 10 * time.Second

// events is an event.Log's reader as a channel.
type events chan event.Event

func (c events) Write(line []byte) (int, error) {
	err := event.Follow(bytes.NewReader(line), func(e event.Event) { c <- e })
	return len(line), err
}

// script is a source of pods that a test drives.
type script struct {
	handler chan podapi.Handler
}

func (s script) Watch(ctx context.Context, _ string, handler podapi.Handler, synced func()) error {
	synced()
	s.handler <- handler
	<-ctx.Done()
	return nil
}

// world is a node namespace between two pods, and an agent in it.
type world struct {
	node    *netlab.Namespace
	one     *netlab.Namespace
	other   netip.Addr
	handler podapi.Handler
	events  events
}

const oneName, otherName = "one", "other"

var oneAddr, otherAddr = netip.MustParseAddr("10.0.1.5"), netip.MustParseAddr("10.0.1.6")

func newNamespace(t *testing.T, dir, name string) *netlab.Namespace {
	t.Helper()
	ns, err := netlab.New(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// newWorld wires two pods to a node as a VPC CNI does, and runs an agent on the node.
func newWorld(t *testing.T, deny bool) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{node: newNamespace(t, dir, "node"), events: make(events, 64)}
	gateway := netip.MustParseAddr("169.254.1.1")
	check(t, w.node.SetSysctl("net.ipv4.ip_forward", "1"), netlab.AddAddr(w.node, "lo", netip.PrefixFrom(gateway, 32)))
	pod := func(name string, addr netip.Addr) *netlab.Namespace {
		ns, link := newNamespace(t, dir, name), VethName("ns", name)
		host := netip.PrefixFrom(addr, 32)
		check(t,
			netlab.Veth(netlab.End{NS: w.node, Name: link, MTU: 1500}, netlab.End{NS: ns, Name: "eth0", MTU: 1500}),
			netlab.AddAddr(ns, "eth0", host),
			netlab.AddRoute(ns, netlab.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gateway, Link: "eth0", Onlink: true}),
			w.node.SetSysctl("net.ipv4.conf."+link+".proxy_arp", "1"),
			netlab.AddRoute(w.node, netlab.Route{Dst: host, Link: link}),
		)
		return ns
	}
	w.one = pod(oneName, oneAddr)
	w.other = otherAddr
	pod(otherName, otherAddr)
	w.run(t, deny)
	return w
}

func (w *world) run(t *testing.T, deny bool) {
	t.Helper()
	source := script{make(chan podapi.Handler)}
	gate := New(Options{
		Node: "node", Reader: Reader{Keys: []string{AWSPodIPs}}, DefaultDeny: deny, Events: event.NewLog(w.events),
	}, source)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.node.Do(func() error { return gate.Run(ctx) }) }()
	t.Cleanup(func() {
		stop()
		check(t, <-ended)
	})
	w.handler = <-source.handler
	w.expect(t, event.Ready, "", "")
}

// expect waits for the next event and compares it.
func (w *world) expect(t *testing.T, kind event.Kind, pod, address string) {
	t.Helper()
	select {
	case got := <-w.events:
		want := event.Event{Kind: kind, Pod: pod, Address: address}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(event.Event{}, "At", "Node", "Namespace", "UID", "Detail")); diff != "" {
			t.Fatalf("event (-want +got):\n%s\n%s", diff, got.Detail)
		}
	case <-time.After(deadline):
		t.Fatalf("no event %s of pod %q", kind, pod)
	}
}

func pod(name, uid, value string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: map[string]string{AWSPodIPs: value},
	}}
}

func (w *world) present(p *corev1.Pod) { w.handler.Present(p, time.Now()) }
func (w *world) absent(p *corev1.Pod)  { w.handler.Absent(p, time.Now()) }

// reaches tells whether pings from pod one to pod other are answered: true at the first answer, false when none of a
// handful was. The gate drops at once, so a silent handful is proof enough.
func (w *world) reaches(t *testing.T, wait time.Duration) bool {
	t.Helper()
	var conn net.PacketConn
	check(t, w.one.Do(func() (err error) { conn, err = ping.Listen(); return err }))
	prober := ping.NewProber(conn)
	defer func() { check(t, prober.Close()) }()
	ctx, stop := context.WithTimeout(context.Background(), wait)
	defer stop()
	train := prober.Start(ctx, w.other, time.Millisecond)
	select {
	case <-train.Answered():
		stop()
		<-train.Done()
		return true
	case <-train.Done():
		return false
	}
}

// silence is long enough for 100 requests to be dropped.
const silence = 100 * time.Millisecond

func TestOnlyKnownWorkloadsPass(t *testing.T) {
	w := newWorld(t, true)
	if w.reaches(t, silence) {
		t.Fatal("two unknown pods reach each other")
	}
	w.present(pod(oneName, "u1", oneAddr.String()))
	w.expect(t, event.Programmed, oneName, oneAddr.String())
	if w.reaches(t, silence) {
		t.Fatal("a known pod reaches an unknown one")
	}
	w.present(pod(otherName, "u2", otherAddr.String()))
	w.expect(t, event.Programmed, otherName, otherAddr.String())
	if !w.reaches(t, deadline) {
		t.Fatal("two known pods do not reach each other")
	}
	w.absent(pod(otherName, "u2", otherAddr.String()))
	w.expect(t, event.Removed, otherName, otherAddr.String())
	if w.reaches(t, silence) {
		t.Fatal("a pod that is gone is still reached")
	}
}

func TestAnAddressPassesOnlyOverItsOwnLink(t *testing.T) {
	w := newWorld(t, true)
	w.present(pod(oneName, "u1", "10.0.1.77")) // not what the pod uses
	w.expect(t, event.Programmed, oneName, "10.0.1.77")
	w.present(pod(otherName, "u2", otherAddr.String()))
	w.expect(t, event.Programmed, otherName, otherAddr.String())
	if w.reaches(t, silence) {
		t.Error("a pod reaches another with an address that is not its own")
	}
}

func TestWithoutDefaultDenyEverythingPasses(t *testing.T) {
	w := newWorld(t, false)
	if !w.reaches(t, deadline) {
		t.Error("unknown pods do not reach each other")
	}
	w.present(pod(oneName, "u1", oneAddr.String()))
	w.expect(t, event.Programmed, oneName, oneAddr.String())
}

func TestANetworkThatIsOverIsRemoved(t *testing.T) {
	w := newWorld(t, true)
	p := pod(oneName, "u1", oneAddr.String())
	w.present(p)
	w.expect(t, event.Programmed, oneName, oneAddr.String())
	p = pod(oneName, "u1", "")
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	w.present(p)
	w.expect(t, event.Removed, oneName, oneAddr.String())
}

func TestAReplacedPodOutlivesTheEndOfItsPredecessor(t *testing.T) {
	w := newWorld(t, true)
	first, second := pod(oneName, "u1", oneAddr.String()), pod(oneName, "u2", oneAddr.String())
	w.present(first)
	w.expect(t, event.Programmed, oneName, oneAddr.String())
	w.present(second)
	w.expect(t, event.Programmed, oneName, oneAddr.String())
	w.absent(first)
	w.present(pod(otherName, "u3", otherAddr.String()))
	w.expect(t, event.Programmed, otherName, otherAddr.String())
	if !w.reaches(t, deadline) {
		t.Error("the second pod lost its way with the first one's end")
	}
}

func TestAPodThatCannotBeReadKeepsWhatItHad(t *testing.T) {
	w := newWorld(t, true)
	w.present(pod(oneName, "u1", oneAddr.String()))
	w.expect(t, event.Programmed, oneName, oneAddr.String())
	w.present(pod(otherName, "u2", otherAddr.String()))
	w.expect(t, event.Programmed, otherName, otherAddr.String())
	w.present(pod(oneName, "u1", "nonsense"))
	w.expect(t, event.Unreadable, oneName, "")
	if !w.reaches(t, deadline) {
		t.Error("the pod lost its way")
	}
}

func TestHostNetworkPodsAreNotGated(t *testing.T) {
	w := newWorld(t, true)
	p := pod(oneName, "u1", oneAddr.String())
	p.Spec.HostNetwork = true
	w.present(p)
	w.present(pod(otherName, "u2", otherAddr.String()))
	w.expect(t, event.Programmed, otherName, otherAddr.String()) // and none for the first
}

func TestDropsAreCounted(t *testing.T) {
	w := newWorld(t, true)
	if w.reaches(t, silence) {
		t.Fatal("two unknown pods reach each other")
	}
	var drops uint64
	check(t, w.node.Do(func() error {
		counted, err := CountDrops(0)
		drops = counted
		return err
	}))
	if drops == 0 {
		t.Error("no drop was counted")
	}
}

func TestANewAgentTakesOverTheTable(t *testing.T) {
	dir := t.TempDir()
	ns := newNamespace(t, dir, "node")
	known := []Workload{{Link: "eni1", Address: oneAddr}, {Link: "eni1", Address: netip.MustParseAddr("fd00::5")}}
	for range 2 {
		wall, err := OpenFirewall(ns.FD(), true, known)
		check(t, err)
		got, err := wall.Known()
		check(t, err)
		slices.SortFunc(got, func(a, b Workload) int { return a.Address.Compare(b.Address) })
		if diff := cmp.Diff(known, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("workloads in the kernel (-want +got):\n%s", diff)
		}
		check(t, wall.Close())
	}
}
