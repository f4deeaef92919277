// Package scenario reads a world of the fake EC2 from a file and builds it in a model.
//
// It owns the file's format and nothing else: the laws are those of package vpc, and nothing here touches the kernel. Unknown
// fields are refused, so that a misspelt setting is an error and not a default. Start with Scenario, whose comments are the
// format's reference, then Build.
package scenario

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// EC2Service is the name of the service at which the EC2 API answers. Every scenario has it.
const EC2Service = "ec2"

// Scenario is a world. In the file (YAML or JSON), durations are written as "1.5s" or "never", ranges as "1s..5s" or as one
// duration.
type Scenario struct {
	Seed     uint64           `json:"seed"`    // of ids, MACs, drawn addresses and lags; equal seeds give equal worlds
	Region   string           `json:"region"`  // default us-west-2
	Account  string           `json:"account"` // twelve digits in quotes; default "123456789012"
	Delays   Delays           `json:"delays"`
	Lags     map[string]Range `json:"lags"`     // finer than delays, and over them: see Lags
	Throttle bool             `json:"throttle"` // EC2's token buckets are at work
	Buckets  []Bucket         `json:"buckets"`  // in place of EC2's
	Signed   bool             `json:"signed"`   // EC2 requests must be signed: by one of keys, or with a role's credentials from the metadata
	Keys     []Key            `json:"keys"`     // with signed
	Limits   Limits           `json:"limits"`
	Inferred Inferred         `json:"inferred"`
	Types    []Type           `json:"types"` // beside the built-in instance types, or in place of them

	VPC      VPC       `json:"vpc"`
	VPCs     []VPC     `json:"vpcs"` // beside vpc, or without it
	Peerings []Peering `json:"peerings"`
	Services []Service `json:"services"` // one of them is "ec2"
	Outside  []Outside `json:"outside"`
	Nodes    []Node    `json:"nodes"`
	Faults   []Fault   `json:"faults"`

	lines map[string]int // of the file, by field
}

// Delays are how long EC2's transitions take. What is not given is the middle of what is seen on real EC2: attach 1s, link
// 2s, detach 3s, imds 1s to 3s, reuse 60s.
type Delays struct {
	Attach *Duration `json:"attach"` // attaching -> attached in the API
	Link   *Duration `json:"link"`   // attach -> the guest has the link
	Detach *Duration `json:"detach"` // detaching -> gone, in the API and in the guest
	IMDS   *Duration `json:"imds"`   // any change -> seen in the instance metadata
	Reuse  *Duration `json:"reuse"`  // a released address is drawn again
}

// LagNames are the keys of Scenario.Lags: create, launch, attach, link, rename, detach (transitions), describe, count (what the EC2 API
// shows), and metadata-mac, metadata-leaves, metadata-device, metadata-assign, metadata-unassign, metadata-groups, metadata-gone,
// metadata-bare (what the instance metadata show). vpc.Lags says what each is, and its default.
func LagNames() []string { return vpc.LagNames() }

// Bucket is a token bucket of an action: a request takes a token, and is refused with 503 RequestLimitExceeded where there is none.
type Bucket struct {
	Action string  `json:"action"`
	Size   float64 `json:"size"`
	Refill float64 `json:"refill"` // tokens a second
}

// Key is an access key whose signatures are good.
type Key struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	Token  string `json:"token"` // session token; default none
}

// Limits are quotas of the region. 0 is EC2's default.
type Limits struct {
	ENIs         int      `json:"enis"`                      // of the region; default 5000
	GroupsPerENI int      `json:"groupsPerENI"`              // default 5, at most 16
	Usage        int      `json:"networkAddressUsage"`       // of a VPC; default 64000
	PeeredUsage  int      `json:"networkAddressUsagePeered"` // of a VPC with its peers; default 128000
	TagSettle    Duration `json:"tagSettle"`                 // a resource's tags cannot change again for so long; default 0s
	Unpaged      int      `json:"unpagedENIs"`               // more ENIs are not described without pages or filters; default: any number is
}

// Inferred has what no source tells of EC2; what is not given is thought likely.
type Inferred struct {
	LateAddressLimit bool   `json:"lateAddressLimit"` // too many addresses are refused at attach, not at create
	UnassignKnown    bool   `json:"unassignKnown"`    // unassign gives back what is there instead of refusing the whole list
	MixedLists       bool   `json:"mixedLists"`       // one assign may ask for addresses and prefixes
	ShortIsBlocks    bool   `json:"shortIsBlocks"`    // too few addresses for a prefix: InsufficientCidrBlocks
	AllMissing       bool   `json:"allMissing"`       // a describe of several unknown ids names them all
	PrefixOnXen      string `json:"prefixOnXen"`      // code for prefixes on Xen; default InvalidParameterCombination
	UnfitType        string `json:"unfitType"`        // code for a trunk or EFA on a type without; default InvalidParameterCombination
	BranchLimit      string `json:"branchLimit"`      // code for one branch too many; default AttachmentLimitExceeded

	AuthFailureStatus int    `json:"authFailureStatus"` // HTTP status of AuthFailure; default 401
	GroupNotFound     string `json:"groupNotFound"`     // code for an unknown security group; default InvalidGroup.NotFound
	PageToken         string `json:"pageToken"`         // code for a bad page token; default InvalidPaginationToken
	PageSize          string `json:"pageSize"`          // code for a page size out of range; default InvalidParameterValue
}

