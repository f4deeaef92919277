package fault_test

import (
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// burst gives how many requests at one moment are let through, up to 2,000.
func burst(b *fault.Buckets, at time.Time, account, action string, plain bool) int {
	n := 0
	for range 2000 {
		if b.Take(at, account, action, plain, 0) {
			n++
		}
	}
	return n
}

func TestBucketsOfActions(t *testing.T) {
	cases := []struct {
		action        string
		plain         bool
		size, afterOf int // after of ten seconds
	}{
		{"DescribeSubnets", true, 100, 100},
		{"DescribeNetworkInterfaces", false, 100, 100},
		{"DescribeNetworkInterfaces", true, 50, 50},
		{"CreateNetworkInterface", false, 100, 50},
		{"AttachNetworkInterface", false, 50, 50},
		{"CreateTags", false, 100, 100},
		{"CreateSubnetCidrReservation", false, 5, 5},
		{"RunInstances", false, 5, 5},
	}
	b := fault.NewBuckets(true)
	for _, c := range cases {
		if got := burst(b, now, "1", c.action, c.plain); got != c.size {
			t.Errorf("%s: a burst of %d is let through, want %d", c.action, got, c.size)
		}
		if got := burst(b, now.Add(10*time.Second), "1", c.action, c.plain); got != c.afterOf {
			t.Errorf("%s: %d more after ten seconds, want %d", c.action, got, c.afterOf)
		}
	}
	if got := burst(b, now.Add(time.Second/2), "1", "AttachNetworkInterface", false); got != 0 {
		t.Errorf("time that goes back filled %d", got)
	}
	if got := burst(b, now, "2", "AttachNetworkInterface", false); got != 50 {
		t.Errorf("another account has %d", got)
	}
}

// TestScaleOutOf500Nodes: one attach each empties the bucket at once, then it takes 90 s.
func TestScaleOutOf500Nodes(t *testing.T) {
	b := fault.NewBuckets(true)
	attached, seconds := 0, 0
	for ; attached < 500; seconds++ {
		for range 500 - attached {
			if b.Take(now.Add(time.Duration(seconds)*time.Second), "1", "AttachNetworkInterface", false, 0) {
				attached++
			}
		}
	}
	if seconds-1 != 90 {
		t.Fatalf("%d s", seconds-1)
	}
}

func TestResourcesAndOwnBuckets(t *testing.T) {
	b := fault.NewBuckets(true)
	if !b.Take(now, "1", "RunInstances", false, 1000) || b.Take(now, "1", "RunInstances", false, 1) {
		t.Error("more than 1000 instances at once")
	}
	if !b.Take(now.Add(time.Second), "1", "RunInstances", false, 2) {
		t.Error("two more a second")
	}
	b.Set("CreateTags", fault.Bucket{Size: 1})
	if got := burst(b, now.Add(time.Hour), "1", "CreateTags", false); got != 1 {
		t.Errorf("an own bucket of one lets %d through", got)
	}
	b.Switch(false)
	if got := burst(b, now, "1", "CreateTags", false); got != 2000 || b.On() {
		t.Errorf("switched off, %d are let through", got)
	}
	b.Switch(true)
	if got := burst(b, now, "1", "CreateTags", false); got != 1 || !b.On() {
		t.Errorf("switched on again, %d are let through", got)
	}
}

func TestHangIsLifted(t *testing.T) {
	table := table(t, fault.Rule{Name: "h", Kind: fault.Hang}, fault.Rule{Name: "s", Kind: fault.Stale, Age: time.Second})
	for _, lift := range []func(){
		func() { table.Switch("h", false) },
		func() { table.Remove("h") },
	} {
		effect := table.Next("A", nil)
		if !effect.Hang || effect.Rule != "h" || effect.Stale != 0 {
			t.Fatalf("%+v", effect)
		}
		select {
		case <-effect.Lifted:
			t.Fatal("lifted too early")
		default:
		}
		lift()
		<-effect.Lifted
		table.Switch("h", true)
	}
	if effect := table.Next("A", nil); effect.Stale != time.Second || effect.Rule != "s" {
		t.Fatalf("%+v", effect)
	}
}

func TestJitterIsDrawnFromTheSeed(t *testing.T) {
	draws := func(seed uint64) [5]time.Duration {
		table := table(t, fault.Rule{Name: "d", Kind: fault.Delay, Delay: time.Second, Jitter: time.Second})
		table.Seed(seed)
		var out [5]time.Duration
		for n := range out {
			if out[n] = table.Next("A", nil).Delay; out[n] < time.Second || out[n] > 2*time.Second {
				t.Errorf("delay of %s", out[n])
			}
		}
		return out
	}
	if first := draws(1); first != draws(1) || first == draws(2) {
		t.Error("jitter does not follow its seed")
	}
}
