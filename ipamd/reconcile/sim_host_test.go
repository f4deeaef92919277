package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// simHost is the node's kernel: links are there when the VPC model says so. A pod's veth has its name from the pod's
// namespace and name; of two sandboxes of one name the newer has it, and each removes only what leads to itself.
type simHost struct {
	n       *node // nil in tests that have none
	cloud   *simCloud
	changes chan struct{}

	mu     sync.Mutex
	mapped map[netip.Addr]string // address -> ENI, from the last Apply
	up     map[string]bool       // ENIs whose table is complete
	veths  map[string]*sandbox   // by the name that namespace and name give
	routes map[netip.Addr]*sandbox

	wiped  time.Time // somebody flushed what Apply had made
	whole  time.Time // the last Apply that was carried out to its end began
	deaf   time.Time // until then no change is noticed
	fails  int       // so many Applies fail
	how    string    // "before", "halfway", "after"
	hangs  int       // so many Applies never end
	report pool.HostReport
}

func newSimHost(cloud *simCloud) *simHost {
	return &simHost{cloud: cloud, changes: make(chan struct{}, 1), mapped: map[netip.Addr]string{}, up: map[string]bool{},
		veths: map[string]*sandbox{}, routes: map[netip.Addr]*sandbox{}}
}

func (h *simHost) Changes() <-chan struct{} {
	if h.n != nil {
		h.n.agenda.shake()
	}
	return h.changes
}

func (h *simHost) notify() {
	switch {
	case time.Now().Before(h.deaf):
	case h.n != nil:
		h.n.agenda.once("notice", h.deliver)
	default:
		h.deliver()
	}
}

func (h *simHost) deliver() {
	select {
	case h.changes <- struct{}{}:
	default:
	}
}

