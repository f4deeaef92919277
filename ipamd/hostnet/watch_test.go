package hostnet

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/nftables"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// awaitChange fails the test when no change is delivered in time. The kernel sends its notes before the call that made the
// change returns, so only pace and the scheduler stand between.
func awaitChange(t *testing.T, h *Host, what string) {
	t.Helper()
	select {
	case <-h.Changes():
	case <-time.After(10 * time.Second):
		t.Fatalf("no change delivered after %s", what)
	}
}

func TestRunDeliversChangesOfEveryKind(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.host(settings())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.node.Do(func() error { return h.Run(ctx) }) }()

	address := netip.MustParsePrefix("10.0.9.9/32")
	awaitChange(t, h, "the start")
	for quiet := false; !quiet; { // nothing more comes by itself
		select {
		case <-h.Changes():
		case <-time.After(2 * changesInterval):
			quiet = true
		}
	}

	r := Rule{Priority: priorityPods, Table: tablePods}
	l.withTools(func(x tool) error { return x.nl.RuleAdd(r.wire()) })
	awaitChange(t, h, "a rule")
	l.must(netlab.AddAddr(l.node, "eth0", address))
	awaitChange(t, h, "an address")
	l.must(netlab.AddRoute(l.node, netlab.Route{Dst: netip.MustParsePrefix("198.51.100.0/24"), Link: "eth0", Table: 9}))
	awaitChange(t, h, "a route")
	turn := func(file string, value int) {
		l.must(l.node.Do(func() error { return writeSysctl(file, value) }))
	}
	turn(rpFilterFile("eth0"), 1)
	awaitChange(t, h, "a reverse path filter")
	turn(forwardingFile, 1)
	awaitChange(t, h, "forwarding")
	l.withTools(func(x tool) error { x.nft.AddTable(table()); return x.nft.Flush() })
	awaitChange(t, h, "our nftables table")
	l.withTools(func(x tool) error { x.nft.DelTable(table()); return x.nft.Flush() })
	awaitChange(t, h, "the loss of our nftables table")
	l.must(netlab.DelLink(l.node, "eth1"))
	awaitChange(t, h, "a link")

	// A pod's link and route come and go with every pod, and kube-proxy writes its table all the time: no reasons to look at
	// everything.
	l.withTools(func(x tool) error {
		x.nft.AddTable(&nftables.Table{Name: "kube-proxy", Family: nftables.TableFamilyIPv4})
		return x.nft.Flush()
	})
	l.must(netlab.Veth(netlab.End{NS: l.node, Name: "eni0123456789a"}, netlab.End{NS: l.outside, Name: "pod"}))
	l.must(netlab.AddRoute(l.node, netlab.Route{Dst: netip.MustParsePrefix("10.0.1.77/32"), Link: "eni0123456789a", Table: tablePods}))
	l.must(netlab.DelLink(l.node, "eni0123456789a"))
	select {
	case <-h.Changes():
		t.Error("a change was delivered for a pod's link and route, or another's table")
	case <-time.After(3 * changesInterval):
	}
	l.must(netlab.Veth(netlab.End{NS: l.node, Name: "eni0123456789a"}, netlab.End{NS: l.outside, Name: "pod"}))
	l.must(netlab.AddRoute(l.node, netlab.Route{Dst: netip.MustParsePrefix("10.0.1.77/32"), Link: "eni0123456789a", Table: tablePods}))
	l.must(netlab.DelRoute(l.node, netlab.Route{Dst: netip.MustParsePrefix("10.0.1.77/32"), Link: "eni0123456789a", Table: tablePods}))
	awaitChange(t, h, "a route of a living pod was deleted")

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Run ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Run did not end with its context")
	}
}

func TestPaceMergesBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events, out := make(chan struct{}, 1), make(chan struct{}, 1)
		ended := make(chan struct{})
		go func() { defer close(ended); pace(ctx, events, out) }()

		start := time.Now()
		signal(events)
		<-out
		if d := time.Since(start); d != 0 {
			t.Errorf("the first event waited %v", d)
		}
		var delivered []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-out:
					delivered = append(delivered, time.Since(start))
				case <-ctx.Done():
					return
				}
			}
		}()
		const burst = time.Second
		for range burst / time.Millisecond {
			signal(events)
			<-time.After(time.Millisecond)
		}
		<-time.After(burst)
		cancel()
		<-ended
		<-done
		if most := int(burst/changesInterval) + 1; len(delivered) > most || len(delivered) < most-2 {
			t.Errorf("a second of events gave %d changes, want about %d", len(delivered), most)
		}
		if last := delivered[len(delivered)-1]; last < burst-changesInterval || last > burst+changesInterval {
			t.Errorf("the last change came at %v, want one for the end of the burst", last)
		}
	})
}
