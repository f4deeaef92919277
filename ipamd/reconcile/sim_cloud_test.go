package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	instanceTag = "node.k8s.amazonaws.com/instance_id"
	subnetID    = "subnet-00000000000000001"
)

// simCloud is EC2: the model of fakeec2/vpc behind the loop's interface, with faults that the driver sets (see
// sim_fault_test.go).
type simCloud struct {
	n        *node // nil in tests that have none
	v        *vpc.VPC
	instance string
	calls    map[string]int
	lies     int // so many ENIs more than EC2 allows are in the table of instance types

	throttled time.Time // until then every call is refused
	slow      time.Time // until then every call takes long
	spoilt    []*spoilt
	lag       time.Duration // readings show the state of that long ago, at most
	past      []reading
	reads     []time.Time          // readings that were answered
	journal   []entry              // actions that reached EC2
	taken     map[string]time.Time // ENIs that were detached out of band
	gaveBack  time.Time            // the last call that gave something back, or was to

	owned   []vpc.ENI
	changed <-chan struct{} // closed when owned is not true any more
}

type reading struct {
	at   time.Time
	enis []vpc.ENI
}

// entry is one call that was carried out or refused by EC2's laws.
type entry struct {
	at   time.Time
	name string
	ok   bool
}

func newSimCloud(seed uint64, kind vpc.InstanceType, cidr string) (*simCloud, error) {
	v := vpc.New(vpc.Options{Seed: seed, Types: []vpc.InstanceType{kind}})
	n, err := v.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	if err != nil {
		return nil, err
	}
	if _, err := v.AddSubnet(vpc.Subnet{ID: subnetID, VPCID: n.ID, CIDR: netip.MustParsePrefix(cidr)}); err != nil {
		return nil, err
	}
	i, err := v.Launch(time.Now(), vpc.LaunchInput{Type: kind.Name, SubnetID: subnetID})
	if err != nil {
		return nil, err
	}
	return &simCloud{v: v, instance: i.ID, calls: map[string]int{}, taken: map[string]time.Time{}}, nil
}

// own gives the instance's ENIs: attached ones, and available ones with its tag.
func (c *simCloud) own() []vpc.ENI {
	select {
	case <-c.changed:
	default:
		if c.changed != nil {
			return c.owned
		}
	}
	c.changed = c.v.Changed()
	c.owned = c.v.SelectENIs(func(e *vpc.ENI) bool {
		return e.Attachment != nil && e.Attachment.InstanceID == c.instance ||
			e.Attachment == nil && e.Tags[instanceTag] == c.instance
	})
	return c.owned
}

// detached tells whether somebody detached the ENI so shortly before that the daemon cannot know.
func (c *simCloud) detached(id string, since time.Time) bool {
	at, ok := c.taken[id]
	return ok && !c.n.readSince(at, since)
}

// seen is what a reading at this moment shows: with lag, an earlier state.
func (c *simCloud) seen() []vpc.ENI {
	c.remember()
	return c.past[0].enis
}

// remember keeps the state before a change, for readings that lag.
func (c *simCloud) remember() {
	now := time.Now()
	c.past = append(c.past, reading{now, c.own()})
	for len(c.past) > 1 && now.Sub(c.past[0].at) > c.lag {
		c.past = c.past[1:]
	}
}

func (c *simCloud) Observe(ctx context.Context) (pool.Observation, error) {
	c.calls["Observe"]++
	spoil, err := c.before(ctx, "Observe")
	if err != nil {
		return pool.Observation{}, err
	}
	i, ok := c.v.Instance(c.instance)
	if !ok {
		return pool.Observation{}, errors.New("no instance")
	}
	sub, _ := c.v.Subnet(i.SubnetID)
	obs := pool.Observation{
		Instance: pool.Instance{ID: i.ID, Type: i.Type, VPC: i.VPCID, Subnet: i.SubnetID, AZ: i.AZ,
			Limits: pool.Limits{ENIs: i.Limits.ENIs + c.lies, AddressesPerENI: i.Limits.IPv4}},
		VPCCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
	}
	for _, e := range c.seen() {
		obs.ENIs = append(obs.ENIs, convert(e, sub.CIDR, c.instance))
	}
	slices.SortFunc(obs.ENIs, func(a, b pool.ENI) int {
		if a.Device != b.Device {
			return a.Device - b.Device
		}
		return strings.Compare(a.ID, b.ID)
	})
	at := time.Now()
	if err := c.after(ctx, spoil); err != nil {
		return pool.Observation{}, err
	}
	c.reads = append(c.reads, at)
	return obs, nil
}

func convert(e vpc.ENI, cidr netip.Prefix, instance string) pool.ENI {
	out := pool.ENI{
		ID: e.ID, MAC: e.MAC, Subnet: e.SubnetID, SubnetCIDR: cidr, State: pool.Available,
		Owned: e.Tags[instanceTag] == instance, Primary: e.Primary, Secondary: e.Secondary, Prefixes: e.Prefixes, Groups: e.Groups,
	}
	if a := e.Attachment; a != nil {
		out.State, out.AttachmentID, out.Device, out.DeleteOnTermination = a.Status, a.ID, a.Device, a.DeleteOnTermination
	}
	return out
}

