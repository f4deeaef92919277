package reconcile_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// simAPI is the part of the Kubernetes API that annotations touch.
type simAPI struct {
	mu      sync.Mutex
	pods    map[string]*apiPod // by namespace/name
	down    time.Time          // until then no request is answered
	refuses time.Time          // until then every patch is refused
	lost    int                // so many patches are carried out, but answered by nothing
	faults  []string
}

type apiPod struct {
	pool.Pod
	keys        map[string]string
	had         map[string]bool      // keys that ever held an address
	by          map[string]string    // sandbox that wrote a key's value
	live        map[string]string    // running sandboxes: address by sandbox
	orphan      map[string]bool      // keys whose record was lost with the state file
	stuck       map[string]time.Time // keys whose clear was refused: that was an answer
	status      time.Time            // when kubelet's status has an address; zero while there is none
	terminating bool
}

func newSimAPI() *simAPI { return &simAPI{pods: map[string]*apiPod{}} }

func (a *simAPI) create(p pool.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[p.Namespace+"/"+p.Name] = &apiPod{Pod: p, keys: map[string]string{}, had: map[string]bool{}, by: map[string]string{},
		live: map[string]string{}, orphan: map[string]bool{}, stuck: map[string]time.Time{}}
}

// end deletes a pod: it is terminating, and gone once nothing holds it any more.
func (a *simAPI) end(p pool.Pod, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pod := a.find(p); pod != nil {
		pod.terminating = true
		if gone {
			delete(a.pods, p.Namespace+"/"+p.Name)
		}
	}
}

func (a *simAPI) find(p pool.Pod) *apiPod {
	if pod := a.pods[p.Namespace+"/"+p.Name]; pod != nil && pod.UID == p.UID {
		return pod
	}
	return nil
}

func (a *simAPI) started(p pool.Pod, sandbox, addr string, runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.find(p)
	switch {
	case pod == nil:
	case runs:
		pod.live[sandbox] = addr
		if pod.status.IsZero() {
			pod.status = time.Now().Add(2 * time.Second)
		}
	default:
		delete(pod.live, sandbox)
	}
}

// forget is the loss of all records: nobody can know any more whose the values are.
func (a *simAPI) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range a.pods {
		for key := range pod.keys {
			pod.orphan[key] = true
		}
	}
}

// carryOut does one request as the annotator would, and says how it ended, and after how long it is tried again if it did not.
func (a *simAPI) carryOut(rec pool.Annotation) (pool.Answer, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := pool.Answer{Owner: rec.Owner, Wish: rec.Wish, Verdict: pool.VerdictDone, Reason: "ok"}
	again := func(verdict pool.Verdict, reason string, after time.Duration) (pool.Answer, time.Duration) {
		answer.Verdict, answer.Reason = verdict, reason
		return answer, after
	}
	pod := a.find(rec.Pod)
	addr := rec.Addr.String()
	held := append(slices.Clone(rec.Keys), rec.Stale...)
	switch {
	case pod == nil:
		return again(pool.VerdictGone, "notfound", 0)
	case rec.Wish == pool.WishAbsent && pod.holds(held, addr) && pod.terminating:
		return again(pool.VerdictPending, "terminating", 5*time.Minute) // its DEL will set ""
	case rec.Wish == pool.WishAbsent && pod.holds(held, addr) && (pod.status.IsZero() || time.Now().Before(pod.status)):
		return again(pool.VerdictPending, "no status", 5*time.Second)
	case time.Now().Before(a.refuses) && rec.Wish == pool.WishEmpty && pod.holds(held, addr):
		for _, key := range held {
			pod.stuck[key] = time.Now()
		}
		return again(pool.VerdictRefused, "forbidden", time.Minute)
	case time.Now().Before(a.refuses) && (rec.Wish == pool.WishPresent || pod.holds(held, addr)):
		return again(pool.VerdictPending, "forbidden", time.Minute)
	}
	switch rec.Wish {
	case pool.WishPresent:
		for _, key := range rec.Keys {
			pod.keys[key], pod.had[key], pod.by[key] = addr, true, rec.Sandbox
			delete(pod.orphan, key)
			delete(pod.stuck, key)
		}
		for _, key := range rec.Stale {
			if pod.keys[key] == addr {
				delete(pod.keys, key)
			}
		}
	case pool.WishEmpty:
		a.clear(pod, rec, held)
	case pool.WishAbsent:
		for _, key := range held {
			if pod.keys[key] == addr {
				delete(pod.keys, key)
			}
		}
	}
	if a.lost > 0 {
		a.lost--
		return again(pool.VerdictPending, "timeout", 3*time.Second)
	}
	return answer, 0
}

func (p *apiPod) holds(keys []string, addr string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return p.keys[key] == addr })
}

func (a *simAPI) clear(pod *apiPod, rec pool.Annotation, keys []string) {
	addr := rec.Addr.String()
	for _, key := range keys {
		if pod.keys[key] != addr {
			continue // the test on the value fails
		}
		if writer := pod.by[key]; writer != rec.Sandbox && pod.live[writer] == addr {
			a.faults = append(a.faults, fmt.Sprintf("clear of %s/%s by sandbox %s wipes %s of running sandbox %s", rec.Pod.Name, key, rec.Sandbox, addr, writer))
		}
		pod.keys[key] = ""
	}
}

