package annotate

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// guard is an API server that refuses operations while it is closed.
type guard struct {
	patch, get bool // refused
}

func (g *guard) set(m *memory, _ *Config) {
	m.fate = func(op string) fate {
		if op == "patch" && g.patch || op == "get" && g.get {
			return fate{never: true, err: status(403, &metav1.StatusDetails{Kind: "pods"})}
		}
		return fate{}
	}
}

func (g *guard) close() { g.patch, g.get = true, true }
func (g *guard) open()  { g.patch, g.get = false, false }

// written has a sandbox's address on a pod.
func (b *bench) written(name, uid, sandbox, addr string) {
	b.t.Helper()
	b.api.add("ns", name, uid)
	b.w.Submit(record(name, uid, sandbox, addr, pool.WishPresent))
	after(time.Second)
	b.expect("present done ok")
}

// The permission is gone at DEL: the answer comes at once, and the dead address goes when the permission is back, whatever of
// a clear was refused.
func TestA23RefusedClearIsCarriedOutWhenItIsAllowedAgain(t *testing.T) {
	for name, closed := range map[string]guard{
		"patch and get": {patch: true, get: true}, "patch alone": {patch: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guard{}
			virtually(t, g.set, func(b *bench) {
				b.written("p", "u1", "s1", "10.0.0.1")
				*g = closed
				b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
				after(time.Second)
				b.expect("empty refused forbidden")
				before := b.api.count()
				after(10 * time.Hour)
				b.expect()
				b.holds("p", "10.0.0.1")
				if n := b.api.count() - before; n < 20 || n > 60 {
					b.t.Errorf("%d requests in ten hours, want two each half hour", n)
				}
				g.open()
				after(time.Hour)
				b.expect("empty done ok")
				b.holds("p", "")
				if b.w.Pending() != 0 || len(b.w.known) != 0 {
					b.t.Errorf("something is left: %d pending, %d pods", b.w.Pending(), len(b.w.known))
				}
			})
		})
	}
}

func TestAPatchThatIsTakenBringsRefusedRecordsForward(t *testing.T) {
	g := &guard{}
	virtually(t, g.set, func(b *bench) {
		for i := range 30 {
			b.written(fmt.Sprint("p", i), "u", "s", fmt.Sprint("10.0.0.", i+1))
		}
		g.close()
		b.w.Submit(record("p0", "u", "s0", "10.0.1.1", pool.WishPresent)) // a new sandbox of the pod
		for i := range 30 {
			b.w.Submit(record(fmt.Sprint("p", i), "u", "s", fmt.Sprint("10.0.0.", i+1), pool.WishEmpty))
		}
		after(3 * time.Hour)
		if said := b.said(); len(said) != 31 {
			b.t.Errorf("want one answer for each, got %v", said)
		}
		g.open()
		b.api.add("ns", "new", "u")
		start := b.api.count()
		b.w.Submit(record("new", "u", "s", "10.0.2.1", pool.WishPresent))
		after(time.Second)
		if sent := b.api.count() - start; sent > 40 {
			b.t.Errorf("%d requests in a second: not spread", sent)
		}
		after(4 * time.Second)
		if said := b.said(); len(said) != 32 {
			b.t.Errorf("%d answers, want 32: %v", len(said), said)
		}
		b.holds("p0", "10.0.1.1")
		for _, value := range b.api.history[podName{"ns", "p0"}] {
			if value == "" {
				b.t.Error("the dead sandbox's clear went before the living one's value")
			}
		}
		for i := 1; i < 30; i++ {
			b.holds(fmt.Sprint("p", i), "")
		}
	})
}

// Successes of other pods must not multiply the requests about one that is refused for ever.
func TestOnePodsRefusalDoesNotFollowAllSuccesses(t *testing.T) {
	refused := 0
	policy := func(m *memory, _ *Config) {
		m.fate = func(op string) fate {
			last := m.requests[len(m.requests)-1]
			if op == "patch" && last == "patch ns/p" && len(m.requests) > 1 {
				refused++
				return fate{never: true, err: status(422, nil)}
			}
			return fate{}
		}
	}
	virtually(t, policy, func(b *bench) {
		b.written("p", "u1", "s1", "10.0.0.1")
		b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
		b.api.add("ns", "q", "u2")
		for i := range 360 {
			b.w.Submit(record("q", "u2", fmt.Sprint("s", i), fmt.Sprintf("10.0.%d.%d", 1+i/200, 1+i%200), pool.WishPresent))
			after(10 * time.Second)
		}
		if refused > 30 {
			b.t.Errorf("%d refused patches in an hour with 360 others", refused)
		}
	})
}

