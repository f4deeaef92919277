// Package pool is the pure model of a node's ENIs, addresses and assignments, and the planner that decides what to do
// about them.
//
// It owns every decision about addresses: which one a pod gets, when one may be used again, when an ENI is added or given
// up. It does no I/O, keeps no clock (time is passed in) and logs nothing. Start with Pool in pool.go; this file holds the
// words it speaks with its surroundings: what is observed, what is wanted of the cloud, the kernel, the disk and the API.
package pool

import (
	"net/netip"
	"time"
)

// Key identifies one sandbox interface: CNI's network name, container id and interface name.
type Key struct {
	Network, Sandbox, IfName string
}

// Pod names the pod that a sandbox belongs to. UID is empty with runtimes that do not pass it.
type Pod struct {
	Namespace, Name, UID string
}

// Limits are an instance type's limits. Addresses counts the primary one. Source: EC2 DescribeInstanceTypes.
type Limits struct {
	ENIs            int
	AddressesPerENI int
}

// Instance is this node as EC2 knows it.
type Instance struct {
	ID, Type, VPC, Subnet, AZ string
	Limits                    Limits
}

// Attachment states, as EC2 names them.
const (
	Attaching = "attaching"
	Attached  = "attached"
	Detaching = "detaching"
	Available = "available" // not attached
)

// ENI is an elastic network interface as EC2 describes it: attached to this instance, or available and tagged as this
// instance's own.
type ENI struct {
	ID, MAC, Subnet     string
	SubnetCIDR          netip.Prefix // its first address + 1 is the gateway
	State               string       // Attaching, Attached, Detaching, Available
	AttachmentID        string
	Device              int // device index; 0 is the primary ENI
	DeleteOnTermination bool
	Owned               bool // carries this project's (or the incumbent's) instance tag; only owned ENIs are ever detached or deleted
	Primary             netip.Addr
	Secondary           []netip.Addr   // ascending
	Prefixes            []netip.Prefix // IPv4, ascending: each lends its ENI all its addresses and takes one place of a secondary one
	Groups              []string       // security group ids, ascending
	CreatedAt           time.Time      // of the createdAt tag; zero if absent
}

// Observation is one complete reading of the cloud.
type Observation struct {
	Instance Instance
	VPCCIDRs []netip.Prefix
	ENIs     []ENI // by device index, then id
}

// HostENI is what the kernel must know of one attached ENI.
type HostENI struct {
	ID, MAC    string
	Device     int
	SubnetCIDR netip.Prefix
	Primary    netip.Addr
	Addresses  []netip.Addr // secondary addresses whose pods leave by this ENI, ascending
}

// HostState is the kernel state that the pool wants. What does not change while the daemon runs (MTU, veth prefix, SNAT
// mode) is given to the Host when it is made.
type HostState struct {
	VPCCIDRs []netip.Prefix
	ENIs     []HostENI // by device index
	Pods     []HostPod // by address
}

// HostPod is a sandbox whose interface is in place and that nobody disputes its pod: what the host's end of it has lost may
// be put back.
type HostPod struct {
	Key  Key
	Pod  Pod
	Addr netip.Addr
}

// PodRoute is one live pod as the kernel shows it: a route in the pods table over a link that exists, or a host veth that
// was built for the address (its route may have been deleted by others).
type PodRoute struct {
	Addr netip.Addr
	Link string // host veth
}

// HostReport is what the kernel was seen to hold after an Apply.
type HostReport struct {
	ENIs      []string     // ids of ENIs whose link is present, up, and whose table is complete
	Addresses []netip.Addr // secondary addresses confirmed in the source map (for the primary ENI: by the ENI itself)
	Pods      []PodRoute   // by address
}

// Owner says whose a written annotation value is: only the same pod UID, sandbox and address may clear it.
type Owner struct {
	Pod     Pod
	Sandbox string
	Addr    netip.Addr
}

// Wish is what an annotation record wants of the API.
type Wish string

// Wishes.
const (
	WishPresent Wish = "present" // the keys hold the address
	WishEmpty   Wish = "empty"   // the keys hold "": the sandbox is gone, readers take it as "network removed"
	WishAbsent  Wish = "absent"  // the keys are gone: the knob was turned off, or a key was renamed
)

// Annotation is an ownership record: the keys that may carry our value on a pod, and what is wanted of them. It is on disk
// before the first request that could write the value.
type Annotation struct {
	Owner
	More  []netip.Addr // the pod's further addresses, for keys whose value is all of them; a pod has one today
	Keys  []string     // keys that should follow Wish
	Stale []string     // keys that hold nobody up: of an earlier setting, to go once Keys are written; or whose clear was refused, to be tried again
	Wish  Wish
	Since time.Time // of the current wish
	// Emptied are those of Keys and Stale that may hold "" by a clear of the pod's earlier sandbox: it is ours to remove.
	Emptied []string
}

// Verdict is how a request about an annotation ended. Each but Pending ends the wait for it; a refused clear stays owned and is
// tried again.
type Verdict string

