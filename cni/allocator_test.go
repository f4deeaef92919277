package cni_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net/netip"
	"sync"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// allocator is a daemon in memory that keeps the contract of api.Allocator and api.Auditor: addresses from 10.0.1.20 on,
// the lowest free one first.
type allocator struct {
	beforeAssign func(context.Context) error // nil, or called without the lock
	beforeDone   func(context.Context) error
	notReady     *api.Error
	onRelease    error

	mu       sync.Mutex
	assigned map[api.Attachment]*assignment
	aborts   int
}

type assignment struct {
	addr netip.Addr
	pod  api.Pod
	done bool
}

func newAllocator() *allocator { return &allocator{assigned: make(map[api.Attachment]*assignment)} }

func (a *allocator) Assign(ctx context.Context, request api.AssignRequest) (api.PodNetwork, error) {
	if a.beforeAssign != nil {
		if err := a.beforeAssign(ctx); err != nil {
			return api.PodNetwork{}, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.assigned[request.Attachment]
	if held == nil {
		held = &assignment{addr: a.lowest(), pod: request.Pod}
		a.assigned[request.Attachment] = held
	}
	return recipe(held), nil
}

func (a *allocator) lowest() netip.Addr {
	used := make(map[netip.Addr]bool)
	for _, held := range a.assigned {
		used[held.addr] = true
	}
	addr := netip.MustParseAddr("10.0.1.20")
	for used[addr] {
		addr = addr.Next()
	}
	return addr
}

// recipe names the host's veth as the daemon does: prefix and 11 hex digits of sha1("namespace.pod").
func recipe(held *assignment) api.PodNetwork {
	sum := sha1.Sum([]byte(held.pod.Namespace + "." + held.pod.Name))
	return api.PodNetwork{
		HostVeth: "eni" + hex.EncodeToString(sum[:])[:11],
		MTU:      9001,
		Addr:     netip.PrefixFrom(held.addr, 32),
		Gateway:  netip.MustParseAddr("169.254.1.1"),
		Table:    api.PodsTable,
		Protocol: api.RouteProtocol,
		Repeat:   held.done,
	}
}

func (a *allocator) Done(ctx context.Context, request api.DoneRequest) error {
	if a.beforeDone != nil {
		if err := a.beforeDone(ctx); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.assigned[request.Attachment]
	if held == nil {
		return api.NewError(api.CodeNotAssigned, "attachment has no assignment", "")
	}
	held.done = true
	return nil
}

func (a *allocator) Abort(key api.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if held := a.assigned[key]; held != nil && !held.done {
		delete(a.assigned, key)
		a.aborts++
	}
}

func (a *allocator) Release(_ context.Context, request api.ReleaseRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.onRelease != nil {
		return a.onRelease
	}
	delete(a.assigned, request.Attachment)
	return nil
}

func (a *allocator) Check(_ context.Context, key api.Attachment) (api.PodNetwork, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.assigned[key]
	if held == nil {
		return api.PodNetwork{}, api.NewError(api.CodeNotAssigned, "attachment has no assignment", "")
	}
	return recipe(held), nil
}

func (a *allocator) Status(context.Context) error {
	if a.notReady != nil {
		return a.notReady
	}
	return nil
}

func (a *allocator) GC(_ context.Context, request api.GCRequest) (api.GCReply, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	valid := make(map[api.Attachment]bool)
	for _, key := range request.Valid {
		valid[key] = true
	}
	var reply api.GCReply
	for key := range a.assigned {
		if key.Network == request.Network && !valid[key] {
			reply.Freed = append(reply.Freed, key)
			delete(a.assigned, key)
		}
	}
	return reply, nil
}

// live counts the assignments, done or not.
func (a *allocator) live() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.assigned)
}