// Apply carries out the difference, entry by entry, and may stop in its middle.
func (h *simHost) Apply(ctx context.Context, want pool.HostState) (pool.HostReport, error) {
	fail := ""
	if h.fails > 0 {
		h.fails--
		fail = h.how
		h.n.covered("apply fails " + fail)
	}
	if h.hangs > 0 {
		h.hangs--
		h.n.covered("apply hangs")
		<-ctx.Done()
		return pool.HostReport{}, ctx.Err()
	}
	if fail == "before" {
		return pool.HostReport{}, errors.New("netlink: no buffer space available")
	}
	links := map[string]bool{}
	for _, e := range h.cloud.own() {
		if e.Attachment != nil && e.Attachment.Link {
			links[e.ID] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	steps := h.difference(want, links)
	if fail == "halfway" {
		steps = steps[:len(steps)/2]
	}
	for _, step := range steps {
		step()
	}
	if fail != "" {
		return pool.HostReport{}, errors.New("netlink: interrupted")
	}
	h.whole = time.Now()
	if h.n != nil && h.n.life.reported.IsZero() {
		h.n.life.reported = h.whole
	}
	h.report = h.look(want, links)
	return h.report, nil
}

// difference is what has to be done for the wanted state: removals first, all in a fixed order.
func (h *simHost) difference(want pool.HostState, links map[string]bool) []func() {
	mapped, up := map[netip.Addr]string{}, map[string]bool{}
	var steps []func()
	for _, e := range want.ENIs {
		if links[e.ID] {
			up[e.ID] = true
			for _, addr := range e.Addresses {
				mapped[addr] = e.ID
			}
		}
	}
	for _, id := range keys(h.up, cmpString) {
		if !up[id] {
			steps = append(steps, func() { delete(h.up, id) })
		}
	}
	for _, addr := range keys(h.mapped, netip.Addr.Compare) {
		if mapped[addr] == "" {
			steps = append(steps, func() { delete(h.mapped, addr) })
		}
	}
	for _, id := range keys(up, cmpString) {
		if !h.up[id] {
			steps = append(steps, func() { h.up[id] = true })
		}
	}
	for _, addr := range keys(mapped, netip.Addr.Compare) {
		if h.mapped[addr] != mapped[addr] {
			steps = append(steps, func() { h.mapped[addr] = mapped[addr] })
		}
	}
	return steps
}

// look is what a reading of the kernel shows.
func (h *simHost) look(want pool.HostState, links map[string]bool) pool.HostReport {
	var report pool.HostReport
	for _, e := range want.ENIs {
		if !links[e.ID] || !h.up[e.ID] {
			continue
		}
		report.ENIs = append(report.ENIs, e.ID)
		for _, addr := range e.Addresses {
			if h.mapped[addr] == e.ID {
				report.Addresses = append(report.Addresses, addr)
			}
		}
	}
	for _, addr := range keys(h.routes, netip.Addr.Compare) {
		report.Pods = append(report.Pods, pool.PodRoute{Addr: addr, Link: h.routes[addr].link()})
	}
	return report
}

// setup is podnet.Setup: what stands in the way and leads to another sandbox is replaced if may allows it.
func (h *simHost) setup(s *sandbox, may func() error) error {
	name := s.pod.Namespace + "/" + s.pod.Name
	h.mu.Lock()
	old, route := h.veths[name], h.routes[s.addr]
	h.mu.Unlock()
	if old != nil && old != s || route != nil && route != s {
		if err := may(); err != nil {
			return fmt.Errorf("taken by another sandbox: %w", err)
		}
	}
	h.mu.Lock()
	var over []*sandbox
	for _, other := range []*sandbox{old, route} {
		if other != nil && other != s && !slices.Contains(over, other) {
			over = append(over, other)
		}
	}
	if old != nil && h.veths[name] == old {
		h.unplug(old)
	}
	if route != nil && h.routes[s.addr] == route {
		delete(h.routes, s.addr)
	}
	h.veths[name], h.routes[s.addr] = s, s
	s.veth, s.built = true, true
	h.mu.Unlock()
	for _, other := range over {
		if other.no > s.no && !other.ended {
			h.n.fault("veth's name", "%s took veth or route of the newer %s", s, other)
		}
		if other.runs && other.pod.Name != s.pod.Name {
			h.n.fault("one route", "%s took the route of running %s", s, other)
		}
		h.n.note("%s replaces %s", s, other)
		h.n.cutOff(other)
	}
	h.notify()
	return nil
}

// teardown deletes from inside the sandbox: what leads to it and nothing else.
func (h *simHost) teardown(s *sandbox) {
	h.mu.Lock()
	h.unplug(s)
	h.mu.Unlock()
	h.notify()
}

func (h *simHost) unplug(s *sandbox) {
	if name := s.pod.Namespace + "/" + s.pod.Name; h.veths[name] == s {
		delete(h.veths, name)
	}
	if h.routes[s.addr] == s {
		delete(h.routes, s.addr)
	}
}

// addRoute and removeRoute serve tests without a node.
func (h *simHost) addRoute(addr netip.Addr, name string) {
	h.mu.Lock()
	h.routes[addr] = &sandbox{pod: &simPod{Pod: pool.Pod{Name: name}}}
	h.mu.Unlock()
	h.notify()
}

func (h *simHost) removeRoute(addr netip.Addr, _ string) {
	h.mu.Lock()
	delete(h.routes, addr)
	h.mu.Unlock()
	h.notify()
}

// flush is somebody else's hand: tables of ENIs or the map go, with or without a notice.
func (h *simHost) flush(number uint64, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wiped = time.Now()
	for _, id := range keys(h.up, cmpString) {
		if all || number&1 == 0 {
			delete(h.up, id)
		}
		number >>= 1
	}
	for _, addr := range keys(h.mapped, netip.Addr.Compare) {
		if all || number&1 == 0 {
			delete(h.mapped, addr)
		}
		number >>= 1
	}
}

// reset is a reboot.
func (h *simHost) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mapped, h.up, h.veths, h.routes = map[netip.Addr]string{}, map[string]bool{}, map[string]*sandbox{}, map[netip.Addr]*sandbox{}
	h.wiped = time.Now()
}

// flushed tells whether what Apply made may still be missing for somebody else's doing: drift is repaired within an audit.
func (h *simHost) flushed(since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.wiped.IsZero() && (since.Sub(h.wiped) < 40*time.Second || h.n.isTroubled() || !h.whole.After(h.wiped))
}

// confirmed tells whether packets of the address would find their way.
func (h *simHost) confirmed(addr netip.Addr, eni string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mapped[addr] == eni && h.up[eni]
}

// broken checks what the kernel's own laws are about: one veth for each name, each route over the veth of its own sandbox.
func (h *simHost) broken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, addr := range keys(h.routes, netip.Addr.Compare) {
		s := h.routes[addr]
		if s.addr == addr && h.veths[s.pod.Namespace+"/"+s.pod.Name] != s {
			out = append(out, fmt.Sprintf("the route of %s leads to %s, whose veth is gone", addr, s))
		}
	}
	return out
}
