package pool

import (
	"errors"
	"slices"
)

// ErrSuperseded is the answer about a sandbox whose pod has a newer one: the runtime has given it up, even if its plugin is
// still at work.
var ErrSuperseded = errors.New("the pod has a newer sandbox")

// slot is what only one sandbox can have at a time: a pod's interface. The host veth is named by it.
type slot struct {
	network, ifName, namespace, name string
}

// slotOf gives a sandbox's slot; false for one that belongs to no pod, which has no rivals.
func slotOf(key Key, pod Pod) (slot, bool) {
	return slot{key.Network, key.IfName, pod.Namespace, pod.Name}, pod.Name != ""
}

// Ticket numbers an ADD by its arrival: of two sandboxes of one pod the higher number is the newer, whichever is given an
// address first.
func (p *Pool) Ticket() uint64 {
	p.seq++
	return p.seq
}

// Superseded tells whether the request is of no use any more: its pod has a newer sandbox that holds an address.
func (p *Pool) Superseded(req Request) bool {
	seq := req.Seq
	if a := p.held[req.Key]; a != nil {
		if a.holder.stale {
			return true
		}
		seq = a.holder.Seq
	}
	s, ok := slotOf(req.Key, req.Pod)
	return ok && p.newer(s, seq)
}

// newer tells whether a sandbox of the slot with a higher number holds an address.
func (p *Pool) newer(s slot, seq uint64) bool {
	return slices.ContainsFunc(p.rivals[s], func(h *holding) bool { return h.Seq > seq })
}

// surpassed tells whether a holding must not be finished. Once it was overtaken it stays so, even if the newer sandbox has
// ended since: that one's plugin may have removed its veth.
func (p *Pool) surpassed(h *holding) bool {
	s, ok := slotOf(h.Key, h.Pod)
	return ok && (h.stale || p.newer(s, h.Seq))
}

// enter notes a new holding among those of its pod; older ones that are not done can no longer be.
func (p *Pool) enter(h *holding) {
	s, ok := slotOf(h.Key, h.Pod)
	if !ok {
		return
	}
	for _, other := range p.rivals[s] {
		other.stale = other.stale || !other.Done && other.Seq < h.Seq
	}
	p.rivals[s] = append(p.rivals[s], h)
}

// leave forgets a holding.
func (p *Pool) leave(h *holding) {
	s, ok := slotOf(h.Key, h.Pod)
	if !ok {
		return
	}
	p.rivals[s] = slices.DeleteFunc(p.rivals[s], func(other *holding) bool { return other == h })
	if len(p.rivals[s]) == 0 {
		delete(p.rivals, s)
	}
}
