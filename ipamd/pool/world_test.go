package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// world is a pool with an EC2 and a kernel that do at once what they are told; tests bend them.
type world struct {
	t     *testing.T
	p     *Pool
	now   time.Time
	obs   Observation
	pods  []PodRoute
	calls []string
	next  int // last octet of the next address
	hide  map[netip.Addr]bool
	down  map[string]bool // ENIs whose link or table is not complete
}

func newWorld(t *testing.T, s Settings) *world {
	if s.BootID == "" {
		s.BootID = "boot"
	}
	w := &world{t: t, p: New(s), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), next: 10, hide: map[netip.Addr]bool{}, down: map[string]bool{}}
	w.obs = Observation{
		Instance: Instance{ID: "i-1", Type: "test.kind", Subnet: "subnet-1", Limits: Limits{ENIs: 3, AddressesPerENI: 5}},
		ENIs:     []ENI{{ID: "eni-0", State: Attached, AttachmentID: "att-0", Subnet: "subnet-1", DeleteOnTermination: true, Primary: w.addr(), Groups: []string{"sg-1", "sg-2"}}},
	}
	return w
}

// addr draws a new address.
func (w *world) addr() netip.Addr {
	w.next++
	return netip.AddrFrom4([4]byte{10, 0, byte(w.next / 256), byte(w.next % 256)})
}

func (w *world) addrs(n int) []netip.Addr {
	var out []netip.Addr
	for range n {
		out = append(out, w.addr())
	}
	return out
}

// eni adds an ENI of ours with n secondary addresses.
func (w *world) eni(id string, device, n int) *ENI {
	w.obs.ENIs = append(w.obs.ENIs, ENI{ID: id, State: Attached, AttachmentID: "att-" + id, Device: device, Subnet: "subnet-1",
		DeleteOnTermination: true, Owned: true, Primary: w.addr(), Secondary: w.addrs(n)})
	return &w.obs.ENIs[len(w.obs.ENIs)-1]
}

func (w *world) get(id string) *ENI {
	for i := range w.obs.ENIs {
		if w.obs.ENIs[i].ID == id {
			return &w.obs.ENIs[i]
		}
	}
	return nil
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) observe() {
	obs := w.obs
	obs.ENIs = nil
	for _, e := range w.obs.ENIs {
		e.Secondary = append([]netip.Addr(nil), e.Secondary...)
		obs.ENIs = append(obs.ENIs, e)
	}
	w.p.FoldObservation(obs, w.now)
}

// kernel applies what is wanted and reports all of it, but for hidden addresses.
func (w *world) kernel(audit bool) {
	var report HostReport
	for _, e := range w.p.HostState().ENIs {
		if !w.down[e.ID] {
			report.ENIs = append(report.ENIs, e.ID)
		}
		for _, a := range e.Addresses {
			if !w.hide[a] {
				report.Addresses = append(report.Addresses, a)
			}
		}
	}
	report.Pods = w.pods
	w.p.FoldHost(report, HostReading{Began: w.now, Now: w.now, Audit: audit})
}

func (w *world) sync() {
	w.observe()
	w.kernel(false)
}

func key(sandbox string) Key { return Key{Network: "net", Sandbox: sandbox, IfName: "eth0"} }

func pod(uid string) Pod { return Pod{Namespace: "ns", Name: "pod-" + uid, UID: uid} }

func (w *world) assign(sandbox, uid string) netip.Addr {
	w.t.Helper()
	a, err := w.p.Assign(Request{Key: key(sandbox), Pod: pod(uid)}, w.now)
	if err != nil {
		w.t.Fatalf("assign %s: %v", sandbox, err)
	}
	return a.Addr
}

// run is a whole ADD: assigned, its route in the kernel, done.
func (w *world) run(sandbox, uid string) netip.Addr {
	w.t.Helper()
	addr := w.assign(sandbox, uid)
	w.pods = append(w.pods, PodRoute{Addr: addr, Link: "eni" + sandbox})
	if err := w.p.Done(key(sandbox), w.now); err != nil {
		w.t.Fatal(err)
	}
	return addr
}