// Type is an instance type of the scenario's own.
type Type struct {
	Name      string `json:"name"`
	ENIs      int    `json:"enis"`      // 1 to 64; with cards, what they take together
	Addresses int    `json:"addresses"` // 1 to 50: IPv4 addresses of an ENI, the primary one included; a prefix counts as one
	IPv6      int    `json:"ipv6"`      // IPv6 addresses of an ENI; default as many as addresses
	Cards     []int  `json:"cards"`     // ENIs of each network card; default one card with all
	Xen       bool   `json:"xen"`       // no prefixes; default Nitro
	BareMetal bool   `json:"bareMetal"`
	EFA       bool   `json:"efa"`
	Branches  int    `json:"branches"` // branch ENIs of a trunk; 0: no trunk
}

// VPC is a network. Ids are drawn where they are not given, here and below.
type VPC struct {
	Name    string         `json:"name"` // for peerings
	ID      string         `json:"id"`
	CIDRs   []netip.Prefix `json:"cidrs"` // IPv4; the first is the primary one
	IPv6    []netip.Prefix `json:"ipv6"`
	Subnets []Subnet       `json:"subnets"`
	Groups  []Group        `json:"securityGroups"` // beside the one named "default"
}

// Peering joins two VPCs, which are named.
type Peering struct {
	Between     []string `json:"between"`     // two names
	CrossRegion bool     `json:"crossRegion"` // MTU 8500, no references to the other's security groups
}

// Subnet is a subnet; the others refer to it by Name, which is its own in all VPCs.
type Subnet struct {
	Name         string            `json:"name"`
	ID           string            `json:"id"`
	CIDR         netip.Prefix      `json:"cidr"`       // its gateway is the first address after the base; none: an IPv6-only subnet
	IPv6         netip.Prefix      `json:"ipv6"`       // a /64 of the VPC's
	AssignIPv6   bool              `json:"assignIPv6"` // new ENIs get an IPv6 address unasked
	AZ           string            `json:"az"`         // default <region>a
	Reservations []Reservation     `json:"reservations"`
	Tags         map[string]string `json:"tags"`
}

// Reservation keeps a part of a subnet from automatic assignment.
type Reservation struct {
	CIDR netip.Prefix `json:"cidr"`
	Type string       `json:"type"` // prefix: prefixes are drawn from it first; explicit: nothing is drawn from it
}

// Group is a security group; nodes refer to it by Name. A group of which no rules are given is as a VPC's default one: its members
// reach each other, and everything.
type Group struct {
	Name    string            `json:"name"`
	ID      string            `json:"id"`
	Ingress []Rule            `json:"ingress"`
	Egress  []Rule            `json:"egress"` // default, where only ingress is given: everything
	Tags    map[string]string `json:"tags"`
}

// Rule lets packets through.
type Rule struct {
	Protocol string `json:"protocol"` // tcp, udp, icmp, icmpv6, a number, or "" for all
	Ports    string `json:"ports"`    // "443" or "30000-32767"; default all
	Peer     string `json:"peer"`     // a network, or the name of a group of the same VPC
}

// Service is an address of the VPC with a namespace of its own, where a program of the scenario listens: "ec2" (the fake
// itself), "apiserver".
type Service struct {
	Name      string     `json:"name"`
	Subnet    string     `json:"subnet"`
	Address   netip.Addr `json:"address"`
	Namespace string     `json:"namespace"` // absolute path; default <dir>/netns/<name>
}

// Outside is a host in the internet, behind the gateway.
type Outside struct {
	Name      string       `json:"name"`
	Address   netip.Addr   `json:"address"`
	Network   netip.Prefix `json:"network"`   // the network it is in, apart from the VPC
	Namespace string       `json:"namespace"` // absolute path; default <dir>/netns/<name>
}

// Node is an instance, running from the start.
type Node struct {
	Name           string            `json:"name"`
	ID             string            `json:"id"`
	Type           string            `json:"type"` // default m5.xlarge
	Subnet         string            `json:"subnet"`
	Address        netip.Addr        `json:"address"`          // primary; drawn where it is not given
	Public         netip.Addr        `json:"public"`           // associated with the primary address; none where it is not given
	Groups         []string          `json:"securityGroups"`   // names; default "default"
	IPv6           int               `json:"ipv6"`             // IPv6 addresses of the primary ENI, drawn
	ENIs           []ENI             `json:"enis"`             // beside the primary one, attached from the start
	Image          string            `json:"image"`            // AMI id, for metadata only
	RPFilter       *int              `json:"rpFilter"`         // 0, 1 or 2, of the image; default 1, which shows most bugs
	HopLimit       *int              `json:"hopLimit"`         // 1 to 64, of instance metadata; default 1: a routed pod gets no token
	TokensRequired bool              `json:"tokensRequired"`   // of instance metadata: version 2 only
	MetadataOff    bool              `json:"metadataOff"`      // of instance metadata: it refuses everything
	MetadataIPv6   bool              `json:"metadataIPv6"`     // of instance metadata: it answers at fd00:ec2::254, too
	MetadataTags   bool              `json:"metadataTags"`     // of instance metadata: it shows the instance's tags
	Names          bool              `json:"predictableNames"` // of the image: ens5 for device 0; what is attached later is ethN, then ens(5+N)
	Role           string            `json:"role"`             // IAM role whose credentials the metadata serve
	Namespace      string            `json:"namespace"`        // absolute path; default <dir>/netns/<name>
	Tags           map[string]string `json:"tags"`
}