// value gives a key's value, and whether the daemon can know of it.
func (a *simAPI) value(p pool.Pod, key string) (value string, there, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.find(p)
	if pod == nil {
		return "", false, true
	}
	value, there = pod.keys[key]
	return value, there, !pod.orphan[key]
}

// names tells which other pod's annotation names the address, where the daemon can know it and has had no answer about it.
func (a *simAPI) names(addr string, other pool.Pod) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range keys(a.pods, cmpString) {
		pod := a.pods[name]
		for _, key := range keys(pod.keys, cmpString) {
			if pod.Pod != other && pod.keys[key] == addr && !pod.orphan[key] && pod.stuck[key].IsZero() {
				return pod.UID
			}
		}
	}
	return ""
}

func (a *simAPI) broken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Clone(a.faults)
	for _, name := range keys(a.pods, cmpString) {
		for _, key := range keys(a.pods[name].keys, cmpString) {
			if a.pods[name].keys[key] == "" && !a.pods[name].had[key] {
				out = append(out, fmt.Sprintf("%s never had %s and got \"\"", name, key))
			}
		}
	}
	return out
}

// simAnnotator is one life of the annotator: a queue in memory, one request at a time, lost with the daemon.
type simAnnotator struct {
	n      *node
	name   string // on the agenda
	answer func(pool.Answer)

	mu    sync.Mutex
	queue []*wished
	wake  chan struct{}
}

type wished struct {
	pool.Annotation
	due  time.Time
	told map[string]bool
	done bool // written; kept, because an older sandbox's value must not follow
	late bool // a newer sandbox of the pod is to be present
}

func newSimAnnotator(n *node, name string) *simAnnotator {
	return &simAnnotator{n: n, name: name, wake: make(chan struct{}, 1)}
}

// Submit takes a record. A later record of the same owner replaces an earlier one; a newer sandbox's same value makes an
// unsent clear void.
func (a *simAnnotator) Submit(record pool.Annotation) {
	a.mu.Lock()
	a.queue = slices.DeleteFunc(a.queue, func(w *wished) bool {
		return w.Owner == record.Owner || record.Wish == pool.WishPresent && w.Pod == record.Pod && w.Addr == record.Addr
	})
	a.queue = append(a.queue, &wished{Annotation: record, due: time.Now(), told: map[string]bool{}})
	a.mu.Unlock()
	a.n.agenda.once(a.name+" notice", func() {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	})
}

// next gives the record that is due first.
func (a *simAnnotator) next() (*wished, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*wished
	for _, w := range a.queue {
		a.yield(w)
		if !w.done && !w.late {
			list = append(list, w)
		}
	}
	if len(list) == 0 {
		return nil, time.Hour
	}
	w := slices.MinFunc(list, func(x, y *wished) int {
		return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.Pod.UID, y.Pod.UID), cmp.Compare(x.Sandbox, y.Sandbox))
	})
	return w, time.Until(w.due)
}

// yield holds a value back while a newer sandbox of the pod has one, as the annotator does.
func (a *simAnnotator) yield(w *wished) {
	late := w.Wish == pool.WishPresent && slices.ContainsFunc(a.queue, func(o *wished) bool {
		return o != w && o.Wish == pool.WishPresent && o.Pod == w.Pod && o.Since.After(w.Since)
	})
	if w.late && !late {
		w.done = false
	}
	w.late = late
}

// fold puts the record off, or takes it out, unless it was replaced meanwhile.
func (a *simAnnotator) fold(w *wished, answer pool.Answer, again time.Duration) {
	a.mu.Lock()
	at := slices.Index(a.queue, w)
	if at < 0 {
		a.mu.Unlock()
		return
	}
	told := w.told[answer.Reason]
	w.told[answer.Reason] = true
	switch {
	case again > 0:
		w.due = time.Now().Add(again)
	case w.Wish == pool.WishPresent && answer.Verdict == pool.VerdictDone:
		w.done, told = true, false
	default:
		a.queue = slices.Delete(a.queue, at, at+1)
		told = false
	}
	a.mu.Unlock()
	if !told {
		a.answer(answer)
	}
}

// unanswered tells whether a wish about the address was submitted and not answered: nobody can know what its pod shows.
func (a *simAnnotator) unanswered(addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.queue, func(w *wished) bool { return w.Addr == addr && !w.done })
}

// run carries requests out until ctx ends.
func (a *simAnnotator) run(ctx context.Context) {
	for {
		w, due := a.next()
		if w == nil || due > 0 {
			if _, err := a.n.agenda.waitOr(ctx, now()+due, a.name, a.wake); err != nil {
				return
			}
			continue
		}
		if down := time.Until(a.n.api.down); down > 0 {
			a.fold(w, pool.Answer{Owner: w.Owner, Wish: w.Wish, Verdict: pool.VerdictPending, Reason: "timeout"}, down+time.Second)
			if a.n.agenda.wait(ctx, 0, a.name) != nil { // each answer has a turn of its own
				return
			}
			continue
		}
		var answer pool.Answer
		var again time.Duration
		if a.n.effect(ctx, "patch", string(w.Wish), func(context.Context) error {
			answer, again = a.n.api.carryOut(w.Annotation)
			a.n.note("patch %s %s %s: %s %s", w.Wish, w.Sandbox, w.Addr, answer.Verdict, answer.Reason)
			return nil
		}) != nil {
			return
		}
		a.fold(w, answer, again)
	}
}