// Verdicts.
const (
	VerdictDone    Verdict = "done"    // the API holds what was wished
	VerdictGone    Verdict = "gone"    // the pod is gone, replaced, or the value is no longer ours: nothing left to do
	VerdictRefused Verdict = "refused" // the API will not take it (forbidden, webhook, invalid); an answer all the same
	VerdictPending Verdict = "pending" // being retried; sent once per reason
)

// Answer tells the pool how an annotation wish ended.
type Answer struct {
	Owner   Owner
	Wish    Wish
	Keys    []string // the record's keys that the answer speaks of
	Verdict Verdict
	Reason  string // a word for metrics: "ok", "notfound", "uid", "value", "forbidden", "webhook", "timeout", ...
}

// Action is a step that the planner wants of the cloud. The set is closed: the types below.
type Action interface {
	action()
	String() string
}

// Addrs is an ascending, comma-separated list of addresses: a value that compares with ==.
type Addrs string

// Prefixes is an ascending, comma-separated list of prefixes: a value that compares with ==.
type Prefixes string

type (
	// CreateENI makes an ENI in Subnet with Secondary secondary addresses and the instance's tags. Token is the
	// ClientToken: equal tokens give the same ENI.
	CreateENI struct {
		Subnet    string
		Groups    string // comma-separated security group ids
		Secondary int
		Token     string
	}
	// AttachENI attaches an available ENI at a device index and sets DeleteOnTermination on the attachment.
	AttachENI struct {
		ENI    string
		Device int
	}
	// SetDeleteOnTermination repairs an attachment whose flag was lost (a crash between attach and modify).
	SetDeleteOnTermination struct {
		ENI, AttachmentID string
	}
	// AssignAddresses adds Count secondary addresses to an ENI.
	AssignAddresses struct {
		ENI   string
		Count int
	}
	// UnassignAddresses takes secondary addresses from an ENI.
	UnassignAddresses struct {
		ENI       string
		Addresses Addrs
	}
	// AssignPrefixes adds Count IPv4 prefixes (/28) to an ENI.
	AssignPrefixes struct {
		ENI   string
		Count int
	}
	// UnassignPrefixes takes IPv4 prefixes from an ENI.
	UnassignPrefixes struct {
		ENI      string
		Prefixes Prefixes
	}
	// DetachENI begins a detachment; the ENI becomes available later.
	DetachENI struct {
		ENI, AttachmentID string
	}
	// DeleteENI deletes an available ENI.
	DeleteENI struct {
		ENI string
	}
)

func (CreateENI) action()              {}
func (AttachENI) action()              {}
func (SetDeleteOnTermination) action() {}
func (AssignAddresses) action()        {}
func (UnassignAddresses) action()      {}
func (AssignPrefixes) action()         {}
func (UnassignPrefixes) action()       {}
func (DetachENI) action()              {}
func (DeleteENI) action()              {}

// Outcome is what an action gave: the created ENI, the attachment, or the addresses or prefixes that this call
// newly assigned.
type Outcome struct {
	ENI       ENI            // CreateENI: complete; AttachENI: ID, AttachmentID, Device, State
	Addresses []netip.Addr   // AssignAddresses
	Prefixes  []netip.Prefix // AssignPrefixes
}

// CloudClass groups EC2's error codes by what the planner can do about them.
type CloudClass string

// Classes of errors.
const (
	ClassThrottled  CloudClass = "throttled"   // wait, then the same again
	ClassSubnetFull CloudClass = "subnet-full" // wait longer; another subnet may do
	ClassLimit      CloudClass = "limit"       // the instance type or account has no more: learn it
	ClassGone       CloudClass = "gone"        // the thing is not there (any more)
	ClassInUse      CloudClass = "in-use"      // still attached or attaching: again later
	ClassDenied     CloudClass = "denied"      // permissions
	ClassInvalid    CloudClass = "invalid"     // a request that will never do
	ClassUnknown    CloudClass = "unknown"     // server or connection failure: the call may have been carried out
)

// CloudError is a refused or failed cloud call.
type CloudError struct {
	Class   CloudClass
	Code    string // EC2's code, or "" where there was no answer
	Message string
	Err     error
}

func (e *CloudError) Error() string {
	switch {
	case e.Code == "" && e.Err != nil:
		return e.Err.Error()
	case e.Code == "":
		return e.Message
	}
	return e.Code + ": " + e.Message
}

func (e *CloudError) Unwrap() error { return e.Err }

// Snapshot is what survives a restart of the daemon.
type Snapshot struct {
	BootID      string // of the boot in which it was written: after a reboot every sandbox is gone
	Assignments []Assignment
	Cooling     []Cooling
	Annotations []Annotation
	Emptied     []Emptied // oldest first
}

// Assignment is an address given to a sandbox. Done is false between the answer to the plugin and its "done".
type Assignment struct {
	Key   Key
	Pod   Pod
	Addr  netip.Addr
	ENI   string
	NetNS string
	Done  bool
	Since time.Time
	// Seq orders the sandboxes of a pod by the arrival of their first ADD; no clock does. A snapshot of an earlier release
	// has 0: Restore then goes by Since.
	Seq uint64
}

// Cooling is a released address that may not be given out before Until; the same pod UID may have it back earlier.
type Cooling struct {
	Addr  netip.Addr
	Pod   Pod
	Until time.Time
}
