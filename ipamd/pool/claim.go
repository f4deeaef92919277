package pool

import (
	"net/netip"
	"time"
)

// Claim is an address that a pod's object names: in the status of a pod that has not finished, or in an annotation. It is no
// proof of anything (the kernel and our own records are), but a reader of the API takes the address for the pod's, so that
// another pod gets it last.
type Claim struct {
	Pod  Pod
	Addr netip.Addr
}

// Taken is an address that was given out although another pod still names it, for want of any other.
type Taken struct {
	Pod  Pod // that got it
	Addr netip.Addr
	By   string // who names it, in words
}

// Claim takes all claims of the node's pods, in place of the earlier ones.
func (p *Pool) Claim(claims []Claim) {
	p.claims = make(map[netip.Addr][]Pod, len(claims))
	for _, c := range claims {
		p.claims[c.Addr] = append(p.claims[c.Addr], c.Pod)
	}
}

// claimant gives a pod other than the given one that names the address, nil if there is none.
func (p *Pool) claimant(addr netip.Addr, pod Pod) *Pod {
	for _, other := range p.claims[addr] {
		same := other.Namespace == pod.Namespace && other.Name == pod.Name && (pod.UID == "" || pod.UID == other.UID)
		if !same {
			return &other
		}
	}
	return nil
}

// noteTaken notes that an address is given to the pod while others name it.
func (p *Pool) noteTaken(a *address, pod Pod, now time.Time) {
	for _, owner := range p.byAddr[a.addr] {
		if p.clearing(a.addr, now) && !samePod(owner.Pod, pod) {
			p.tookClearing++
			p.taken = append(p.taken, Taken{Pod: pod, Addr: a.addr, By: "the annotation of pod " + owner.Pod.Namespace + "/" + owner.Pod.Name})
			return
		}
	}
	if other := p.claimant(a.addr, pod); other != nil {
		p.tookClaimed++
		p.taken = append(p.taken, Taken{Pod: pod, Addr: a.addr, By: "pod " + other.Namespace + "/" + other.Name})
	}
}

// Taken gives what was taken since it was last asked.
func (p *Pool) Taken() []Taken {
	taken := p.taken
	p.taken = nil
	return taken
}
