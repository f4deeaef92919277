package pool

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrUnknown is the answer about a sandbox that holds no address.
var ErrUnknown = errors.New("no address is assigned to this sandbox")

// EmptyError says that no address can be given out at this moment. Reason is a sentence for people.
type EmptyError struct{ Reason string }

func (e *EmptyError) Error() string { return e.Reason }

// Request asks for an address for a sandbox.
type Request struct {
	Key   Key
	Pod   Pod
	NetNS string
	Seq   uint64 // from Ticket; 0: it arrives now
}

// Assign gives the sandbox an address: the one that it has; else the one that the same pod UID had last; else a free one;
// else one that is free but for another pod's annotation or status that still names it. Older sandboxes of the pod that are not done can no longer
// be. The error is *EmptyError or ErrSuperseded.
func (p *Pool) Assign(req Request, now time.Time) (Assignment, error) {
	if req.Seq == 0 {
		req.Seq = p.Ticket()
	}
	if p.Superseded(req) {
		return Assignment{}, fmt.Errorf("assign address to sandbox %s: %w", req.Key.Sandbox, ErrSuperseded)
	}
	if a := p.held[req.Key]; a != nil {
		return a.holder.Assignment, nil
	}
	a := p.pick(req.Pod, now)
	if a == nil {
		return Assignment{}, &EmptyError{p.Why(now)}
	}
	p.noteTaken(a, req.Pod, now)
	if p.previous[a.last.UID] == a.addr {
		delete(p.previous, a.last.UID)
	}
	a.last, a.until = Pod{}, time.Time{}
	a.holder = &holding{Assignment: Assignment{
		Key: req.Key, Pod: req.Pod, Addr: a.addr, ENI: a.eni.ID, NetNS: req.NetNS, Since: now, Seq: req.Seq,
	}}
	p.held[req.Key] = a
	p.enter(a.holder)
	p.revision++
	p.announce(a.holder, now)
	return a.holder.Assignment, nil
}

// CanAssign tells whether Assign would give an address, at less cost than asking it for its reasons.
func (p *Pool) CanAssign(req Request, now time.Time) bool {
	return p.held[req.Key] != nil || p.pick(req.Pod, now) != nil
}

// pick chooses an address: on the lowest device that has one, so that the last ENIs run empty and can be given up; there
// the one that has rested longest, since remote ends and conntrack remember an address longer than its cooldown.
func (p *Pool) pick(pod Pod, now time.Time) *address {
	// The same pod need not wait until its old route is seen gone: its new veth has the old one's name and takes its place.
	if a := p.addrs[p.previous[pod.UID]]; a != nil && pod.UID != "" && a.holder == nil && !a.occupied && a.reachable() {
		return a
	}
	var last *address // of those that another pod's annotation or status still names
	for _, e := range p.order {
		if !e.reported {
			continue
		}
		var best *address
		for _, a := range e.addresses {
			condition := p.condition(a, now)
			switch named := condition == Clearing || condition == Free && p.claimant(a.addr, pod) != nil; {
			case named:
				if last == nil || a.until.Before(last.until) {
					last = a
				}
			case condition == Free:
				if best == nil || a.until.Before(best.until) {
					best = a
				}
			}
		}
		if best != nil {
			return best
		}
	}
	return last
}

// Done tells that the sandbox's interface is in place. The error is ErrUnknown or ErrSuperseded.
func (p *Pool) Done(key Key, now time.Time) error {
	a := p.held[key]
	if a == nil {
		return fmt.Errorf("finish sandbox %s: %w", key.Sandbox, ErrUnknown)
	}
	if p.surpassed(a.holder) {
		return fmt.Errorf("finish sandbox %s: %w", key.Sandbox, ErrSuperseded)
	}
	if !a.holder.Done {
		a.holder.Done, a.holder.unproven = true, false
		p.revision++
	}
	a.holder.done, a.holder.misses = now, 0
	return nil
}

// Undone takes back a Done that could not be answered.
func (p *Pool) Undone(key Key) {
	if a := p.held[key]; a != nil && a.holder.Done {
		a.holder.Done, a.holder.done = false, time.Time{}
		p.revision++
	}
}

// Abort takes back an assignment that was never done, and tells whether there was one.
func (p *Pool) Abort(key Key, now time.Time) bool {
	a := p.held[key]
	if a == nil || a.holder.Done {
		return false
	}
	p.release(a, now)
	return true
}

// Release takes the sandbox's address back into cooldown. It tells whether the sandbox was known. Whether the kernel holds
// nothing of the sandbox any more is not taken on the caller's word, which may name no namespace or a wrong one: see NeedHost.
func (p *Pool) Release(key Key, now time.Time) (Assignment, bool) {
	a := p.held[key]
	if a == nil {
		return Assignment{}, false
	}
	was := a.holder.Assignment
	p.release(a, now)
	return was, true
}

// GC takes back every done assignment of the network that is not among the valid ones. One in progress is spared: the
// runtime may have made its list before it began.
func (p *Pool) GC(network string, valid []Key, now time.Time) []Key {
	var freed []Key
	for _, a := range p.holdings() {
		key := a.holder.Key
		if key.Network == network && a.holder.Done && !slices.Contains(valid, key) {
			p.release(a, now)
			freed = append(freed, key)
		}
	}
	return freed
}

// Current gives the sandbox's assignment, if it is still the one to have its pod's network. The error is ErrUnknown or
// ErrSuperseded.
func (p *Pool) Current(key Key) (Assignment, error) {
	a := p.held[key]
	switch {
	case a == nil:
		return Assignment{}, fmt.Errorf("check sandbox %s: %w", key.Sandbox, ErrUnknown)
	case p.surpassed(a.holder):
		return Assignment{}, fmt.Errorf("check sandbox %s: %w", key.Sandbox, ErrSuperseded)
	}
	return a.holder.Assignment, nil
}

// Lookup gives the sandbox's assignment.
func (p *Pool) Lookup(key Key) (Assignment, bool) {
	if a := p.held[key]; a != nil {
		return a.holder.Assignment, true
	}
	return Assignment{}, false
}

// Lost gives the assignments whose address EC2 does not say is ours, by address: after a reading, pods that are cut off. In a
// small subnet an address that was taken away can be somebody else's soon, and that may be an ENI on this very instance.
func (p *Pool) Lost() []Assignment {
	var list []Assignment
	for _, a := range p.holdings() {
		if a.lost() {
			list = append(list, a.holder.Assignment)
		}
	}
	return list
}

// ENI gives an ENI with its present addresses; those of its prefixes are among the secondary ones.
func (p *Pool) ENI(id string) (ENI, bool) {
	e := p.enis[id]
	if e == nil {
		return ENI{}, false
	}
	out := e.ENI
	out.Prefixes = e.blocks()
	for _, a := range e.addresses {
		out.Secondary = append(out.Secondary, a.addr)
	}
	return out, true
}

func (p *Pool) release(a *address, now time.Time) {
	h := a.holder
	a.holder, a.ended = nil, now
	delete(p.held, h.Key)
	p.leave(h)
	p.rest(a, h.Pod, now)
	p.disown(h, now)
}

// rest begins an address's cooldown.
func (p *Pool) rest(a *address, pod Pod, now time.Time) {
	a.last, a.until = pod, now.Add(p.set.Cooldown)
	if pod.UID != "" {
		p.previous[pod.UID] = a.addr
	}
	p.revision++
}
