package pool

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// pendingCreate is a CreateENI whose answer is not known: repeated as it was, its token gives the same ENI.
type pendingCreate struct {
	CreateENI
	at time.Time
}

// GivesBack tells whether the action takes addresses away. One that does must not be carried out before the state that Begin
// leaves is on disk: should the daemon die right after it, EC2's readings may show the addresses for a while, and the next
// life must know better than to give them out.
func GivesBack(action Action) bool {
	switch action.(type) {
	case UnassignAddresses, UnassignPrefixes, DetachENI:
		return true
	}
	return false
}

// Begin tells that an action is being carried out. What is about to leave is no longer given out from here on.
func (p *Pool) Begin(action Action, now time.Time) {
	if GivesBack(action) {
		p.revision++
	}
	switch act := action.(type) {
	case CreateENI:
		p.create = &pendingCreate{act, now}
	case UnassignAddresses:
		p.giveBack(act.Addresses.List(), now)
	case UnassignPrefixes:
		p.giveBack(act.Prefixes.addresses(), now)
	case DetachENI:
		if e := p.enis[act.ENI]; e != nil {
			if e.leaving.IsZero() && !e.overdue(now) { // else they did not count
				p.surplus.spend(len(e.addresses))
			}
			e.leaving = now
			e.broken = e.broken || e.overdue(now)
		}
	}
}

// giveBack tells that addresses are being given back.
func (p *Pool) giveBack(addrs []netip.Addr, now time.Time) {
	for _, addr := range addrs {
		if a := p.addrs[addr]; a != nil {
			if a.leaving.IsZero() {
				p.surplus.spend(1)
			}
			a.leaving = now
		}
	}
}

// Fold takes the outcome of an action that succeeded.
func (p *Pool) Fold(action Action, out Outcome, now time.Time) {
	what, target := name(action)
	p.unblock(what, "")
	p.unblock(what, target)
	switch act := action.(type) {
	case CreateENI:
		p.created(out.ENI, now)
	case AttachENI:
		p.attachedAt(act, out.ENI, now)
	case SetDeleteOnTermination:
		if e := p.enis[act.ENI]; e != nil {
			e.DeleteOnTermination, e.changed = true, now
		}
	case AssignAddresses:
		if e := p.enis[act.ENI]; e != nil {
			p.gain(e, members(out.Addresses, nil), action, now)
		}
	case AssignPrefixes:
		if e := p.enis[act.ENI]; e != nil {
			p.gain(e, members(nil, out.Prefixes), action, now)
		}
	case UnassignAddresses:
		p.lose(act.ENI, act.Addresses.List(), now)
	case UnassignPrefixes:
		p.lose(act.ENI, act.Prefixes.addresses(), now)
	case DetachENI:
		if e := p.enis[act.ENI]; e != nil {
			e.State, e.changed, e.leaving = Detaching, now, time.Time{}
			p.attachment(e, now)
		}
	case DeleteENI:
		p.deleted(act.ENI, now)
	}
}

func (p *Pool) created(o ENI, now time.Time) {
	p.create = nil
	if o.ID == "" {
		p.empty(CreateENI{}, now)
		return
	}
	if o.State == "" || p.enis[o.ID] == nil {
		o.State = Available
	}
	o.Owned = true
	if !o.SubnetCIDR.IsValid() {
		for _, other := range p.order {
			if other.Subnet == o.Subnet {
				o.SubnetCIDR = other.SubnetCIDR
			}
		}
	}
	p.foldENI(o, now)
	p.enis[o.ID].created = now
	for _, a := range p.enis[o.ID].addresses {
		a.ours = true
	}
	p.sortENIs()
}

func (p *Pool) attachedAt(act AttachENI, o ENI, now time.Time) {
	e := p.enis[act.ENI]
	if e == nil {
		p.unsure = "an ENI was attached that is not known"
		return
	}
	e.State, e.AttachmentID, e.Device = o.State, o.AttachmentID, act.Device
	if e.State == "" || e.State == Available {
		e.State = Attaching
	}
	e.DeleteOnTermination, e.changed, e.leaving = o.DeleteOnTermination, now, time.Time{}
	p.attachment(e, now)
	p.sortENIs()
}

func (p *Pool) gain(e *eni, got []member, action Action, now time.Time) {
	list := slices.Clone(e.addresses)
	for _, m := range got {
		addr := m.addr
		if addr == e.Primary {
			continue
		}
		a := p.at(addr)
		if a.eni == e {
			continue
		}
		p.move(a, e, now)
		a.ours, a.block = true, m.block
		delete(p.buried, addr.String())
		list = append(list, a)
	}
	if len(list) == len(e.addresses) {
		p.empty(action, now)
	}
	e.setAddresses(list)
}

// empty takes a success that gave nothing: the same again at once would be a busy loop.
func (p *Pool) empty(action Action, now time.Time) {
	what, target := name(action)
	p.unsure = what + " gave nothing"
	p.block(now, blockKey{what, target}, backoff{what + " gave nothing", time.Second, 30 * time.Second})
}

func (p *Pool) lose(id string, addrs []netip.Addr, now time.Time) {
	e := p.enis[id]
	for _, addr := range addrs {
		p.buried[addr.String()] = now.Add(4 * settle) // stale reading on stale reading, with a margin
		if a := p.addrs[addr]; a != nil && a.eni == e {
			a.eni, a.confirm, a.leaving = nil, false, time.Time{}
		}
	}
	p.rehome()
	p.prune(now)
}

func (p *Pool) deleted(id string, now time.Time) {
	p.buried[id] = now.Add(4 * settle)
	if e := p.enis[id]; e != nil {
		p.dropENI(e)
		p.sortENIs()
		p.prune(now)
	}
}

// ActionName is an action's name, as EC2 would call the step: a word for effects and metrics.
func ActionName(action Action) string {
	what, _ := name(action)
	return what
}

// name gives an action's name and the ENI that it is about.
func name(action Action) (what, target string) {
	switch act := action.(type) {
	case CreateENI:
		return "CreateENI", act.Subnet
	case AttachENI:
		return "AttachENI", act.ENI
	case SetDeleteOnTermination:
		return "SetDeleteOnTermination", act.ENI
	case AssignAddresses:
		return "AssignAddresses", act.ENI
	case UnassignAddresses:
		return "UnassignAddresses", act.ENI
	case AssignPrefixes:
		return "AssignPrefixes", act.ENI
	case UnassignPrefixes:
		return "UnassignPrefixes", act.ENI
	case DetachENI:
		return "DetachENI", act.ENI
	case DeleteENI:
		return "DeleteENI", act.ENI
	}
	return "", ""
}

// List parses the list; what is not an address is left out.
func (l Addrs) List() []netip.Addr {
	var list []netip.Addr
	for text := range strings.SplitSeq(string(l), ",") {
		if addr, err := netip.ParseAddr(text); err == nil {
			list = append(list, addr)
		}
	}
	return list
}

// NewAddrs makes the list of the given addresses, ascending.
func NewAddrs(addrs []netip.Addr) Addrs {
	sorted := slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	texts := make([]string, len(sorted))
	for i, addr := range sorted {
		texts[i] = addr.String()
	}
	return Addrs(strings.Join(texts, ","))
}
