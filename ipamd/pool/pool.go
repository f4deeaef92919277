package pool

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Pool is the model of one node. It has one owner: no method may run beside another. Facts come in through Fold, Failed,
// FoldObservation, FoldHost and Answer; sandboxes through Assign, Done, Abort and Release; what should happen comes out of
// Plan, HostState, Submissions and Snapshot.
type Pool struct {
	set Settings
	rng *rand.Rand

	instance Instance
	cidrs    []netip.Prefix
	observed bool   // an observation has been folded in
	hostSeen bool   // a host report has been folded in
	unsure   string // why EC2 must be read before anything is planned; "" when it need not

	enis  map[string]*eni
	order []*eni // by device index, then id: wherever order shows
	addrs map[netip.Addr]*address

	ascending []*address // addrs in order; nil after one came or went: see inOrder

	held     map[Key]*address
	rivals   map[slot][]*holding   // by pod, where one can have several sandboxes; most have one
	seq      uint64                // last number that Ticket gave
	previous map[string]netip.Addr // pod UID to the address that it had last

	records map[Owner]*Annotation
	byAddr  map[netip.Addr][]Owner // records of an address
	outbox  []Owner                // records to submit, oldest first
	emptied map[Pod]Emptied        // keys that hold "" since a sandbox of the pod ended
	heirs   map[Owner][]Owner      // owners whose records a record took over, and the annotator may not know it: see Submissions
	handed  []Owner                // what Submissions gave last

	buried map[string]time.Time // ENI ids and addresses that we gave up: an observation may show them for a while
	blocks map[blockKey]block
	caps   map[string]sizeCap
	create *pendingCreate
	tokens int

	departed []departure // deletions of sandboxes without a record, until the kernel is read again

	learnedENIs int // ENI limit that EC2 taught; believed while the block limitENIs lasts
	denial      denial

	waiting      int
	tookClearing int // addresses given out although an annotation may still name them
	tookClaimed  int // addresses given out although another pod's status or annotation names them
	taken        []Taken
	claims       map[netip.Addr][]Pod // by pods of the node, whatever the pool knows of them
	surplus      surplus
	decision     Decision
	revision     uint64
}

// eni is an ENI and what only this node knows of it.
type eni struct {
	ENI
	addresses []*address // ascending; the secondary ones that EC2 says are assigned, and the members of prefixes
	created   time.Time  // by us, in this life; else zero
	changed   time.Time  // last answer of EC2 about its attachment
	leaving   time.Time  // a detach is under way, or may be
	reported  bool       // the last host report has it
	absent    time.Time  // attached, but not reported since; zero when reported or not attached
	broken    bool       // its link never came: not to be attached again
}

// address is one address for pods, a secondary one of an ENI or a member of a prefix: on an ENI, held, or resting.
type address struct {
	addr     netip.Addr
	block    netip.Prefix // the prefix that it is a member of, as last seen; not valid for a secondary address
	eni      *eni         // nil when EC2 does not (any longer) say that it is ours
	gained   time.Time
	ours     bool      // gained by our own call: an observation that lacks it within settle is stale
	leaving  time.Time // an unassignment is under way, or may be
	confirm  bool      // the kernel has it
	occupied bool      // the last host report shows a pod on it
	link     string    // host veth of that pod
	ended    time.Time // released, and no host report that began since has shown that its route is gone; else zero
	holder   *holding
	last     Pod       // whose it was
	until    time.Time // cooldown's end; zero when never held
}

// holding is an assignment and what is known of its pod's end.
type holding struct {
	Assignment
	done     time.Time // when Done was told; zero before
	misses   int       // audits in a row that did not see its route
	unproven bool      // restored without Done: the next host report decides
	stale    bool      // a newer sandbox of the pod was given an address before this one was done
}

// New makes an empty pool.
func New(settings Settings) *Pool {
	if settings.SurplusAge <= 0 {
		settings.SurplusAge = DefaultSurplusAge
	}
	settings.Keys = slices.Clone(settings.Keys)
	return &Pool{
		set:      settings,
		rng:      rand.New(rand.NewPCG(settings.Seed, 0x76706320636e69)), // "vpc cni": the second word is only a stream's name
		enis:     map[string]*eni{},
		addrs:    map[netip.Addr]*address{},
		held:     map[Key]*address{},
		rivals:   map[slot][]*holding{},
		previous: map[string]netip.Addr{},
		records:  map[Owner]*Annotation{},
		byAddr:   map[netip.Addr][]Owner{},
		heirs:    map[Owner][]Owner{},
		emptied:  map[Pod]Emptied{},
		buried:   map[string]time.Time{},
		blocks:   map[blockKey]block{},
		caps:     map[string]sizeCap{},
		unsure:   "EC2 has not been read yet",
	}
}

// Revision changes whenever Snapshot would give something else.
func (p *Pool) Revision() uint64 { return p.revision }

// Demand tells how many ADDs wait for an address.
func (p *Pool) Demand(waiting int) { p.waiting = waiting }

// Settled tells whether both the cloud and the kernel have been read: before that no address can be given out.
func (p *Pool) Settled() bool { return p.observed && p.hostSeen }

