// Package vpc is the pure model of a VPC: networks, subnets, instances, ENIs, addresses, and the laws that EC2 keeps about
// them.
//
// It owns what is true. Every illegal request is refused with EC2's own error code, and every change is written to a change
// log that the views (EC2 API, instance metadata, data plane) follow at their own pace. It does no I/O, starts no goroutine
// and reads no clock: time is passed in, and Next says when something is due. Equal seeds and equal calls give equal ids,
// MACs, addresses and lags.
//
// Start with VPC and Options here; records.go has the words, lags.go what stays behind, world.go the builders, then one file
// for each group of EC2 actions. described.go is what EC2's describes show, metadata.go what an instance's metadata show.
package vpc

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Defaults of Options: the middle of what is seen on real EC2.
const (
	defaultAttachDelay = 1 * time.Second
	defaultLinkDelay   = 2 * time.Second
	defaultDetachDelay = 3 * time.Second
	defaultReuseDelay  = 60 * time.Second // EC2 documents none; addresses are drawn at random, so quick reuse is rare
	defaultENIQuota    = 5000             // per region; source: EC2 service quotas
	defaultENIGroups   = 5                // per ENI; source: VPC quotas
	defaultNAU         = 64_000           // per VPC; source: VPC user guide, "Network Address Usage"
	defaultPeeredNAU   = 128_000          // per VPC with its peers
	defaultRegion      = "us-west-2"
	defaultAccount     = "123456789012"
)

// Options of a model. A zero delay means the default, a negative one "at once", Never "not at all".
type Options struct {
	Seed    uint64
	Region  string // default us-west-2
	Account string // twelve digits, default 123456789012

	AttachDelay time.Duration // attaching -> attached in the API; default 1 s
	LinkDelay   time.Duration // attach -> the guest has the link, independent of AttachDelay; default 2 s
	DetachDelay time.Duration // detaching -> gone from the API, and the link with it; default 3 s
	IMDSLag     time.Duration // any change -> seen by Metadata; default: each kind of change has its own (Lags)
	ReuseDelay  time.Duration // a released address is drawn again only after this, unless nothing else is left; default 60 s
	Lags        *Lags         // all lags at once, taken as they are: then the delays above, but for ReuseDelay, must be zero
	Script      Script        // decides single lags; nil: none

	ENIQuota     int            // ENIs in the region, default 5000
	GroupsPerENI int            // security groups of an ENI, default 5, at most 16
	NAULimit     int            // addresses and prefixes of one VPC's ENIs, default 64,000
	PeeredNAU    int            // the same of a VPC and its peers, default 128,000
	TagSettle    time.Duration  // a resource's tags are refused (ConcurrentTagAccess) for this long after a change; default 0
	Types        []InstanceType // user-defined instance types, added to (or in place of) the built-in ones
	Inferred     Inferred
}

// Inferred has what no source tells of EC2. The zero value is what is thought likely.
type Inferred struct {
	LateAddressLimit bool   // CreateNetworkInterface takes more addresses than any type allows, only Attach refuses
	UnassignKnown    bool   // Unassign gives back what the ENI holds of the list instead of refusing the whole
	MixedLists       bool   // one Assign may ask for addresses and prefixes
	ShortIsBlocks    bool   // prefixes wanted and too few free addresses: InsufficientCidrBlocks, as with fragmentation
	AllMissing       bool   // a describe of several unknown ids names them all, in one pair of quotes
	PrefixOnXen      string // code for prefixes on a type that is not Nitro; "" is InvalidParameterCombination
	UnfitType        string // code for a trunk or EFA on a type without; "" is InvalidParameterCombination
	BranchLimit      string // code for one branch too many; "" is AttachmentLimitExceeded
}

