package vpc

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Instance states, as EC2 names them.
const (
	Running      = "running"
	Stopped      = "stopped"
	ShuttingDown = "shutting-down"
	Terminated   = "terminated"
)

// ENI and instance states, as EC2 names them. An ENI is Pending only in the answer of CreateNetworkInterface, an instance
// between RunInstances and Running.
const (
	Pending   = "pending"
	Available = "available"
	InUse     = "in-use"
)

// Attachment states, as EC2 names them.
const (
	Attaching = "attaching"
	Attached  = "attached"
	Detaching = "detaching"
)

// Interface types, as EC2 names them.
const (
	PlainInterface  = "interface"
	TrunkInterface  = "trunk"
	BranchInterface = "branch" // a plain one that is associated with a trunk, or one that was created as a branch
	EFAInterface    = "efa"
	EFAOnly         = "efa-only" // has no IP addresses
)

// Network is one VPC of the region.
type Network struct {
	ID           string
	CIDRs        []netip.Prefix // IPv4, primary first
	IPv6CIDRs    []netip.Prefix
	DefaultGroup string // its security group named "default"
	Gateway      string // its internet gateway, or ""
	Online       bool   // its main route table leads there
	Tags         map[string]string
}

// Subnet is a subnet with its accounting.
type Subnet struct {
	ID, VPCID, AZ string
	CIDR          netip.Prefix // IPv4; zero in an IPv6-only subnet
	IPv6CIDR      netip.Prefix // a /64, or zero
	AssignIPv6    bool         // a new ENI gets an IPv6 address unasked
	Free          int          // IPv4 addresses that are neither reserved nor held (EC2: AvailableIpAddressCount)
	Tags          map[string]string
}

// Gateway is the subnet's router: the first address after the base.
func (s Subnet) Gateway() netip.Addr { return s.CIDR.Masked().Addr().Next() }

// Native tells whether the subnet is IPv6-only.
func (s Subnet) Native() bool { return !s.CIDR.IsValid() }

// CIDRReservation keeps a part of a subnet from automatic assignment.
type CIDRReservation struct {
	ID, SubnetID string
	CIDR         netip.Prefix
	Type         string // ReservePrefix or ReserveExplicit
	Description  string
	Tags         map[string]string
}

// Types of CIDRReservation, as EC2 names them.
const (
	ReservePrefix   = "prefix"   // prefixes are drawn from it before anywhere else, single addresses never
	ReserveExplicit = "explicit" // nothing is drawn from it
)

// Service is a requester-managed address of the VPC that is no ENI of the account: the API server, the EC2 endpoint.
type Service struct {
	Name      string
	Addr      netip.Addr
	SubnetID  string
	Groups    []string // security groups that count it as a member; none stands for all of its VPC's. It has no rules itself
	Namespace string   // network namespace that answers for it; the data plane's business
}

// Outside is a host beyond the internet gateway.
type Outside struct {
	Name      string
	Addr      netip.Addr
	CIDR      netip.Prefix // the network it lives in, apart from every VPC
	Namespace string
}

// Instance is an EC2 instance.
type Instance struct {
	ID, Type, VPCID, SubnetID, AZ string
	ImageID, State, Role          string // Role: name of the IAM role whose credentials the metadata serve, or ""
	Namespace                     string // path of an existing network namespace to adopt, or ""
	Name                          string // of the scenario; not an EC2 field
	Guest                         Guest  // of an adopted namespace
	ReservationID                 string // r-...: one launch
	PrivateIP                     netip.Addr
	LaunchTime                    time.Time
	TerminatedAt                  time.Time // zero while alive
	HopLimit                      int       // HttpPutResponseHopLimit
	TokensRequired                bool      // HttpTokens=required
	MetadataOff                   bool      // HttpEndpoint=disabled
	MetadataIPv6                  bool      // HttpProtocolIpv6=enabled
	MetadataTags                  bool      // InstanceMetadataTags=enabled
	PredictableNames              bool      // the image renames links: ens5 for device 0, ens6 for device 1
	Notices                       Notices
	Limits                        InstanceType
	Tags                          map[string]string
}

// Notices are what EC2 announces to an instance through its metadata. Zero times mean nothing is announced.
type Notices struct {
	InterruptionAction string    // terminate, stop or hibernate
	InterruptionAt     time.Time // when the spot interruption happens
	RebalanceAt        time.Time // when the rebalance recommendation was made
}

