package pool

import (
	"net/netip"
	"slices"
	"time"
)

// FoldObservation takes a complete reading of the cloud. EC2's descriptions lag: what a call has answered within settle
// stands against a reading that does not show it yet, and what was given up stays away from a reading that still does.
// A reading without the primary ENI is no reading.
func (p *Pool) FoldObservation(obs Observation, now time.Time) {
	isPrimary := func(e ENI) bool { return e.Device == 0 && e.State != Available }
	if obs.Instance.ID == "" || !slices.ContainsFunc(obs.ENIs, isPrimary) {
		p.ObserveFailed(&CloudError{Class: ClassUnknown, Message: "the reading shows no instance or no primary ENI"}, now)
		return
	}
	p.unblock("Observe", "")
	p.instance, p.cidrs = obs.Instance, obs.VPCCIDRs
	seen := make(map[string]bool, len(obs.ENIs))
	for _, o := range obs.ENIs {
		if p.buried[o.ID].After(now) {
			continue
		}
		seen[o.ID] = true
		p.foldENI(o, now)
	}
	for _, e := range p.order {
		if !seen[e.ID] && now.Sub(e.created) >= settle && now.Sub(e.changed) >= settle {
			p.dropENI(e)
		}
	}
	p.sortENIs()
	p.rehome()
	p.prune(now)
	p.observed, p.unsure = true, ""
	p.doubt(now)
}

// denial is a reading that does not show an ENI, on which a sandbox holds an address, as attached.
type denial struct {
	since    time.Time
	believed bool
}

// doubt keeps the kernel as it is while a reading denies an ENI that pods use: right after a restart it may be a stale
// reading, and believing it would cut them off. A denial that outlasts settle is the truth.
func (p *Pool) doubt(now time.Time) {
	denied := ""
	for _, a := range p.holdings() {
		if e := p.enis[a.holder.ENI]; e == nil || e.State != Attached && e.State != Attaching {
			denied = a.holder.ENI
		}
	}
	switch {
	case denied == "":
		p.denial = denial{}
	case p.denial.since.IsZero():
		p.denial.since = now
		p.unsure = "a reading of EC2 does not show " + denied + ", which pods use"
		p.blocks[blockKey{"Observe", ""}] = block{until: now.Add(settle), why: p.unsure}
	case now.Sub(p.denial.since) >= settle:
		p.denial.believed = true
	}
}

// ObserveFailed takes a failed reading. What was known stands, and is acted upon: readings and actions are throttled apart.
func (p *Pool) ObserveFailed(err error, now time.Time) {
	class, why := classify(err)
	first, limit := time.Second, 30*time.Second // one node's reading costs a few calls of a bucket of 10 to 20 a second
	if class == ClassThrottled {
		first, limit = 2*time.Second, time.Minute
	}
	p.block(now, blockKey{"Observe", ""}, backoff{why: "reading EC2 failed: " + why, first: first, limit: limit})
}

func (p *Pool) foldENI(o ENI, now time.Time) {
	e := p.enis[o.ID]
	if e == nil {
		e = &eni{}
		p.enis[o.ID] = e
		p.order = append(p.order, e)
		if o.Owned && o.State == Available {
			p.create = nil // what a lost answer would have told
		}
	} else if now.Sub(e.changed) < settle {
		ours, read := e.State == Attached || e.State == Attaching, o.State == Attached || o.State == Attaching
		if ours && o.State == Available || e.State == Detaching && read {
			o.State, o.AttachmentID, o.Device = e.State, e.AttachmentID, e.Device
		}
		o.DeleteOnTermination = o.DeleteOnTermination || e.DeleteOnTermination
	}
	e.ENI = o
	e.Secondary, e.Prefixes = nil, nil // the addresses below are the truth
	if now.Sub(e.leaving) >= settle {
		e.leaving = time.Time{}
	}
	p.attachment(e, now)
	p.foldAddresses(e, o, now)
}

// attachment keeps the clock of a missing link in step with the attachment.
func (p *Pool) attachment(e *eni, now time.Time) {
	if e.State != Attached && e.State != Attaching {
		e.reported, e.absent = false, time.Time{}
	} else if !e.reported && e.absent.IsZero() {
		e.absent = now
	}
}

func (p *Pool) foldAddresses(e *eni, o ENI, now time.Time) {
	list := make([]*address, 0, len(o.Secondary))
	have := make(map[netip.Addr]bool, len(o.Secondary))
	for _, m := range members(o.Secondary, o.Prefixes) {
		addr := m.addr
		if addr == o.Primary || have[addr] || p.buried[addr.String()].After(now) {
			continue
		}
		have[addr] = true
		a := p.at(addr)
		if a.eni != e {
			p.move(a, e, now)
		}
		a.block = m.block
		if now.Sub(a.leaving) >= settle {
			a.leaving = time.Time{}
		}
		list = append(list, a)
	}
	for _, a := range e.addresses {
		switch {
		case have[a.addr] || a.eni != e:
		case a.ours && now.Sub(a.gained) < settle:
			list = append(list, a)
		default:
			a.eni, a.confirm, a.leaving = nil, false, time.Time{}
		}
	}
	e.setAddresses(list)
}

// move puts an address on an ENI (from none, or from another one).
func (p *Pool) move(a *address, e *eni, now time.Time) {
	a.eni, a.gained, a.ours, a.confirm, a.leaving = e, now, false, false, time.Time{}
	if a.holder != nil && a.holder.ENI != e.ID && e.managed() {
		a.holder.ENI = e.ID
		p.revision++
	}
}

// dropENI forgets an ENI; its addresses are no longer ours. A sandbox that holds one keeps its record until it ends.
func (p *Pool) dropENI(e *eni) {
	for _, a := range e.addresses {
		if a.eni == e {
			a.eni, a.confirm, a.leaving = nil, false, time.Time{}
		}
	}
	delete(p.enis, e.ID)
}

// rehome drops from each ENI's list the addresses that a later ENI of the same reading claimed.
func (p *Pool) rehome() {
	for _, e := range p.order {
		kept := e.addresses[:0]
		for _, a := range e.addresses {
			if a.eni == e {
				kept = append(kept, a)
			}
		}
		e.addresses = kept
	}
}
