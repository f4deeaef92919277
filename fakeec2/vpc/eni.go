package vpc

import (
	"maps"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"
)

// Limits of what may be said about an ENI. Source: EC2 API reference and service quotas.
const (
	maxDescription = 255
	maxGroups      = 5
	maxClientToken = 64
)

// CreateNetworkInterfaceInput describes an ENI to create. Only SubnetID is required. SecondaryCount and Secondary exclude
// each other.
type CreateNetworkInterfaceInput struct {
	SubnetID, Description string
	InterfaceType         string // "" or "interface"
	ClientToken           string // equal tokens give the same ENI
	Groups                []string
	Primary               netip.Addr // drawn when zero
	Secondary             []netip.Addr
	SecondaryCount        int
	Tags                  map[string]string
}

// creation is what a client token stands for.
type creation struct {
	in  CreateNetworkInterfaceInput
	eni ENI
}

func (in CreateNetworkInterfaceInput) equal(other CreateNetworkInterfaceInput) bool {
	return in.SubnetID == other.SubnetID && in.Description == other.Description && in.InterfaceType == other.InterfaceType &&
		in.ClientToken == other.ClientToken && in.Primary == other.Primary && in.SecondaryCount == other.SecondaryCount &&
		slices.Equal(in.Groups, other.Groups) && slices.Equal(in.Secondary, other.Secondary) && maps.Equal(in.Tags, other.Tags)
}

