package ping_test

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// deadline is how long anything here may take; it is met in milliseconds.
const deadline = 10 * time.Second

func prober(t *testing.T, ns *netlab.Namespace) *ping.Prober {
	t.Helper()
	var conn net.PacketConn
	if err := ns.Do(func() (err error) { conn, err = ping.Listen(); return err }); err != nil {
		t.Fatal(err)
	}
	p := ping.NewProber(conn)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func namespace(t *testing.T) *netlab.Namespace {
	t.Helper()
	ns, err := netlab.New(filepath.Join(t.TempDir(), "ns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("%s: nothing after %s", what, deadline)
	}
}

var (
	left  = netip.MustParseAddr("192.0.2.1")
	right = netip.MustParseAddr("192.0.2.2")
)

// pair is two namespaces with a link; the right one has its address only after up is called.
func pair(t *testing.T) (a *netlab.Namespace, up func()) {
	t.Helper()
	a, b := namespace(t), namespace(t)
	if err := netlab.Veth(netlab.End{NS: a, Name: "left", MTU: 1500}, netlab.End{NS: b, Name: "right", MTU: 1500}); err != nil {
		t.Fatal(err)
	}
	if err := netlab.AddAddr(a, "left", netip.PrefixFrom(left, 24)); err != nil {
		t.Fatal(err)
	}
	return a, func() {
		if err := netlab.AddAddr(b, "right", netip.PrefixFrom(right, 24)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryRequestIsAnswered(t *testing.T) {
	a, up := pair(t)
	up()
	ctx, stop := context.WithCancel(context.Background())
	train := prober(t, a).Start(ctx, right, time.Millisecond)
	wait(t, train.Answered(), "first answer")
	stop()
	wait(t, train.Done(), "last request")
	for end := time.Now().Add(deadline); train.Result().Failed > 0 && time.Now().Before(end); {
		<-time.After(time.Millisecond) // the kernel's last answer is on its way
	}
	r := train.Result()
	if r.Sent == 0 || r.Failed != 0 || r.FirstReply.IsZero() || !r.LastFailure.IsZero() {
		t.Errorf("result = %+v, want all answered", r)
	}
}

func TestARequestWithoutAnswerHasFailed(t *testing.T) {
	a, _ := pair(t)
	ctx, stop := context.WithCancel(context.Background())
	train := prober(t, a).Start(ctx, right, time.Millisecond)
	stop()
	wait(t, train.Done(), "last request")
	r := train.Result()
	if r.Failed != r.Sent || r.Sent == 0 || !r.FirstReply.IsZero() {
		t.Errorf("result = %+v, want none answered", r)
	}
}

func TestTrainsOfOneSocketAreToldApart(t *testing.T) {
	a, up := pair(t)
	up()
	ctx, stop := context.WithCancel(context.Background())
	p := prober(t, a)
	answered := p.Start(ctx, right, time.Millisecond)
	silent := p.Start(ctx, netip.MustParseAddr("192.0.2.77"), time.Millisecond)
	wait(t, answered.Answered(), "first answer")
	stop()
	wait(t, answered.Done(), "last request")
	wait(t, silent.Done(), "last request")
	if r := silent.Result(); !r.FirstReply.IsZero() {
		t.Errorf("the silent address answered: %+v", r)
	}
}

func TestAnAddressWithoutRouteIsAFailureNotAnEnd(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	train := prober(t, namespace(t)).Start(ctx, right, time.Millisecond)
	stop()
	wait(t, train.Done(), "last request")
	if r := train.Result(); r.Failed != r.Sent || r.SendErr == nil {
		t.Errorf("result = %+v, want failures and the kernel's reason", r)
	}
}