func TestRefusedClearEnds(t *testing.T) {
	ends := map[string]struct {
		change func(*bench, *guard)
		want   string
		holds  string
	}{
		"the pod is gone":           {func(b *bench, g *guard) { g.get = false; b.api.remove("ns", "p") }, "empty gone notfound", "<gone>"},
		"another pod has the name":  {func(b *bench, g *guard) { g.get = false; b.api.remove("ns", "p"); b.api.add("ns", "p", "u2") }, "empty gone uid", "<none>"},
		"somebody wrote over it":    {func(b *bench, g *guard) { g.get = false; b.change("10.0.0.9") }, "empty gone value", "10.0.0.9"},
		"somebody emptied it":       {func(b *bench, g *guard) { g.get = false; b.change("") }, "empty done ok", ""},
		"a day has passed":          {func(*bench, *guard) { after(24 * time.Hour) }, "empty gone abandoned", "10.0.0.1"},
		"the pod's next sandbox":    {func(b *bench, _ *guard) { b.w.Submit(record("p", "u1", "s2", "10.0.0.1", pool.WishPresent)) }, "empty gone superseded", "10.0.0.1"},
		"the next, another address": {func(b *bench, g *guard) { g.open(); b.w.Submit(record("p", "u1", "s2", "10.0.0.2", pool.WishPresent)) }, "empty gone value", "10.0.0.2"},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			g := &guard{}
			virtually(t, g.set, func(b *bench) {
				b.written("p", "u1", "s1", "10.0.0.1")
				g.close()
				b.w.Submit(record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty))
				after(time.Second)
				b.expect("empty refused forbidden")
				c.change(b, g)
				after(time.Hour)
				var last string
				for _, said := range b.said() {
					if said[:5] == "empty" {
						last = said
					}
				}
				if last != c.want {
					b.t.Errorf("last answer %q, want %q", last, c.want)
				}
				b.holds("p", c.holds)
			})
		})
	}
}

func (b *bench) change(value string) {
	b.api.change("ns", "p", func(p *corev1.Pod) { p.Annotations[DefaultKey] = value })
}

// The daemon is restarted while the permission is gone: the record comes from disk, as old as it is.
func TestRefusedClearIsResumedByTheNextLife(t *testing.T) {
	g := &guard{}
	virtually(t, g.set, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.api.change("ns", "p", func(p *corev1.Pod) { p.Annotations = map[string]string{DefaultKey: "10.0.0.1"} })
		g.close()
		rec := record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty)
		rec.Since, rec.Keys, rec.Stale = rec.Since.Add(-23*time.Hour), nil, []string{DefaultKey}
		b.w.Submit(rec)
		after(10 * time.Minute)
		b.expect("empty refused forbidden")
		g.open()
		after(31 * time.Minute)
		b.expect("empty done ok")
		b.holds("p", "")
	})
}

// A policy refuses one key of two: each is judged on its own, and only the refused one is tried again.
func TestOneKeyOfTwoIsRefused(t *testing.T) {
	const other = "example.org/ip"
	g := &guard{}
	virtually(t, g.set, func(b *bench) {
		b.api.add("ns", "p", "u1")
		b.api.change("ns", "p", func(p *corev1.Pod) { p.Annotations = map[string]string{DefaultKey: "10.0.0.1", other: ""} })
		after(time.Minute) // no set of an earlier life is in doubt any more
		g.patch = true
		rec := record("p", "u1", "s1", "10.0.0.1", pool.WishEmpty)
		rec.Keys = []string{DefaultKey, other}
		b.w.Submit(rec)
		after(time.Second)
		b.expect("empty done ok", "empty refused forbidden")
		after(time.Hour)
		b.expect()
		g.patch = false
		after(time.Hour)
		b.expect("empty done ok")
		b.holds("p", "")
	})
}

// Without permission every pod that ends leaves a refused clear: the oldest are given up, and people hear of it.
func TestRefusedClearsAreBounded(t *testing.T) {
	g := &guard{}
	virtually(t, g.set, func(b *bench) {
		g.close()
		for i := range 600 {
			rec := record(fmt.Sprint("p", i), "u", "s", fmt.Sprintf("10.0.%d.%d", i/200, 1+i%200), pool.WishEmpty)
			b.w.Submit(rec)
			after(30 * time.Second)
		}
		after(time.Hour)
		if n := b.w.Pending(); n > refusalsKept+10 {
			b.t.Errorf("%d refused clears are kept", n)
		}
		start := b.api.count()
		after(time.Hour)
		if n := b.api.count() - start; n > 2*2*2*refusalsKept {
			b.t.Errorf("%d requests in an hour", n)
		}
		told := map[string]bool{}
		for _, event := range b.events {
			told[event] = true
		}
		if !told["PodAnnotationForbidden"] || !told["PodAnnotationAbandoned"] {
			b.t.Errorf("events %v", told)
		}
	})
}
