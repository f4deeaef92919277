package pool

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// withPrefix is a node that was left with two prefixes on its primary ENI and one secondary address.
func withPrefix(t *testing.T, s Settings) (w *world, first, second netip.Prefix) {
	w = newWorld(t, s)
	first, second = netip.MustParsePrefix("10.9.0.16/28"), netip.MustParsePrefix("10.9.0.32/28")
	w.get("eni-0").Prefixes = []netip.Prefix{first, second}
	w.get("eni-0").Secondary = []netip.Addr{netip.MustParseAddr("10.0.0.200")}
	w.sync()
	return w, first, second
}

// Every address of a prefix serves pods, the first and the last one too.
func TestPrefixServesAllItsAddresses(t *testing.T) {
	w, first, second := withPrefix(t, Settings{WarmIP: 1, MaxENI: 1})
	got := map[netip.Addr]bool{}
	for i := range 33 {
		sandbox := string(rune('A' + i))
		got[w.run(sandbox, sandbox)] = true
	}
	for _, prefix := range []netip.Prefix{first, second} {
		n := 0
		for addr := range got {
			if prefix.Contains(addr) {
				n++
			}
		}
		if n != 16 {
			t.Errorf("%d pods on %s, want 16", n, prefix)
		}
	}
	if len(got) != 33 {
		t.Errorf("%d addresses for 33 pods", len(got))
	}
	w.refuse("late", "late")
}

// A prefix takes one place: an ENI of four with two prefixes and an address has one left, whatever is missing.
func TestPrefixTakesOnePlace(t *testing.T) {
	w, _, _ := withPrefix(t, Settings{WarmIP: 40, MaxENI: 1})
	if got, want := w.plan(), []string{"assign 1 addresses to eni-0"}; !slices.Equal(got, want) {
		t.Errorf("planned %q, want %q", got, want)
	}
	w.settle()
	if e := w.get("eni-0"); len(e.Secondary) != 2 {
		t.Errorf("%d secondary addresses, want 2", len(e.Secondary))
	}
}

// A prefix goes back as a whole, and not while one of its addresses is used or rests. Members never go back one by one.
func TestPrefixStaysWhileOneOfItsAddressesIsUsedOrRests(t *testing.T) {
	w, first, second := withPrefix(t, Settings{WarmIP: 1, Cooldown: 20 * time.Minute, SurplusAge: time.Minute})
	on := map[netip.Prefix]string{} // one sandbox on each prefix; the others end
	var others []string
	for i := 0; len(on) < 2; i++ {
		sandbox := string(rune('A' + i))
		addr := w.run(sandbox, sandbox)
		switch {
		case first.Contains(addr) && on[first] == "":
			on[first] = sandbox
		case second.Contains(addr) && on[second] == "":
			on[second] = sandbox
		default:
			others = append(others, sandbox)
		}
	}
	for _, sandbox := range others {
		w.end(sandbox)
	}
	quiet := func(d time.Duration) {
		for range int(d / (30 * time.Second)) {
			w.pass(30 * time.Second)
			w.kernel(true)
			w.settle()
		}
	}
	kept := func(while string, want ...netip.Prefix) {
		t.Helper()
		if got := w.get("eni-0").Prefixes; !slices.Equal(got, want) {
			t.Fatalf("%s: prefixes %v, want %v: %q", while, got, want, w.calls)
		}
	}
	quiet(30 * time.Minute)
	kept("both are used", first, second)
	w.end(on[first])
	quiet(15 * time.Minute)
	kept("an address of the first rests", first, second)
	quiet(15 * time.Minute)
	kept("the first is unused", second)
	for _, call := range w.calls {
		if call != "unassign prefixes "+first.String()+" from eni-0" && call != "unassign 10.0.0.200 from eni-0" {
			t.Errorf("a call that gives back neither the first prefix nor the secondary address: %s", call)
		}
	}
}

// A stale reading that still shows a prefix that was given back gives none of its addresses out again.
func TestPrefixGivenBackStaysAway(t *testing.T) {
	w, first, _ := withPrefix(t, Settings{WarmIP: 1})
	w.p.Begin(UnassignPrefixes{ENI: "eni-0", Prefixes: NewPrefixes([]netip.Prefix{first})}, w.now)
	if got := w.condition(first.Addr()); got != Leaving {
		t.Errorf("while it is given back: %s", got)
	}
	w.p.Fold(UnassignPrefixes{ENI: "eni-0", Prefixes: NewPrefixes([]netip.Prefix{first})}, Outcome{}, w.now)
	w.sync()
	if e, _ := w.p.ENI("eni-0"); slices.Contains(e.Prefixes, first) {
		t.Errorf("prefixes %v after %s was given back", e.Prefixes, first)
	}
}

// What EC2 assigned stands against a reading that does not show it yet, as with addresses.
func TestPrefixAssignedOutlivesAStaleReading(t *testing.T) {
	w := newWorld(t, Settings{WarmIP: 1})
	w.sync()
	prefix := netip.MustParsePrefix("10.9.0.16/28")
	act := AssignPrefixes{ENI: "eni-0", Count: 1}
	w.p.Begin(act, w.now)
	w.p.Fold(act, Outcome{Prefixes: []netip.Prefix{prefix}}, w.now)
	w.sync()
	if e, _ := w.p.ENI("eni-0"); len(e.Secondary) != 16 || !slices.Equal(e.Prefixes, []netip.Prefix{prefix}) {
		t.Errorf("%+v", e)
	}
	w.pass(settle + time.Second)
	w.sync()
	if e, _ := w.p.ENI("eni-0"); len(e.Secondary) != 0 || len(e.Prefixes) != 0 {
		t.Errorf("EC2 has not shown it for longer than it lags: %+v", e)
	}
}
