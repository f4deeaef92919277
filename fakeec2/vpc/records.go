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

// ENI states, as EC2 names them. Pending is seen only in the answer of CreateNetworkInterface.
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

// PlainInterface is the only interface type that the model knows.
const PlainInterface = "interface"

// Network is one VPC of the region.
type Network struct {
	ID           string
	CIDRs        []netip.Prefix // primary first
	DefaultGroup string         // its security group named "default"
	Tags         map[string]string
}

// Subnet is a subnet with its accounting.
type Subnet struct {
	ID, VPCID, AZ string
	CIDR          netip.Prefix
	Free          int // addresses that are neither reserved nor held (EC2: AvailableIpAddressCount)
	Tags          map[string]string
}

// Gateway is the subnet's router: the first address after the base.
func (s Subnet) Gateway() netip.Addr { return s.CIDR.Masked().Addr().Next() }

// SecurityGroup is a security group as data: the model keeps membership, not rules.
type SecurityGroup struct {
	ID, VPCID, Name, Description string
	Tags                         map[string]string
}

// Service is a requester-managed address of the VPC that is no ENI of the account: the API server, the EC2 endpoint.
type Service struct {
	Name      string
	Addr      netip.Addr
	SubnetID  string
	Namespace string // network namespace that answers for it; the data plane's business
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
	PrivateIP                     netip.Addr
	LaunchTime                    time.Time
	TerminatedAt                  time.Time // zero while alive
	HopLimit                      int       // HttpPutResponseHopLimit
	TokensRequired                bool      // HttpTokens=required
	Limits                        InstanceType
	Tags                          map[string]string
}

// Attachment ties an ENI to an instance.
type Attachment struct {
	ID, InstanceID      string
	Device, Card        int
	Status              string // Attaching, Attached, Detaching
	DeleteOnTermination bool
	AttachTime          time.Time
	Link                bool // the guest's link is there
}

// ENI is an elastic network interface.
type ENI struct {
	ID, MAC, VPCID, SubnetID, AZ string
	Description, Status          string
	InterfaceType                string
	SourceDestCheck              bool
	Primary                      netip.Addr
	Secondary                    []netip.Addr // ascending
	Groups                       []string     // ascending
	Tags                         map[string]string
	Public                       netip.Addr  // public address associated with Primary; zero if none
	Attachment                   *Attachment // nil while available
	CreatedAt                    time.Time
}

// Addresses are all addresses of the ENI, primary first.
func (e ENI) Addresses() []netip.Addr {
	return append([]netip.Addr{e.Primary}, e.Secondary...)
}

// Holds tells whether the ENI holds addr.
func (e *ENI) Holds(addr netip.Addr) bool {
	if e.Primary == addr {
		return true
	}
	_, found := slices.BinarySearchFunc(e.Secondary, addr, netip.Addr.Compare)
	return found
}

// instance is the record with what the model keeps beside it.
type instance struct {
	Instance
	enis  []string // ids by card, then device index
	views []view   // ascending by time: what the metadata knew when
}

// view is what an instance's ENIs were from a moment on. The ENIs are shared, and never changed in place.
type view struct {
	at   time.Time
	enis []*ENI
}

func (e *ENI) clone() ENI {
	c := *e
	c.Secondary = slices.Clone(e.Secondary)
	c.Groups = slices.Clone(e.Groups)
	c.Tags = maps.Clone(e.Tags)
	if e.Attachment != nil {
		a := *e.Attachment
		c.Attachment = &a
	}
	return c
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
	c.Tags = maps.Clone(n.Tags)
	return c
}

func (g *SecurityGroup) clone() SecurityGroup {
	c := *g
	c.Tags = maps.Clone(g.Tags)
	return c
}