func (c *simCloud) Do(ctx context.Context, action pool.Action) (pool.Outcome, error) {
	name := pool.ActionName(action)
	c.calls[name]++
	if c.n != nil {
		c.n.checkGivingBack(action)
	}
	spoil, err := c.before(ctx, name)
	if err != nil {
		return pool.Outcome{}, err
	}
	c.remember()
	out, err := c.do(action)
	c.journal = append(c.journal, entry{time.Now(), name, err == nil})
	var refused *vpc.Error
	if errors.As(err, &refused) {
		class := classOf(name, refused.Code)
		if c.n != nil {
			c.n.covered("EC2 says " + string(class))
		}
		return out, &pool.CloudError{Class: class, Code: refused.Code, Message: refused.Message}
	}
	if err == nil {
		err = c.after(ctx, spoil)
	}
	if err != nil {
		return pool.Outcome{}, err
	}
	return out, nil
}

func (c *simCloud) do(action pool.Action) (pool.Outcome, error) {
	now := time.Now()
	switch act := action.(type) {
	case pool.CreateENI:
		e, err := c.v.CreateNetworkInterface(now, vpc.CreateNetworkInterfaceInput{
			SubnetID: act.Subnet, Groups: strings.Split(act.Groups, ","), SecondaryCount: act.Secondary, ClientToken: act.Token,
			Tags: map[string]string{instanceTag: c.instance},
		})
		sub, _ := c.v.Subnet(e.SubnetID)
		return pool.Outcome{ENI: convert(e, sub.CIDR, c.instance)}, err
	case pool.AttachENI:
		a, err := c.v.AttachNetworkInterface(now, vpc.AttachNetworkInterfaceInput{
			InstanceID: c.instance, NetworkInterfaceID: act.ENI, Device: act.Device})
		if err != nil {
			return pool.Outcome{}, err
		}
		out := pool.ENI{ID: act.ENI, AttachmentID: a.ID, Device: a.Device, State: a.Status}
		if c.calls["AttachENI"]%3 != 0 { // else the second half fails
			out.DeleteOnTermination = c.flag(act.ENI, a.ID) == nil
		}
		return pool.Outcome{ENI: out}, nil
	case pool.SetDeleteOnTermination:
		return pool.Outcome{}, c.flag(act.ENI, act.AttachmentID)
	case pool.AssignAddresses:
		addrs, err := c.v.AssignPrivateIpAddresses(now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: act.ENI, Count: act.Count})
		return pool.Outcome{Addresses: addrs}, err
	case pool.UnassignAddresses:
		return pool.Outcome{}, c.v.UnassignPrivateIpAddresses(now, vpc.UnassignPrivateIpAddressesInput{
			NetworkInterfaceID: act.ENI, Addresses: act.Addresses.List()})
	case pool.AssignPrefixes:
		got, err := c.v.AssignPrivate(now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: act.ENI, PrefixCount: act.Count})
		return pool.Outcome{Prefixes: got.Prefixes}, err
	case pool.UnassignPrefixes:
		return pool.Outcome{}, c.v.UnassignPrivateIpAddresses(now, vpc.UnassignPrivateIpAddressesInput{
			NetworkInterfaceID: act.ENI, Prefixes: act.Prefixes.List()})
	case pool.DetachENI:
		return pool.Outcome{}, c.v.DetachNetworkInterface(now, vpc.DetachNetworkInterfaceInput{AttachmentID: act.AttachmentID})
	case pool.DeleteENI:
		err := c.v.DeleteNetworkInterface(now, act.ENI)
		var refused *vpc.Error
		if errors.As(err, &refused) && refused.Code == vpc.CodeENINotFound {
			return pool.Outcome{}, nil // as the cloud adapter has it
		}
		return pool.Outcome{}, err
	}
	return pool.Outcome{}, fmt.Errorf("unknown action %T", action)
}

func (c *simCloud) flag(eni, attachment string) error {
	return c.v.ModifyNetworkInterfaceAttribute(time.Now(), vpc.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceID: eni, Attachment: &vpc.AttachmentChange{AttachmentID: attachment, DeleteOnTermination: true}})
}

// drive carries out the model's due transitions until ctx ends, and tells the host of links that come and go.
func (c *simCloud) drive(ctx context.Context, a *agenda, host *simHost) {
	for {
		changed := c.v.Changed()
		at := now() + time.Hour
		if next, ok := c.v.Next(); ok {
			at = next.Sub(epoch())
		}
		due, err := a.waitOr(ctx, at, "EC2", changed)
		if err != nil {
			return
		}
		if due {
			c.remember()
			c.v.Advance(time.Now())
			host.notify()
		}
	}
}
