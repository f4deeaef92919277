package pool

import "time"

// Failed takes the refusal or failure of an action. It becomes a not-before time, a smaller request, or a limit that was
// learnt; after an answer that may have been lost, EC2 is read again before anything is planned.
func (p *Pool) Failed(action Action, err error, now time.Time) {
	class, why := classify(err)
	what, target := name(action)
	p.Begin(action, now) // it may still be carried out: a client's own retries can hide an attempt that was answered nowhere
	if _, creating := action.(CreateENI); creating && class != ClassUnknown && class != ClassThrottled {
		p.create = nil
	}
	switch class {
	case ClassThrottled:
		p.block(now, blockKey{what, ""}, backoff{what + " is throttled by EC2: " + why, 2 * time.Second, time.Minute})
		if GivesBack(action) {
			p.unsure = what + " failed"
		}
		return
	case ClassDenied:
		p.stay(action)
		// Permissions change by an operator's hand: minutes.
		p.block(now, blockKey{what, ""}, backoff{what + " is not permitted: " + why, time.Minute, 5 * time.Minute})
		return
	case ClassSubnetFull:
		p.subnetFull(action, why, now)
		return
	case ClassLimit:
		p.limit(action, why, now)
	case ClassGone:
		p.gone(action, why, now)
	case ClassInUse:
		p.block(now, blockKey{what, target}, backoff{what + " must wait: " + why, 5 * time.Second, time.Minute})
	case ClassInvalid:
		p.block(now, blockKey{what, target}, backoff{what + " was refused: " + why, 30 * time.Second, 5 * time.Minute})
	default:
		p.block(now, blockKey{what, target}, backoff{what + " failed: " + why, time.Second, 30 * time.Second})
	}
	p.unsure = what + " failed"
}

// stay takes back what Begin said of an action that was surely not carried out.
func (p *Pool) stay(action Action) {
	switch act := action.(type) {
	case UnassignAddresses:
		for _, addr := range act.Addresses.List() {
			if a := p.addrs[addr]; a != nil {
				a.leaving = time.Time{}
			}
		}
	case DetachENI:
		if e := p.enis[act.ENI]; e != nil {
			e.leaving = time.Time{}
		}
	}
}

func (p *Pool) subnetFull(action Action, why string, now time.Time) {
	subnet, target, n := p.instance.Subnet, "", 1
	switch act := action.(type) {
	case CreateENI:
		subnet, target, n = act.Subnet, act.Subnet, act.Secondary
	case AssignAddresses:
		if e := p.enis[act.ENI]; e != nil {
			subnet = e.Subnet
		}
		target, n = act.ENI, act.Count
	}
	if !p.halve(now, target, n) {
		p.block(now, blockKey{"subnet", subnet}, backoff{"subnet " + subnet + " has no free address: " + why, subnetRest, subnetRest})
	}
}

// limit learns from EC2's own limits, whatever the table of instance types says.
func (p *Pool) limit(action Action, why string, now time.Time) {
	what, target := name(action)
	learnt := backoff{what + " met a limit of EC2: " + why, learnFirst, learnLimit}
	switch act := action.(type) {
	case AttachENI:
		p.learnedENIs = max(1, p.attachments())
		p.block(now, blockKey{limitENIs, ""}, learnt)
		return
	case AssignAddresses:
		if p.halve(now, target, act.Count) {
			return
		}
	case CreateENI:
		if p.halve(now, target, act.Secondary) {
			return
		}
		target = "" // the account's quota of ENIs
	}
	p.block(now, blockKey{what, target}, learnt)
}

// limitENIs is the block whose length is how long learnedENIs is believed.
const limitENIs = "limit of ENIs"

// gone: for a deletion that is success; for anything else the next reading shows what is left. What was just created may
// be unknown to EC2 for some seconds, so that nothing is forgotten here.
func (p *Pool) gone(action Action, why string, now time.Time) {
	if act, ok := action.(DeleteENI); ok {
		p.deleted(act.ENI, now)
		return
	}
	what, target := name(action)
	p.block(now, blockKey{what, target}, backoff{what + " found nothing: " + why, time.Second, 30 * time.Second})
}

// attachments counts the ENIs that take a place on the instance.
func (p *Pool) attachments() int {
	n := 0
	for _, e := range p.order {
		if e.State != Available {
			n++
		}
	}
	return n
}