// ENI is an ENI of a node.
type ENI struct {
	Device    int      `json:"device"` // from 1 on its first card, from 0 on others
	Card      int      `json:"card"`
	Subnet    string   `json:"subnet"` // default the node's
	Groups    []string `json:"securityGroups"`
	Secondary int      `json:"secondary"` // IPv4 addresses beside the primary one
	Prefixes  int      `json:"prefixes"`  // IPv4
	IPv6      int      `json:"ipv6"`
	Keep      bool     `json:"keep"` // it outlives its node
}

// Fault is a rule of package fault, in force from the start.
type Fault struct {
	Name     string     `json:"name"`
	Action   string     `json:"action"`   // "" matches every action
	Resource string     `json:"resource"` // "" matches all; else the value of any parameter
	First    int        `json:"first"`    // the first matching request that it hits, from 1
	Times    int        `json:"times"`    // how many; 0 is all
	Kind     fault.Kind `json:"kind"`     // error, throttle, delay, lost, hang, stale
	Code     string     `json:"code"`
	Message  string     `json:"message"`
	Status   int        `json:"status"`
	Delay    Duration   `json:"delay"`
	Jitter   Duration   `json:"jitter"` // at most so much is added to delay, drawn from the seed
	Age      Duration   `json:"age"`    // of stale: the answer is as of so long ago
	Off      bool       `json:"off"`    // not in force at first; YAML takes a bare off for false: write "off": true
}

// Rule is the fault in the words of package fault.
func (f Fault) Rule() fault.Rule {
	return fault.Rule{
		Name: f.Name, Action: f.Action, Resource: f.Resource, First: f.First, Times: f.Times, Kind: f.Kind, Code: f.Code,
		Message: f.Message, Status: f.Status, Delay: time.Duration(f.Delay), Jitter: time.Duration(f.Jitter), Age: time.Duration(f.Age), Off: f.Off,
	}
}

// Duration is a time.Duration that reads "1.5s" or "never" (vpc.Never).
type Duration time.Duration

// UnmarshalJSON reads the text form.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("read duration %s: want text such as \"1.5s\": %w", data, err)
	}
	if text == "never" {
		*d = Duration(vpc.Never)
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	if parsed < 0 {
		return fmt.Errorf("read duration: %s is negative", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d Duration) String() string {
	if time.Duration(d) == vpc.Never {
		return "never"
	}
	return time.Duration(d).String()
}

// Range is a vpc.Range that reads "1s..5s", or "1s" for exactly that.
type Range vpc.Range

// UnmarshalJSON reads the text form.
func (r *Range) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("read range %s: want text such as \"1s..5s\": %w", data, err)
	}
	low, high, two := strings.Cut(text, "..")
	if !two {
		high = low
	}
	var ends [2]Duration
	for n, end := range []string{low, high} {
		quoted, err := json.Marshal(end)
		if err != nil {
			return fmt.Errorf("read range: %w", err)
		}
		if err := ends[n].UnmarshalJSON(quoted); err != nil {
			return err
		}
	}
	if ends[1] < ends[0] || two && time.Duration(ends[1]) == vpc.Never {
		return fmt.Errorf("read range: %s does not lead upwards", text)
	}
	*r = Range{time.Duration(ends[0]), time.Duration(ends[1])}
	return nil
}

// MarshalJSON writes the text form.
func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }

func (r Range) String() string {
	if r.Max <= r.Min {
		return Duration(r.Min).String()
	}
	return Duration(r.Min).String() + ".." + Duration(r.Max).String()
}

// Parse reads a scenario and checks what Build does not. What is wrong is an *Error with all problems that can be seen at once:
// text that is no YAML hides the values, values that cannot be read hide what they would mean.
func Parse(text []byte) (Scenario, error) {
	var s Scenario
	lines := linesOf(text)
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return Scenario{}, locate(unreadable(text, err), lines)
	}
	s.lines = lines
	if err := s.check(); err != nil {
		return Scenario{}, locate(err, lines)
	}
	return s, nil
}

// Over gives delays of a model with those of d that are given in their place.
func (d Delays) Over(model vpc.Delays) vpc.Delays {
	for _, x := range []struct {
		given *Duration
		to    *time.Duration
	}{{d.Attach, &model.Attach}, {d.Link, &model.Link}, {d.Detach, &model.Detach}, {d.IMDS, &model.IMDS}} {
		if x.given != nil {
			*x.to = time.Duration(*x.given)
		}
	}
	return model
}