// NeedObserve tells why EC2 is to be read now: because nothing can be planned before, or because the caller asks for it; ""
// when it need not be read, or when the last failure says "not yet".
func (p *Pool) NeedObserve(asked string, now time.Time) string {
	reason := p.unsure
	if reason == "" {
		reason = asked
	}
	if _, blocked := p.blocked(now, "Observe", ""); blocked {
		return ""
	}
	return reason
}

// Trusted tells whether the model may be laid upon the kernel: EC2 has been read, and no reading is in doubt.
func (p *Pool) Trusted() bool { return p.observed && (p.denial.since.IsZero() || p.denial.believed) }

// InTransition tells whether something at EC2 changes without an answer to come: worth reading again soon.
func (p *Pool) InTransition() bool {
	for _, e := range p.order {
		if e.State == Detaching || e.State == Attaching || !e.leaving.IsZero() {
			return true
		}
	}
	return false
}

// at gives the address's record, making one if need be.
func (p *Pool) at(addr netip.Addr) *address {
	a := p.addrs[addr]
	if a == nil {
		a = &address{addr: addr}
		p.addrs[addr] = a
		p.ascending = nil
	}
	return a
}

// inOrder gives all addresses in ascending order. Every save asks for them, and they rarely change.
func (p *Pool) inOrder() []*address {
	if len(p.ascending) != len(p.addrs) {
		p.ascending = slices.SortedFunc(maps.Values(p.addrs), func(a, b *address) int { return a.addr.Compare(b.addr) })
	}
	return p.ascending
}

// managed tells whether an ENI's addresses are this pool's business: the primary one always, others if they are ours.
func (e *eni) managed() bool { return e.Device == 0 && e.State != Available || e.Owned }

// attached tells whether the ENI is on the instance to stay.
func (e *eni) attached() bool {
	return (e.State == Attached || e.State == Attaching) && e.leaving.IsZero()
}

// spare tells whether the ENI may ever be detached or deleted.
func (e *eni) spare() bool { return e.Owned && (e.Device > 0 || e.State == Available) }

// reachable tells whether packets for the address arrive and leave as they must: EC2 says assigned, the link is there, the
// kernel has the address.
func (a *address) reachable() bool {
	return a.eni != nil && a.leaving.IsZero() && a.eni.managed() && a.eni.attached() && a.eni.reported && a.confirm
}

// lost tells whether EC2 does not say that the address is ours.
func (a *address) lost() bool { return a.eni == nil || !a.eni.managed() }

// Condition is what an address is good for at this moment.
type Condition string

// Conditions, each only where none before it holds.
const (
	Free      Condition = "free"     // may be given out
	InUse     Condition = "in-use"   // a sandbox holds it
	Occupied  Condition = "occupied" // a pod that we have no record of is seen on it
	Resting   Condition = "cooling"  // cooldown, or the kernel was not seen without its pod yet
	Clearing  Condition = "clearing" // cooldown is over, but an annotation may still name it: given out last
	Coming    Condition = "coming"   // assigned at EC2, not yet confirmed by the kernel
	Leaving   Condition = "leaving"  // being given back
	Unusable  Condition = "unusable" // on an ENI that is not attached, or not ours
	Forgotten Condition = "gone"     // not ours any more at EC2; remembered for its cooldown only
)

func (p *Pool) condition(a *address, now time.Time) Condition {
	switch {
	case a.holder != nil:
		return InUse
	case a.occupied:
		return Occupied
	case a.eni == nil:
		return Forgotten
	case a.until.After(now) || !a.ended.IsZero():
		return Resting
	case !a.leaving.IsZero() || !a.eni.leaving.IsZero():
		return Leaving
	case !a.eni.managed() || !a.eni.attached():
		return Unusable
	case !a.eni.reported || !a.confirm:
		return Coming
	case p.clearing(a.addr, now):
		return Clearing
	}
	return Free
}

// sortENIs restores the order after a change.
func (p *Pool) sortENIs() {
	p.order = p.order[:0]
	for _, e := range p.enis {
		p.order = append(p.order, e)
	}
	slices.SortFunc(p.order, func(a, b *eni) int {
		if a.Device != b.Device {
			return a.Device - b.Device
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// setAddresses makes list, in ascending order, the ENI's addresses.
func (e *eni) setAddresses(list []*address) {
	slices.SortFunc(list, func(a, b *address) int { return a.addr.Compare(b.addr) })
	e.addresses = list
}

// prune forgets addresses of which nothing is left to know.
func (p *Pool) prune(now time.Time) {
	for addr, a := range p.addrs {
		if a.eni != nil || a.holder != nil || a.occupied || a.until.After(now) {
			continue
		}
		if p.previous[a.last.UID] == addr {
			delete(p.previous, a.last.UID)
		}
		delete(p.addrs, addr)
		p.ascending = nil
		if !a.until.IsZero() {
			p.revision++ // it was part of the snapshot
		}
	}
	for name, until := range p.buried {
		if !until.After(now) {
			delete(p.buried, name)
			p.revision++
		}
	}
}