// Attachment ties an ENI to an instance.
type Attachment struct {
	ID, InstanceID      string
	Device, Card        int
	Status              string // Attaching, Attached, Detaching
	DeleteOnTermination bool
	AttachTime          time.Time
	Link                bool // the guest's link is there
	Named               bool // the guest's image, if it renames links, has done so
}

// ConnectionTracking are an ENI's idle timeouts in seconds; zero means EC2's default.
type ConnectionTracking struct{ TCPEstablished, UDPStream, UDP int }

// ENI is an elastic network interface.
type ENI struct {
	ID, MAC, VPCID, SubnetID, AZ string
	Description, Status          string
	InterfaceType                string
	SourceDestCheck              bool
	Primary                      netip.Addr     // IPv4; zero in an IPv6-only subnet and for efa-only
	Secondary                    []netip.Addr   // IPv4, ascending
	Prefixes                     []netip.Prefix // IPv4 /28, ascending
	IPv6                         []netip.Addr   // ascending
	IPv6Prefixes                 []netip.Prefix // /80, ascending
	PrimaryIPv6                  netip.Addr     // one of IPv6, or zero
	Groups                       []string       // ascending
	Tags                         map[string]string
	Public                       netip.Addr // public address associated with Primary; zero if none
	Tracking                     ConnectionTracking
	TrunkID                      string      // of a branch: its trunk
	VLAN                         int         // of a branch: its VLAN id on the trunk's link
	Attachment                   *Attachment // nil while available; a branch has none
	CreatedAt                    time.Time
}

// Addresses are all IPv4 addresses of the ENI that are not in prefixes, primary first.
func (e ENI) Addresses() []netip.Addr {
	if !e.Primary.IsValid() {
		return slices.Clone(e.Secondary)
	}
	return append([]netip.Addr{e.Primary}, e.Secondary...)
}

// Holds tells whether the ENI holds addr, by itself or in a prefix.
func (e *ENI) Holds(addr netip.Addr) bool {
	if e.Primary == addr && addr.IsValid() {
		return true
	}
	singles, blocks := e.Secondary, e.Prefixes
	if addr.Is6() {
		singles, blocks = e.IPv6, e.IPv6Prefixes
	}
	if _, found := slices.BinarySearchFunc(singles, addr, netip.Addr.Compare); found {
		return true
	}
	return slices.ContainsFunc(blocks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// slots4 is how many of its type's IPv4 slots the ENI fills: a prefix counts as one address does.
func (e *ENI) slots4() int { return len(e.Addresses()) + len(e.Prefixes) }

func (e *ENI) slots6() int { return len(e.IPv6) + len(e.IPv6Prefixes) }

func (e *ENI) clone() ENI {
	c := *e
	c.Secondary = slices.Clone(e.Secondary)
	c.Prefixes = slices.Clone(e.Prefixes)
	c.IPv6 = slices.Clone(e.IPv6)
	c.IPv6Prefixes = slices.Clone(e.IPv6Prefixes)
	c.Groups = slices.Clone(e.Groups)
	c.Tags = maps.Clone(e.Tags)
	if e.Attachment != nil {
		a := *e.Attachment
		c.Attachment = &a
	}
	return c
}

// edit gives a copy to change and put. Its slices and maps are still shared: replace them, do not write into them.
func edit(e *ENI) *ENI {
	c := *e
	if e.Attachment != nil {
		a := *e.Attachment
		c.Attachment = &a
	}
	return &c
}

// instance is the record with what the model keeps beside it.
type instance struct {
	Instance
	enis []string            // ids by card, then device index
	left []departure         // ENIs that were detached lately: a description that lags still shows them
	meta map[string]*metaENI // what the metadata know of each ENI
}

func (i *Instance) clone() Instance {
	c := *i
	c.Tags = maps.Clone(i.Tags)
	c.Limits = i.Limits.clone()
	return c
}

func (n *Network) clone() Network {
	c := *n
	c.CIDRs = slices.Clone(n.CIDRs)
	c.IPv6CIDRs = slices.Clone(n.IPv6CIDRs)
	c.Tags = maps.Clone(n.Tags)
	return c
}

func (r *CIDRReservation) clone() CIDRReservation {
	c := *r
	c.Tags = maps.Clone(r.Tags)
	return c
}
