package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// simAPI is the part of the Kubernetes API that annotations touch.
type simAPI struct {
	mu     sync.Mutex
	pods   map[string]*apiPod // by namespace/name
	down   time.Time          // until then no request is answered
	faults []string
}

type apiPod struct {
	pool.Pod
	keys map[string]string
	had  map[string]bool   // keys that ever held an address
	by   map[string]string // sandbox that wrote a key's value
	live map[string]string // running sandboxes: address by sandbox
}

func newSimAPI() *simAPI { return &simAPI{pods: map[string]*apiPod{}} }

func (a *simAPI) create(p pool.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[p.Namespace+"/"+p.Name] = &apiPod{Pod: p, keys: map[string]string{}, had: map[string]bool{}, by: map[string]string{}, live: map[string]string{}}
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
	if pod := a.find(p); pod != nil {
		if runs {
			pod.live[sandbox] = addr
		} else {
			delete(pod.live, sandbox)
		}
	}
}

// carryOut does one request as the annotator would, and says how it ended.
func (a *simAPI) carryOut(rec pool.Annotation) pool.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := pool.Answer{Owner: rec.Owner, Wish: rec.Wish, Verdict: pool.VerdictDone}
	pod := a.find(rec.Pod)
	if pod == nil {
		answer.Verdict = pool.VerdictGone
		return answer
	}
	addr := rec.Addr.String()
	switch rec.Wish {
	case pool.WishPresent:
		for _, key := range rec.Keys {
			pod.keys[key], pod.had[key], pod.by[key] = addr, true, rec.Sandbox
		}
		for _, key := range rec.Stale {
			delete(pod.keys, key)
		}
	case pool.WishEmpty:
		a.clear(pod, rec, addr)
	case pool.WishAbsent:
		for _, key := range rec.Keys {
			if pod.keys[key] == addr {
				delete(pod.keys, key)
			}
		}
	}
	return answer
}

func (a *simAPI) clear(pod *apiPod, rec pool.Annotation, addr string) {
	for _, key := range rec.Keys {
		if pod.keys[key] != addr {
			continue // the test on the value fails
		}
		if writer := pod.by[key]; writer != rec.Sandbox && pod.live[writer] == addr {
			a.faults = append(a.faults, fmt.Sprintf("clear of %s/%s by sandbox %s wipes %s of running sandbox %s", rec.Pod.Name, key, rec.Sandbox, addr, writer))
		}
		pod.keys[key] = ""
	}
}

func (a *simAPI) value(p pool.Pod, key string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.find(p)
	if pod == nil {
		return "", false
	}
	value, ok := pod.keys[key]
	return value, ok
}

func (a *simAPI) broken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Clone(a.faults)
	for name, pod := range a.pods {
		for key, value := range pod.keys {
			if value == "" && !pod.had[key] {
				out = append(out, fmt.Sprintf("%s never had %s and got \"\"", name, key))
			}
		}
	}
	return out
}

// simAnnotator is one life of the annotator: a queue in memory, one request at a time, lost with the daemon.
type simAnnotator struct {
	api    *simAPI
	answer func(pool.Answer)

	mu    sync.Mutex
	queue []pool.Annotation
	wake  chan struct{}
}

func newSimAnnotator(api *simAPI) *simAnnotator {
	return &simAnnotator{api: api, wake: make(chan struct{}, 1)}
}

func (a *simAnnotator) Submit(record pool.Annotation) {
	a.mu.Lock()
	// A later record of the same owner replaces an earlier one; a newer sandbox's same value makes an unsent clear void.
	a.queue = slices.DeleteFunc(a.queue, func(r pool.Annotation) bool {
		return r.Owner == record.Owner || record.Wish == pool.WishPresent && r.Pod == record.Pod && r.Addr == record.Addr
	})
	a.queue = append(a.queue, record)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *simAnnotator) next() (pool.Annotation, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return pool.Annotation{}, false
	}
	record := a.queue[0]
	a.queue = a.queue[1:]
	return record, true
}

// run carries requests out until ctx ends; pause gives each its own virtual duration.
func (a *simAnnotator) run(ctx context.Context, pause func(context.Context, string) error) {
	for {
		record, ok := a.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-a.wake:
			}
			continue
		}
		if down := time.Until(a.api.down); down > 0 {
			a.answer(pool.Answer{Owner: record.Owner, Wish: record.Wish, Verdict: pool.VerdictPending, Reason: "timeout"})
			if wait(ctx, down+time.Nanosecond) != nil {
				return
			}
		}
		if pause(ctx, "patch") != nil {
			return
		}
		answer := a.api.carryOut(record)
		if pause(ctx, "patched") != nil {
			return
		}
		a.answer(answer)
	}
}

// pass lets virtual time pass: every caller is in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
