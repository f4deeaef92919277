package pool

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkAssign1000(b *testing.B) {
	p, now := filled(20, 50)
	pods := []Pod{pod("a"), pod("b"), pod("c")} // in turn, so that none finds its previous address first
	for i := 0; b.Loop(); i++ {
		a, err := p.Assign(Request{Key: key("s"), Pod: pods[i%3]}, now)
		if err != nil {
			b.Fatal(err)
		}
		p.Release(a.Key, now)
		now = now.Add(time.Second)
	}
}

func BenchmarkPlan64x50(b *testing.B) {
	p, now := filled(64, 50)
	for b.Loop() {
		if got := p.Plan(now); len(got) != 0 {
			b.Fatal(got)
		}
	}
}

// filled is a pool of so many ENIs and addresses each, half of them in use.
func filled(enis, addresses int) (*Pool, time.Time) {
	w := newWorld(nil, Settings{WarmIP: 1, SurplusAge: 1 << 60, BootID: "boot"})
	w.obs.Instance.Limits = Limits{ENIs: enis, AddressesPerENI: addresses + 1}
	w.obs.ENIs[0].Secondary = w.addrs(addresses)
	for i := 1; i < enis; i++ {
		w.eni(fmt.Sprint("eni-", i), i, addresses)
	}
	w.sync()
	for i := range enis * addresses / 2 {
		if _, err := w.p.Assign(Request{Key: key(fmt.Sprint("x", i)), Pod: pod(fmt.Sprint(i))}, w.now); err != nil {
			panic(err)
		}
	}
	return w.p, w.now
}
