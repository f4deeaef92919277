// Package vpc is the pure model of a VPC: networks, subnets, instances, ENIs, addresses, and the laws that EC2 keeps about
// them.
//
// It owns what is true. Every illegal request is refused with EC2's own error code, and every change is written to a change
// log that the views (EC2 API, instance metadata, data plane) follow at their own pace. It does no I/O, starts no goroutine
// and reads no clock: time is passed in, and Next says when something is due. Equal seeds and equal calls give equal ids,
// MACs and addresses.
//
// Start with VPC and Options here; records.go has the words, world.go the builders, then one file for each group of EC2
// actions. What the model does not know yet (prefixes, IPv6, trunk and EFA interfaces) it refuses by name.
package vpc

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Defaults of Options: the middle of what is seen on real EC2.
const (
	defaultAttachDelay = 1 * time.Second
	defaultLinkDelay   = 2 * time.Second
	defaultDetachDelay = 3 * time.Second
	defaultIMDSLag     = 1 * time.Second
	defaultReuseDelay  = 60 * time.Second // EC2 documents none; addresses are drawn at random, so quick reuse is rare
	defaultENIQuota    = 5000             // per region; source: EC2 service quotas
	defaultRegion      = "us-west-2"
	defaultAccount     = "123456789012"
)

// Never as a delay means that the transition does not happen (a broken host whose link never appears).
const Never = time.Duration(1<<63 - 1)

// Options of a model. A zero delay means the default, a negative one "at once", Never "not at all".
type Options struct {
	Seed    uint64
	Region  string // default us-west-2
	Account string // twelve digits, default 123456789012

	AttachDelay time.Duration // attaching -> attached in the API; default 1 s
	LinkDelay   time.Duration // attach -> the guest has the link, independent of AttachDelay; default 2 s
	DetachDelay time.Duration // detaching -> gone from the API, and the link with it; default 3 s
	IMDSLag     time.Duration // a change -> seen by Metadata; default 1 s
	ReuseDelay  time.Duration // a released address is drawn again only after this, unless nothing else is left; default 60 s

	ENIQuota int            // ENIs in the region, default 5000
	Types    []InstanceType // user-defined instance types, added to (or in place of) the built-in ones
}

func (o *Options) setDefaults() {
	delay := func(d *time.Duration, def time.Duration) {
		switch {
		case *d == 0:
			*d = def
		case *d < 0:
			*d = 0
		}
	}
	delay(&o.AttachDelay, defaultAttachDelay)
	delay(&o.LinkDelay, defaultLinkDelay)
	delay(&o.DetachDelay, defaultDetachDelay)
	delay(&o.IMDSLag, defaultIMDSLag)
	delay(&o.ReuseDelay, defaultReuseDelay)
	if o.ENIQuota == 0 {
		o.ENIQuota = defaultENIQuota
	}
	if o.Region == "" {
		o.Region = defaultRegion
	}
	if o.Account == "" {
		o.Account = defaultAccount
	}
}

// VPC is the model: one region of one account. It is safe for concurrent use; what it returns is the caller's own copy.
type VPC struct {
	mu      sync.Mutex
	opts    Options
	now     time.Time // latest time passed in; never goes back
	ids     *rand.Rand
	choices *rand.Rand // addresses: apart from ids, so that ids do not move when a draw is added

	types     map[string]InstanceType
	networks  map[string]*Network
	subnets   map[string]*subnet
	groups    map[string]*SecurityGroup
	instances map[string]*instance
	services  map[string]Service
	outsides  map[string]Outside

	enis        map[string]*ENI   // a stored ENI is never changed in place: put stores a changed copy
	attachments map[string]string // attachment id -> ENI id
	macs        map[string]string // MAC -> ENI id
	publics     map[netip.Addr]string
	tokens      map[string]creation

	due     timers
	timerNo uint64

	log     []Event
	seq     uint64
	changed chan struct{} // made when somebody asks, closed at the next change
}

// New makes an empty model.
func New(opts Options) *VPC {
	opts.setDefaults()
	v := &VPC{
		opts:        opts,
		ids:         rand.New(rand.NewPCG(opts.Seed, 1)),
		choices:     rand.New(rand.NewPCG(opts.Seed, 2)),
		types:       make(map[string]InstanceType, len(builtinTypes)+len(opts.Types)),
		networks:    map[string]*Network{},
		subnets:     map[string]*subnet{},
		groups:      map[string]*SecurityGroup{},
		instances:   map[string]*instance{},
		services:    map[string]Service{},
		outsides:    map[string]Outside{},
		enis:        map[string]*ENI{},
		attachments: map[string]string{},
		macs:        map[string]string{},
		publics:     map[netip.Addr]string{},
		tokens:      map[string]creation{},
	}
	for _, t := range builtinTypes {
		v.types[t.Name] = t
	}
	for _, t := range opts.Types {
		v.types[t.Name] = t.complete()
	}
	return v
}

// Region is the model's region.
func (v *VPC) Region() string { return v.opts.Region }

// Account is the id of the account that owns everything in the model.
func (v *VPC) Account() string { return v.opts.Account }

// AddInstanceType defines an instance type, or replaces one for later launches.
func (v *VPC) AddInstanceType(t InstanceType) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.types[t.Name] = t.complete()
}

// Delays are the settings of Options that may change while the model runs. Here a value is taken as it is: zero is "at once".
type Delays struct {
	Attach, Link, Detach, IMDS time.Duration
}

// Delays gives the current ones.
func (v *VPC) Delays() Delays {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Delays{Attach: v.opts.AttachDelay, Link: v.opts.LinkDelay, Detach: v.opts.DetachDelay, IMDS: v.opts.IMDSLag}
}

// SetDelays changes the delays of transitions that begin from now on, and the metadata lag at once.
func (v *VPC) SetDelays(d Delays) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opts.AttachDelay, v.opts.LinkDelay = max(0, d.Attach), max(0, d.Link)
	v.opts.DetachDelay, v.opts.IMDSLag = max(0, d.Detach), max(0, d.IMDS)
}

// begin locks the model and brings it to now. Every operation starts with it.
func (v *VPC) begin(now time.Time) {
	v.mu.Lock()
	v.advance(now)
}

// end lets transitions without delay happen and unlocks.
func (v *VPC) end() {
	v.advance(v.now)
	v.mu.Unlock()
}
