package vpc

import (
	"net/netip"
	"slices"
	"sort"
	"time"
)

// Kinds of Event.
const (
	NetworkAdded        = "network-added"
	NetworkModified     = "network-modified" // its CIDRs, gateway or routes; Detail is the VPC
	SubnetAdded         = "subnet-added"
	GroupAdded          = "group-added"       // Detail is the security group
	GroupModified       = "group-modified"    // its rules; Detail is the security group
	PeeringAdded        = "peering-added"     // Detail is the peering
	ReservationAdded    = "reservation-added" // Detail is the subnet CIDR reservation
	ReservationDeleted  = "reservation-deleted"
	ServiceAdded        = "service-added"
	OutsideAdded        = "outside-added"
	InstancePending     = "instance-pending"  // by RunInstances; it is launched later
	InstanceLaunched    = "instance-launched" // it runs
	InstanceStopped     = "instance-stopped"
	InstanceStarted     = "instance-started"
	InstanceShutdown    = "instance-shutting-down"
	InstanceTerminated  = "instance-terminated"
	InstanceForgotten   = "instance-forgotten" // an hour after termination
	InstanceModified    = "instance-modified"  // Detail: metadataOptions or notices
	ENICreated          = "eni-created"
	ENIAttaching        = "eni-attaching"
	ENIAttached         = "eni-attached"
	LinkAdded           = "link-added"   // the guest has the ENI's link
	LinkRenamed         = "link-renamed" // the guest's image has given it its name
	LinkRemoved         = "link-removed" // the guest has it no more
	ENIDetaching        = "eni-detaching"
	ENIDetached         = "eni-detached"
	ENIDeleted          = "eni-deleted"
	ENIModified         = "eni-modified"       // Detail names the attribute
	AddressAssigned     = "address-assigned"   // IPv4 or IPv6
	AddressUnassigned   = "address-unassigned" // IPv4 or IPv6
	PrefixAssigned      = "prefix-assigned"    // Addr is its first address, Detail the prefix
	PrefixUnassigned    = "prefix-unassigned"  // the same
	BranchAssociated    = "branch-associated"  // ENI is the branch, Detail the association
	BranchDisassociated = "branch-disassociated"
	Tagged              = "tagged" // Detail is the resource's id
)

// keptEvents bounds the change log: a follower that is further behind re-reads the state instead.
const keptEvents = 1 << 17

// Event is one change. Fields that do not apply are empty.
type Event struct {
	Seq           uint64 // 1, 2, 3, ...
	At            time.Time
	Kind          string
	Instance, ENI string
	Addr          netip.Addr
	Detail        string
}

// Events gives the changes after since, and the number to ask with the next time. Where events[0].Seq is not since+1,
// older changes have been dropped from the log (it keeps the last 131,072 or more): read the whole state again.
func (v *VPC) Events(since uint64) ([]Event, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := sort.Search(len(v.log), func(i int) bool { return v.log[i].Seq > since })
	return slices.Clone(v.log[i:]), v.seq
}

// Changed gives a channel that is closed at the next change. Take it before reading the state, so that no change is missed.
func (v *VPC) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

func (v *VPC) emit(e Event) {
	v.seq++
	e.Seq = v.seq
	if e.At.IsZero() {
		e.At = v.now
	}
	if len(v.log) >= 2*keptEvents {
		v.log = slices.Clone(v.log[keptEvents:])
	}
	v.log = append(v.log, e)
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}
