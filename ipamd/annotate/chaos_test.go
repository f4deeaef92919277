package annotate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// world replays what a node and its API server can do to a few pods, and knows what must come of it.
type world struct {
	*bench
	random *rand.Rand
	noUID  bool // a runtime that does not pass the pod's UID
	count  int
	live   map[string][]pool.Annotation // sandboxes by pod name, oldest first
	dead   []pool.Annotation            // whose clear is still to be submitted
	open   map[pool.Owner]bool          // without a final answer to a clear
	uid    map[string]string
}

// TestChaos: whatever is lost, late, refused or replaced, however late a watch is and whoever takes a value off, in the end the newest living sandbox's address is on its pod and
// no dead one's is, and a clear that is answered stays so.
func TestChaos(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	calm := false
	shake := func(m *memory, c *Config) {
		fates := rand.New(rand.NewPCG(seed, 2))
		m.fate = func(string) fate { return draw(fates, calm) }
		spread := rand.New(rand.NewPCG(seed, 3))
		c.Rand, c.Workers = spread.Float64, 1+int(seed%3)
		if seed%3 != 0 {
			lags := rand.New(rand.NewPCG(seed, 4))
			m.lag = func() time.Duration { return time.Duration(lags.ExpFloat64() * float64(time.Second)) }
			c.Pods = m
			time.AfterFunc(time.Duration(lags.IntN(int(8*time.Second))), func() { close(m.begun) })
		}
	}
	virtually(t, shake, func(b *bench) {
		w := &world{
			bench: b, random: random, noUID: seed%4 == 0,
			live: map[string][]pool.Annotation{}, open: map[pool.Owner]bool{}, uid: map[string]string{},
		}
		for i := range 3 {
			w.replace(fmt.Sprint("p", i))
		}
		for range 60 {
			after(time.Duration(random.IntN(int(4 * time.Second))))
			w.checkAnswers()
			w.step()
		}
		calm = true
		for _, record := range w.dead {
			w.clear(record)
		}
		after(2 * time.Hour) // the slowest are refused clears
		w.checkAnswers()
		w.checkEnd()
	})
}

// draw gives a request's fate. A late one is carried out within Settle of the moment when the client gave up (10 s).
func draw(random *rand.Rand, calm bool) fate {
	if calm {
		return fate{}
	}
	server := apierrors.NewInternalError(fmt.Errorf("x"))
	f := fate{pause: time.Duration(random.IntN(int(200 * time.Millisecond)))}
	switch random.IntN(12) {
	case 0:
		f.lost, f.never = true, true
	case 1, 10:
		f.lost, f.late = true, time.Duration(random.IntN(int(35*time.Second)))
	case 2:
		f.err = server
	case 3:
		f.err, f.never = server, true
	case 4:
		f.err, f.never = apierrors.NewTooManyRequests("x", 1), true
	case 5:
		f.err, f.never = status(403, &metav1.StatusDetails{Kind: "pods"}), true
	}
	return f
}

func (w *world) step() {
	name := fmt.Sprint("p", w.random.IntN(3))
	switch w.random.IntN(7) {
	case 6:
		if w.w.pods == Pods(w.api) { // who watches also puts right what others do
			w.api.change("ns", name, func(p *corev1.Pod) { w.meddle(p) })
		}
	case 0, 1:
		w.start(name)
	case 2:
		if n := len(w.live[name]); n > 0 {
			w.end(name, w.random.IntN(n))
		}
	case 3:
		w.replace(name)
	default:
		if n := len(w.dead); n > 0 {
			at := w.random.IntN(n)
			record := w.dead[at]
			w.dead = append(w.dead[:at], w.dead[at+1:]...)
			w.clear(record)
		}
	}
}

// meddle does what others may do to a pod's annotation.
func (w *world) meddle(p *corev1.Pod) {
	if w.random.IntN(2) == 0 {
		delete(p.Annotations, DefaultKey)
	} else if p.Annotations != nil {
		p.Annotations[DefaultKey] = ""
	}
}

// replace deletes the pod and makes another of its name: what ran in it is dead, and its DELs come late or early.
func (w *world) replace(name string) {
	for len(w.live[name]) > 0 {
		w.end(name, 0)
	}
	w.count++
	w.uid[name] = fmt.Sprint("u", w.count)
	w.api.remove("ns", name)
	w.api.add("ns", name, w.uid[name])
}

// start runs a sandbox. Half of the time it gets the address that the pod's last one had.
func (w *world) start(name string) {
	w.count++
	uid := w.uid[name]
	if w.noUID {
		uid = ""
	}
	addr := netip.AddrFrom4([4]byte{10, 0, byte(w.count >> 8), byte(w.count)}).String()
	if n := len(w.live[name]); n > 0 && w.random.IntN(2) == 0 {
		addr = w.live[name][n-1].Addr.String()
		w.end(name, n-1)
	}
	made := record(name, uid, fmt.Sprint("s", w.count), addr, pool.WishPresent)
	w.live[name] = append(w.live[name], made)
	w.open[made.Owner] = true
	w.w.Submit(made)
}

func (w *world) end(name string, at int) {
	live := w.live[name]
	w.dead = append(w.dead, live[at])
	w.live[name] = append(append([]pool.Annotation(nil), live[:at]...), live[at+1:]...)
}

func (w *world) clear(record pool.Annotation) {
	record.Wish, record.Since = pool.WishEmpty, time.Now()
	w.w.Submit(record)
}

// checkAnswers: an answered clear has left nothing of its owner.
func (w *world) checkAnswers() {
	w.mu.Lock()
	answers := w.answers
	w.answers = nil
	w.mu.Unlock()
	var closed []pool.Answer
	for _, a := range answers {
		switch {
		case a.Verdict == pool.VerdictRefused: // an answer for the address; the record goes on
			if a.Wish != pool.WishEmpty {
				w.t.Errorf("refused: %+v", a)
			}
		case a.Wish == pool.WishEmpty && a.Verdict != pool.VerdictPending:
			delete(w.open, a.Owner)
			closed = append(closed, a)
		}
	}
	for _, a := range closed {
		got := w.api.value("ns", a.Owner.Pod.Name, DefaultKey)
		if got == a.Owner.Addr.String() && !w.mayHave(a.Owner.Pod.Name, a.Owner.Addr) {
			w.t.Errorf("%s %s: pod %s still has %s", a.Verdict, a.Reason, a.Owner.Pod.Name, got)
		}
	}
}

// mayHave tells whether a sandbox of the pod with this address is not cleared yet.
func (w *world) mayHave(name string, addr netip.Addr) bool {
	for owner := range w.open {
		if owner.Pod.Name == name && owner.Addr == addr {
			return true
		}
	}
	return false
}

func (w *world) checkEnd() {
	for name := range w.uid {
		got := w.api.value("ns", name, DefaultKey)
		live := w.live[name]
		switch n := len(live); {
		case n > 0 && got != live[n-1].Addr.String():
			w.t.Errorf("pod %s has %q, its newest sandbox %s", name, got, live[n-1].Addr)
		case n == 0 && got != "" && got != "<none>":
			w.t.Errorf("pod %s has %q of a dead sandbox", name, got)
		}
	}
	if w.w.Pending() != 0 {
		w.t.Errorf("%d records never end", w.w.Pending())
	}
}
