package reconcile_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// simHost is the node's kernel: links are there when the VPC model says so, pods have a route each.
type simHost struct {
	cloud   *simCloud
	changes chan struct{}

	mu     sync.Mutex
	mapped map[netip.Addr]string // address -> ENI, from the last Apply
	up     map[string]bool       // ENIs whose table is complete
	routes map[netip.Addr]string // pod address -> sandbox
	faults []string              // laws that were broken
}

func newSimHost(cloud *simCloud) *simHost {
	return &simHost{cloud: cloud, changes: make(chan struct{}, 1), mapped: map[netip.Addr]string{}, up: map[string]bool{}, routes: map[netip.Addr]string{}}
}

func (h *simHost) Changes() <-chan struct{} { return h.changes }

func (h *simHost) notify() {
	select {
	case h.changes <- struct{}{}:
	default:
	}
}

func (h *simHost) Apply(_ context.Context, want pool.HostState) (pool.HostReport, error) {
	links := map[string]bool{}
	for _, e := range h.cloud.own() {
		if e.Attachment != nil && e.Attachment.Link {
			links[e.ID] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mapped, h.up = map[netip.Addr]string{}, map[string]bool{}
	var report pool.HostReport
	for _, e := range want.ENIs {
		if !links[e.ID] {
			continue
		}
		report.ENIs = append(report.ENIs, e.ID)
		h.up[e.ID] = true
		for _, addr := range e.Addresses {
			h.mapped[addr] = e.ID
			report.Addresses = append(report.Addresses, addr)
		}
	}
	for addr, sandbox := range h.routes {
		report.Pods = append(report.Pods, pool.PodRoute{Addr: addr, Link: "eni" + sandbox})
	}
	slices.SortFunc(report.Pods, func(a, b pool.PodRoute) int { return a.Addr.Compare(b.Addr) })
	return report, nil
}

// addRoute is the plugin's kernel work.
func (h *simHost) addRoute(addr netip.Addr, sandbox string) {
	h.mu.Lock()
	if other, taken := h.routes[addr]; taken && other != sandbox {
		h.faults = append(h.faults, fmt.Sprintf("%s gets a route for sandbox %s while %s has one", addr, sandbox, other))
	}
	h.routes[addr] = sandbox
	h.mu.Unlock()
	h.notify()
}

// removeRoute is what the end of a veth does.
func (h *simHost) removeRoute(addr netip.Addr, sandbox string) {
	h.mu.Lock()
	if h.routes[addr] == sandbox {
		delete(h.routes, addr)
	}
	h.mu.Unlock()
	h.notify()
}

// confirmed tells whether packets of the address would find their way.
func (h *simHost) confirmed(addr netip.Addr, eni string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mapped[addr] == eni && h.up[eni]
}

func (h *simHost) broken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.faults)
}