func (o *Options) setDefaults() {
	if o.ReuseDelay == 0 {
		o.ReuseDelay = defaultReuseDelay
	}
	o.ReuseDelay = max(0, o.ReuseDelay)
	o.Region = cmp.Or(o.Region, defaultRegion)
	o.Account = cmp.Or(o.Account, defaultAccount)
	o.ENIQuota = cmp.Or(o.ENIQuota, defaultENIQuota)
	o.GroupsPerENI = cmp.Or(o.GroupsPerENI, defaultENIGroups)
	o.NAULimit = cmp.Or(o.NAULimit, defaultNAU)
	o.PeeredNAU = cmp.Or(o.PeeredNAU, defaultPeeredNAU)
	o.Inferred.PrefixOnXen = cmp.Or(o.Inferred.PrefixOnXen, CodeParameterCombination)
	o.Inferred.UnfitType = cmp.Or(o.Inferred.UnfitType, CodeParameterCombination)
	o.Inferred.BranchLimit = cmp.Or(o.Inferred.BranchLimit, CodeAttachmentLimit)
}

// startLags are the lags that the options ask for.
func (o *Options) startLags() Lags {
	if o.Lags != nil {
		return *o.Lags
	}
	l := DefaultLags()
	for _, delay := range []struct {
		given time.Duration
		set   func(Range)
	}{
		{o.AttachDelay, func(r Range) { l.Attach = r }}, {o.LinkDelay, func(r Range) { l.Link = r }},
		{o.DetachDelay, func(r Range) { l.Detach = r }}, {o.IMDSLag, l.SetMetadata},
	} {
		if delay.given != 0 {
			delay.set(Exactly(max(0, delay.given)))
		}
	}
	return l
}

// VPC is the model: one region of one account. It is safe for concurrent use; what it returns is the caller's own copy.
type VPC struct {
	mu      sync.Mutex
	opts    Options
	lags    Lags
	now     time.Time // latest time passed in; never goes back
	ids     *rand.Rand
	choices *rand.Rand // addresses: apart from ids, so that ids do not move when a draw is added
	minor   *rand.Rand // ids of what tests seldom look at
	delays  *rand.Rand

	types        map[string]InstanceType
	networks     map[string]*Network
	subnets      map[string]*subnet
	groups       map[string]*SecurityGroup
	reservations map[string]*CIDRReservation
	tables       map[string]*RouteTable
	gateways     map[string]*InternetGateway
	peerings     map[string]Peering
	instances    map[string]*instance
	services     map[string]Service
	outsides     map[string]Outside

	enis        map[string]*ENI      // a stored ENI is never changed in place: store keeps a changed copy
	history     map[string][]version // what each ENI was, for views that lag
	order       order                // its keys
	graves      []grave              // ENIs that are gone but may still be seen
	hidden      map[string]time.Time // ENI -> when the other actions know it
	attachments map[string]string    // attachment id -> ENI id
	stuck       map[string]bool      // attachments whose transition never ends
	trunks      map[string]TrunkAssociation
	branches    map[string]string // branch ENI -> association
	permissions map[string]Permission
	macs        map[string]string // MAC -> ENI id
	publics     map[netip.Addr]string
	usage       map[string]int // VPC -> network address usage
	tokens      map[string]creation
	tagged      map[string]time.Time // resource -> last change of its tags, while TagSettle lasts

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
		opts:         opts,
		lags:         opts.startLags(),
		ids:          rand.New(rand.NewPCG(opts.Seed, 1)),
		choices:      rand.New(rand.NewPCG(opts.Seed, 2)),
		minor:        rand.New(rand.NewPCG(opts.Seed, 3)),
		delays:       rand.New(rand.NewPCG(opts.Seed, 4)),
		types:        make(map[string]InstanceType, len(builtinTypes)+len(opts.Types)),
		networks:     map[string]*Network{},
		subnets:      map[string]*subnet{},
		groups:       map[string]*SecurityGroup{},
		reservations: map[string]*CIDRReservation{},
		tables:       map[string]*RouteTable{},
		gateways:     map[string]*InternetGateway{},
		peerings:     map[string]Peering{},
		instances:    map[string]*instance{},
		services:     map[string]Service{},
		outsides:     map[string]Outside{},
		enis:         map[string]*ENI{},
		history:      map[string][]version{},
		hidden:       map[string]time.Time{},
		attachments:  map[string]string{},
		stuck:        map[string]bool{},
		trunks:       map[string]TrunkAssociation{},
		branches:     map[string]string{},
		permissions:  map[string]Permission{},
		macs:         map[string]string{},
		publics:      map[netip.Addr]string{},
		usage:        map[string]int{},
		tokens:       map[string]creation{},
		tagged:       map[string]time.Time{},
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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
