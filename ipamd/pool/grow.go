package pool

import (
	"fmt"
	"hash/fnv"
	"time"
)

// grow finds short more addresses: on an ENI of ours that is only to be attached, then in room on attached ENIs, then on a
// new ENI.
func (p *Pool) grow(now time.Time, short int) []Action {
	actions, left, waiting := p.attachAll(now, short)
	for _, e := range p.order {
		if left <= 0 {
			return actions
		}
		room := p.perENI() - e.places()
		if !e.managed() || !e.attached() || e.overdue(now) || room <= 0 || p.subnetWaits(now, e.Subnet) {
			continue
		}
		if _, wait := p.blocked(now, "AssignAddresses", e.ID); wait {
			continue
		}
		n := p.capped(now, e.ID, p.wish(room, left))
		actions = append(actions, AssignAddresses{ENI: e.ID, Count: n})
		left -= n
	}
	// A new ENI only when none of ours waits to be attached: whatever keeps that one off would keep off the new one.
	if left > 0 && !waiting {
		if create, ok := p.newENI(now, left); ok {
			actions = append(actions, create)
		}
	}
	return actions
}

// wish is how many addresses to ask for where there is room for some: all of it when whole ENIs are the target.
func (p *Pool) wish(room, left int) int {
	if p.set.byAddress() {
		return min(room, left)
	}
	return room
}

// attachAll attaches ENIs of ours that are available, as far as they are needed and places are free. It tells how many
// addresses are missing then, and whether an ENI remains that could not be attached yet.
func (p *Pool) attachAll(now time.Time, short int) (actions []Action, left int, waiting bool) {
	left = short
	used := p.usedDevices()
	places := p.maxENIs(now) - p.attachments()
	for _, e := range p.order {
		if e.State != Available || !e.Owned || e.broken {
			continue
		}
		needed := left > 0 || e.inUse()
		if _, wait := p.blocked(now, "AttachENI", e.ID); wait || !needed || places <= 0 {
			waiting = waiting || wait && needed
			continue
		}
		device := lowestFree(used)
		used[device] = true
		places--
		left -= len(e.addresses)
		actions = append(actions, AttachENI{ENI: e.ID, Device: device})
	}
	return actions, left, waiting
}

// newENI is the creation that is wanted; one whose answer is not known is repeated as it was, since its token gives the same
// ENI again.
func (p *Pool) newENI(now time.Time, left int) (Action, bool) {
	primary := p.primary()
	if primary == nil || p.maxENIs(now) <= p.attachments() || p.subnetWaits(now, p.instance.Subnet) {
		return nil, false
	}
	if _, wait := p.blocked(now, "CreateENI", p.instance.Subnet); wait {
		return nil, false
	}
	if p.create != nil && now.Sub(p.create.at) < 4*settle { // later, the token's ENI may have been found and deleted meanwhile
		return p.create.CreateENI, true
	}
	p.create = nil
	p.tokens++
	return CreateENI{
		Subnet:    p.instance.Subnet,
		Groups:    joined(primary.Groups),
		Secondary: p.capped(now, p.instance.Subnet, p.wish(p.perENI(), min(left, p.perENI()))),
		Token:     p.token(now),
	}, true
}

// token makes a ClientToken that no other daemon, and no other life of this one, makes.
func (p *Pool) token(now time.Time) string {
	h := fnv.New64a()
	fmt.Fprint(h, p.instance.ID, p.set.BootID, p.set.Seed)
	return fmt.Sprintf("%016x-%x-%d", h.Sum64(), now.UnixNano(), p.tokens)
}

func (p *Pool) primary() *eni {
	for _, e := range p.order {
		if e.Device == 0 && e.State != Available {
			return e
		}
	}
	return nil
}

func (p *Pool) usedDevices() map[int]bool {
	used := map[int]bool{0: true}
	for _, e := range p.order {
		if e.State != Available {
			used[e.Device] = true
		}
	}
	return used
}

func lowestFree(used map[int]bool) int {
	for device := 1; ; device++ {
		if !used[device] {
			return device
		}
	}
}

func (p *Pool) subnetWaits(now time.Time, subnet string) bool {
	_, wait := p.blocked(now, "subnet", subnet)
	return wait
}

// inUse tells whether a sandbox or an unknown pod holds one of the ENI's addresses.
func (e *eni) inUse() bool {
	for _, a := range e.addresses {
		if a.holder != nil || a.occupied {
			return true
		}
	}
	return false
}
