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
	"time"

	"sigs.k8s.io/yaml"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// EC2Service is the name of the service at which the EC2 API answers. Every scenario has it.
const EC2Service = "ec2"

// Scenario is a world. In the file (YAML or JSON), durations are written as "1.5s" or "never".
type Scenario struct {
	Seed    uint64 `json:"seed"`    // of ids, MACs and drawn addresses; equal seeds give equal worlds
	Region  string `json:"region"`  // default us-west-2
	Account string `json:"account"` // twelve digits in quotes; default "123456789012"
	Delays  Delays `json:"delays"`
	Types   []Type `json:"types"` // beside the built-in instance types, or in place of them

	VPC      VPC       `json:"vpc"`
	Services []Service `json:"services"` // one of them is "ec2"
	Outside  []Outside `json:"outside"`
	Nodes    []Node    `json:"nodes"`
	Faults   []Fault   `json:"faults"`
}

// Delays are how long EC2's transitions take. What is not given is the middle of what is seen on real EC2: attach 1s, link
// 2s, detach 3s, imds 1s, reuse 60s.
type Delays struct {
	Attach *Duration `json:"attach"` // attaching -> attached in the API
	Link   *Duration `json:"link"`   // attach -> the guest has the link
	Detach *Duration `json:"detach"` // detaching -> gone, in the API and in the guest
	IMDS   *Duration `json:"imds"`   // a change -> seen in the instance metadata
	Reuse  *Duration `json:"reuse"`  // a released address is drawn again
}

// Type is an instance type of the scenario's own.
type Type struct {
	Name      string `json:"name"`
	ENIs      int    `json:"enis"`      // 1 to 64
	Addresses int    `json:"addresses"` // 1 to 50: IPv4 addresses of an ENI, the primary one included
}

// VPC is the network. Ids are drawn where they are not given, here and below.
type VPC struct {
	ID      string         `json:"id"`
	CIDRs   []netip.Prefix `json:"cidrs"` // the first is the primary one
	Subnets []Subnet       `json:"subnets"`
	Groups  []Group        `json:"securityGroups"` // beside the one named "default"
}

// Subnet is a subnet; the others refer to it by Name.
type Subnet struct {
	Name string            `json:"name"`
	ID   string            `json:"id"`
	CIDR netip.Prefix      `json:"cidr"` // its gateway is the first address after the base
	AZ   string            `json:"az"`   // default <region>a
	Tags map[string]string `json:"tags"`
}

// Group is a security group; nodes refer to it by Name.
type Group struct {
	Name string            `json:"name"`
	ID   string            `json:"id"`
	Tags map[string]string `json:"tags"`
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
	Address        netip.Addr        `json:"address"`        // primary; drawn where it is not given
	Public         netip.Addr        `json:"public"`         // associated with the primary address; none where it is not given
	Groups         []string          `json:"securityGroups"` // names; default "default"
	Image          string            `json:"image"`          // AMI id, for metadata only
	RPFilter       *int              `json:"rpFilter"`       // 0, 1 or 2, of the image; default 1, which shows most bugs
	HopLimit       *int              `json:"hopLimit"`       // 1 to 64, of instance metadata; default 1: a routed pod gets no token
	TokensRequired bool              `json:"tokensRequired"` // of instance metadata: version 2 only
	Role           string            `json:"role"`           // IAM role whose credentials the metadata serve
	Namespace      string            `json:"namespace"`      // absolute path; default <dir>/netns/<name>
	Tags           map[string]string `json:"tags"`
}

// Fault is a rule of package fault, in force from the start.
type Fault struct {
	Name     string     `json:"name"`
	Action   string     `json:"action"`   // "" matches every action
	Resource string     `json:"resource"` // "" matches all; else the value of any parameter
	First    int        `json:"first"`    // the first matching request that it hits, from 1
	Times    int        `json:"times"`    // how many; 0 is all
	Kind     fault.Kind `json:"kind"`     // error, throttle, delay, lost
	Code     string     `json:"code"`
	Message  string     `json:"message"`
	Status   int        `json:"status"`
	Delay    Duration   `json:"delay"`
	Off      bool       `json:"off"`
}

// Rule is the fault in the words of package fault.
func (f Fault) Rule() fault.Rule {
	return fault.Rule{
		Name: f.Name, Action: f.Action, Resource: f.Resource, First: f.First, Times: f.Times, Kind: f.Kind, Code: f.Code,
		Message: f.Message, Status: f.Status, Delay: time.Duration(f.Delay), Off: f.Off,
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
func (d Duration) MarshalJSON() ([]byte, error) {
	if time.Duration(d) == vpc.Never {
		return []byte(`"never"`), nil
	}
	return json.Marshal(time.Duration(d).String())
}

// Parse reads a scenario and checks what Build does not. What is wrong is an *Error with all problems that can be seen at once:
// text that is no YAML hides the values, values that cannot be read hide what they would mean.
func Parse(text []byte) (Scenario, error) {
	var s Scenario
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return Scenario{}, unreadable(text, err)
	}
	if err := s.check(); err != nil {
		return Scenario{}, err
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
