package pool

import (
	"cmp"
	"slices"
	"time"
)

// How often the kernel is read again for a departure. A namespace that is gone takes its veth along a moment later
// (net/core/net_namespace.c does it in a worker): 0.1 s as a rule, seconds on a busy node. What stands for longer is not the
// departed sandbox's.
const (
	departFirst = 250 * time.Millisecond
	departTries = 5 // 0, 0.25, 0.75, 1.75 and 3.75 s
)

// departure is the deletion of a sandbox that has no record, but whose pod's veth was seen on an address.
type departure struct {
	Owner
	next  time.Time // the kernel is to be read then; reports that began before say nothing
	tries int
}

// Departed tells that a sandbox without a record (a lost state file) was deleted; link is the host veth that sandboxes of its
// pod have. If a pod is seen on an address by that link, the kernel is to be read again: see NeedHost. Only when the route is
// gone then was it this sandbox's and not that of a newer one of the pod; the address is free, and its annotation is cleared.
func (p *Pool) Departed(pod Pod, sandbox, link string, now time.Time) {
	if link == "" || p.departing(sandbox) {
		return
	}
	for addr, a := range p.addrs {
		if a.occupied && a.link == link {
			p.departed = append(p.departed, departure{Owner: Owner{Pod: pod, Sandbox: sandbox, Addr: addr}, next: now})
		}
	}
	slices.SortFunc(p.departed, func(a, b departure) int { return cmp.Or(a.next.Compare(b.next), a.Addr.Compare(b.Addr)) })
}

func (p *Pool) departing(sandbox string) bool {
	return slices.ContainsFunc(p.departed, func(d departure) bool { return d.Sandbox == sandbox })
}

// foldDeparted ends the departures that a report speaks of, after foldOccupied.
func (p *Pool) foldDeparted(at HostReading) {
	var still []departure
	for _, d := range p.departed {
		a := p.addrs[d.Addr]
		switch {
		case d.next.After(at.Began): // the report may have been made before the veth went
		case a == nil || !a.occupied && a.holder == nil:
			p.part(d, at.Now)
			continue
		default:
			d.next = at.Now.Add(departFirst << d.tries)
			if d.tries++; d.tries >= departTries || a.holder != nil {
				continue
			}
		}
		still = append(still, d)
	}
	p.departed = still
}

// part clears what an earlier life may have written on the pod of a sandbox that is gone. Without a UID the clear could meet
// another pod of the name. Nothing else is believed: a host veth tells a pod's name and not its UID, so that the sandbox may
// be one of the pod's successor, whose ADD failed while the predecessor stood. The address rests since it was seen free (see
// foldOccupied), and for this pod too: remembered as its last, it would be given to the successor with no cooldown at all.
func (p *Pool) part(d departure, now time.Time) {
	if d.Pod.UID == "" || !p.set.Annotate || len(p.set.Keys) == 0 || p.records[d.Owner] != nil || p.runs(d.Pod) {
		return
	}
	p.put(&Annotation{Owner: d.Owner, Keys: slices.Clone(p.set.Keys), Wish: WishEmpty, Since: now})
}