// end is a whole DEL, and the kernel's state read after it.
func (w *world) end(sandbox string) {
	w.t.Helper()
	w.forget(sandbox)
	w.kernel(false)
}

// forget is a DEL of which no host report tells yet.
func (w *world) forget(sandbox string) {
	w.t.Helper()
	a, ok := w.p.Release(key(sandbox), w.now)
	if !ok {
		w.t.Fatalf("release %s: unknown", sandbox)
	}
	w.unroute(a.Addr)
}

func (w *world) unroute(addr netip.Addr) {
	var left []PodRoute
	for _, p := range w.pods {
		if p.Addr != addr {
			left = append(left, p)
		}
	}
	w.pods = left
}

func (w *world) refuse(sandbox, uid string) string {
	w.t.Helper()
	a, err := w.p.Assign(Request{Key: key(sandbox), Pod: pod(uid)}, w.now)
	if err == nil {
		w.t.Fatalf("assign %s gave %s", sandbox, a.Addr)
	}
	return err.Error()
}

// plan gives the planned steps as text.
func (w *world) plan() []string {
	out := []string{}
	for _, a := range w.p.Plan(w.now) {
		out = append(out, a.String())
	}
	return out
}

// settle lets plan, EC2 and kernel go on until nothing is planned; it gives the number of calls.
func (w *world) settle() int {
	w.t.Helper()
	for n := range 100 {
		if w.p.NeedObserve("", w.now) != "" {
			w.sync()
		}
		actions := w.p.Plan(w.now)
		if len(actions) == 0 {
			return n
		}
		w.do(actions[0])
		w.kernel(false)
	}
	w.t.Fatalf("planning does not end: %v", w.calls)
	return 0
}

func (w *world) do(action Action) {
	w.calls = append(w.calls, action.String())
	w.p.Begin(action, w.now)
	var out Outcome
	switch act := action.(type) {
	case CreateENI:
		e := ENI{ID: fmt.Sprintf("eni-%d", len(w.calls)+100), State: Available, Owned: true, Subnet: act.Subnet, Primary: w.addr(), Secondary: w.addrs(act.Secondary)}
		w.obs.ENIs = append(w.obs.ENIs, e)
		out.ENI = e
	case AttachENI:
		e := w.get(act.ENI)
		e.State, e.Device, e.AttachmentID, e.DeleteOnTermination = Attached, act.Device, "att-"+e.ID, true
		out.ENI = *e
	case SetDeleteOnTermination:
		w.get(act.ENI).DeleteOnTermination = true
	case AssignAddresses:
		out.Addresses = w.addrs(act.Count)
		e := w.get(act.ENI)
		e.Secondary = append(e.Secondary, out.Addresses...)
	case UnassignAddresses:
		e := w.get(act.ENI)
		var left []netip.Addr
		for _, a := range e.Secondary {
			if !contains(act.Addresses.List(), a) {
				left = append(left, a)
			}
		}
		e.Secondary = left
	case UnassignPrefixes:
		e := w.get(act.ENI)
		e.Prefixes = slices.DeleteFunc(slices.Clone(e.Prefixes), func(p netip.Prefix) bool { return slices.Contains(act.Prefixes.List(), p) })
	case DetachENI:
		e := w.get(act.ENI)
		e.State, e.AttachmentID = Available, ""
		defer w.observe()
	case DeleteENI:
		for i := range w.obs.ENIs {
			if w.obs.ENIs[i].ID == act.ENI {
				w.obs.ENIs = append(w.obs.ENIs[:i], w.obs.ENIs[i+1:]...)
				break
			}
		}
	}
	w.p.Fold(action, out, w.now)
	if _, ok := action.(DetachENI); ok {
		w.pass(settle + time.Second) // so that the reading is believed
	}
}

func contains(list []netip.Addr, addr netip.Addr) bool {
	for _, a := range list {
		if a == addr {
			return true
		}
	}
	return false
}

func (w *world) condition(addr netip.Addr) Condition {
	for _, a := range w.p.View(w.now).Addresses {
		if a.Addr == addr {
			return a.Condition
		}
	}
	return ""
}