// CreateNetworkInterface makes an ENI with its addresses. The answer has status "pending", every later reading "available".
// The same ClientToken gives the first answer again; with other parameters it is refused.
func (v *VPC) CreateNetworkInterface(now time.Time, in CreateNetworkInterfaceInput) (ENI, error) {
	v.begin(now)
	defer v.end()
	if len(in.ClientToken) > maxClientToken {
		return ENI{}, refuse(CodeParameterValue, "invalid value for parameter clientToken: longer than %d characters", maxClientToken)
	}
	if done, ok := v.tokens[in.ClientToken]; ok {
		if !done.in.equal(in) {
			return ENI{}, refuse(CodeIdempotentMismatch, "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		}
		return done.eni.clone(), nil
	}
	e, err := v.makeENI(in, "")
	if err != nil {
		return ENI{}, err
	}
	v.put(e)
	answer := e.clone()
	answer.Status = Pending
	if in.ClientToken != "" {
		in.Groups, in.Secondary, in.Tags = slices.Clone(in.Groups), slices.Clone(in.Secondary), maps.Clone(in.Tags)
		v.tokens[in.ClientToken] = creation{in, answer.clone()}
	}
	return answer, nil
}

// makeENI checks, takes the addresses and gives an ENI that the caller puts; nothing has happened on error.
func (v *VPC) makeENI(in CreateNetworkInterfaceInput, mac string) (*ENI, error) {
	sub, err := v.subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	if in.InterfaceType != "" && in.InterfaceType != PlainInterface {
		return nil, refuse(CodeUnsupported, "The interface type '%s' is not supported: only '%s' is", clip(in.InterfaceType), PlainInterface)
	}
	if utf8.RuneCountInString(in.Description) > maxDescription {
		return nil, refuse(CodeParameterValue, "invalid value for parameter description: longer than %d characters", maxDescription)
	}
	groups, err := v.groupSet(in.Groups, v.networks[sub.VPCID])
	if err != nil {
		return nil, err
	}
	if err := checkTags(nil, in.Tags); err != nil {
		return nil, err
	}
	if len(v.enis) >= v.opts.ENIQuota {
		return nil, refuse(CodeENILimit, "The maximum number of network interfaces has been reached: %d", v.opts.ENIQuota)
	}
	if err := sub.checkNewENI(in); err != nil {
		return nil, err
	}
	e := &ENI{
		ID: v.newID(kindENI()), MAC: mac, VPCID: sub.VPCID, SubnetID: sub.ID, AZ: sub.AZ,
		Description: in.Description, Status: Available, InterfaceType: PlainInterface, SourceDestCheck: true,
		Groups: groups, Tags: maps.Clone(in.Tags), CreatedAt: v.now,
	}
	if e.MAC == "" {
		e.MAC = v.newMAC()
	}
	v.macs[e.MAC] = e.ID
	v.takeNewAddresses(e, sub, in)
	v.emit(Event{Kind: ENICreated, ENI: e.ID, Addr: e.Primary})
	for _, a := range e.Secondary {
		v.emit(Event{Kind: AddressAssigned, ENI: e.ID, Addr: a})
	}
	return e, nil
}

func (s *subnet) checkNewENI(in CreateNetworkInterfaceInput) *Error {
	if in.SecondaryCount != 0 && len(in.Secondary) > 0 {
		return refuse(CodeParameterCombination, "The parameters secondaryPrivateIpAddressCount and privateIpAddresses may not be used together")
	}
	if in.SecondaryCount < 0 {
		return refuse(CodeParameterValue, "invalid value for parameter secondaryPrivateIpAddressCount: %d", in.SecondaryCount)
	}
	wanted := in.SecondaryCount + len(in.Secondary) + 1
	if wanted > MaxIPv4PerENI {
		return tooManyAddresses()
	}
	explicit := slices.Clone(in.Secondary)
	if in.Primary.IsValid() {
		explicit = append(explicit, in.Primary)
	}
	if err := distinct(explicit); err != nil {
		return err
	}
	for _, a := range explicit {
		if err := s.checkExplicit(a); err != nil {
			return err
		}
	}
	if wanted > s.available() {
		return s.full()
	}
	return nil
}

// takeNewAddresses takes the explicit addresses first, so that no draw can hit one of them.
func (v *VPC) takeNewAddresses(e *ENI, sub *subnet, in CreateNetworkInterfaceInput) {
	for _, a := range in.Secondary {
		sub.take(a, e.ID)
	}
	e.Secondary = slices.Clone(in.Secondary)
	if e.Primary = in.Primary; e.Primary.IsValid() {
		sub.take(e.Primary, e.ID)
	} else {
		e.Primary = sub.takeRandom(v.choices, v.now, e.ID)
	}
	for range in.SecondaryCount {
		e.Secondary = append(e.Secondary, sub.takeRandom(v.choices, v.now, e.ID))
	}
	slices.SortFunc(e.Secondary, netip.Addr.Compare)
}

func distinct(addrs []netip.Addr) *Error {
	seen := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if seen[a] {
			return refuse(CodeParameterValue, "invalid value for parameter address: %s (given twice)", a)
		}
		seen[a] = true
	}
	return nil
}

func tooManyAddresses() *Error {
	return refuse(CodePrivateIPLimit, "Number of private addresses will exceed limit.")
}

// groupSet gives the ids ascending, or the VPC's default group for none.
func (v *VPC) groupSet(ids []string, n *Network) ([]string, error) {
	if len(ids) == 0 {
		return []string{n.DefaultGroup}, nil
	}
	if len(ids) > maxGroups {
		return nil, refuse(CodeGroupsPerInterface, "You have exceeded the maximum number of security groups allowed per network interface: %d", maxGroups)
	}
	for _, id := range ids {
		if err := kindGroup().check(id); err != nil {
			return nil, err
		}
		g := v.groups[id]
		if g == nil {
			return nil, kindGroup().missing(id)
		}
		if g.VPCID != n.ID {
			return nil, refuse(CodeParameterValue, "The security group '%s' and the network interface belong to different networks.", id)
		}
	}
	set := slices.Sorted(slices.Values(ids))
	if len(slices.Compact(slices.Clone(set))) != len(set) {
		return nil, refuse(CodeParameterValue, "A security group was given twice")
	}
	return set, nil
}

// DeleteNetworkInterface deletes an ENI that is not attached (nor attaching or detaching) and frees its addresses.
func (v *VPC) DeleteNetworkInterface(now time.Time, id string) error {
	v.begin(now)
	defer v.end()
	e, err := v.eni(id)
	if err != nil {
		return err
	}
	if e.Attachment != nil {
		return refuse(CodeParameterValue, "Network interface '%s' is currently in use.", id)
	}
	v.remove(e)
	return nil
}

func (v *VPC) remove(e *ENI) {
	sub := v.subnets[e.SubnetID]
	for _, a := range e.Addresses() {
		sub.release(a, v.now, v.opts.ReuseDelay)
	}
	delete(v.enis, e.ID)
	delete(v.macs, e.MAC)
	if e.Public.IsValid() {
		delete(v.publics, e.Public)
	}
	v.emit(Event{Kind: ENIDeleted, ENI: e.ID, Addr: e.Primary})
}

// put stores a changed ENI. It must be a copy (edit) of the one stored before: views share the stored ones.
func (v *VPC) put(e *ENI) {
	v.enis[e.ID] = e
	if e.Attachment != nil {
		v.record(v.instances[e.Attachment.InstanceID])
	}
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
