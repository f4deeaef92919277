package pool

import (
	"net/netip"
	"time"
)

// View is the model's state for people and metrics.
type View struct {
	Instance  Instance
	PerENI    int // secondary addresses that an ENI can hold
	MaxENIs   int // ENIs that may be attached
	ENIs      []ENIView
	Addresses []AddressView
	Records   []Annotation
	Waiting   int
	// TookClearing counts addresses given out in this life although an annotation might still name them: there was no other.
	TookClearing int
	// TookClaimed counts addresses given out in this life that another pod's status or annotation named: there was no other.
	TookClaimed int
	Decision    Decision
}

// ENIView is one ENI in a View.
type ENIView struct {
	ENI
	Managed  bool // its addresses are the pool's business
	Reported bool // the kernel has its link and table
}

// AddressView is one address in a View.
type AddressView struct {
	Addr       netip.Addr
	ENI        string `json:",omitempty"`
	Condition  Condition
	Assignment *Assignment `json:",omitempty"`
	Until      time.Time   `json:",omitzero"`  // cooldown's end
	NamedBy    string      `json:",omitempty"` // a pod whose object names the address, though no sandbox has it: it is given out last
}

// View gives the state at a moment, ordered by device and address.
func (p *Pool) View(now time.Time) View {
	v := View{Instance: p.instance, PerENI: p.perENI(), MaxENIs: p.maxENIs(now), Waiting: p.waiting, TookClearing: p.tookClearing, TookClaimed: p.tookClaimed, Decision: p.decision}
	for _, e := range p.order {
		full, _ := p.ENI(e.ID)
		v.ENIs = append(v.ENIs, ENIView{ENI: full, Managed: e.managed(), Reported: e.reported})
	}
	for _, a := range p.inOrder() {
		av := AddressView{Addr: a.addr, Condition: p.condition(a, now), Until: a.until}
		if a.eni != nil {
			av.ENI = a.eni.ID
		}
		if a.holder != nil {
			copied := a.holder.Assignment
			av.Assignment = &copied
		} else if other := p.claimant(a.addr, Pod{}); other != nil {
			av.NamedBy = other.Namespace + "/" + other.Name
		}
		v.Addresses = append(v.Addresses, av)
	}
	v.Records = p.sortedRecords()
	return v
}
