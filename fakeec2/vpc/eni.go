package vpc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"
)

// Limits of what may be said about an ENI. Source: EC2 API reference and service quotas.
const (
	maxDescription = 255
	maxClientToken = 64
)

// CreateNetworkInterfaceInput describes an ENI to create. Only SubnetID is required. In each family, counts and lists exclude
// each other.
type CreateNetworkInterfaceInput struct {
	SubnetID, Description string
	InterfaceType         string // "" or "interface", "trunk", "branch", "efa", "efa-only"
	ClientToken           string // equal tokens give the same ENI
	Groups                []string
	Primary               netip.Addr // drawn when zero
	Secondary             []netip.Addr
	SecondaryCount        int
	Prefixes              []netip.Prefix
	PrefixCount           int
	IPv6                  []netip.Addr
	IPv6Count             int
	IPv6Prefixes          []netip.Prefix
	IPv6PrefixCount       int
	EnablePrimaryIPv6     bool // the first IPv6 address becomes the primary one
	Tracking              ConnectionTracking
	Tags                  map[string]string
}

func (in CreateNetworkInterfaceInput) want() want {
	return want{
		Addresses: in.Secondary, Count: in.SecondaryCount, Prefixes: in.Prefixes, PrefixCount: in.PrefixCount,
		IPv6: in.IPv6, IPv6Count: in.IPv6Count, IPv6Prefixes: in.IPv6Prefixes, IPv6PrefixCount: in.IPv6PrefixCount,
	}
}

// creation is what a client token stands for: what was asked, and what was answered.
type creation struct {
	asked  string
	answer any
}

// once carries out what a client token stands for, or gives the first answer again. Tokens are kept for ever.
func once[T any](v *VPC, action, token string, asked any, do func() (T, error)) (T, error) {
	var none T
	if len(token) > maxClientToken {
		return none, refuse(CodeParameterValue, "invalid value for parameter clientToken: longer than %d characters", maxClientToken)
	}
	if token == "" {
		return do()
	}
	text := fmt.Sprintf("%+v", asked)
	key := action + " " + token
	if done, there := v.tokens[key]; there {
		if done.asked != text {
			return none, refuse(CodeIdempotentMismatch, "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		}
		return done.answer.(T), nil
	}
	answer, err := do()
	if err == nil {
		v.tokens[key] = creation{text, answer}
	}
	return answer, err
}

// CreateNetworkInterface makes an ENI with its addresses. The answer has status "pending", every later reading "available".
// The same ClientToken gives the first answer again; with other parameters it is refused.
func (v *VPC) CreateNetworkInterface(now time.Time, in CreateNetworkInterfaceInput) (ENI, error) {
	v.begin(now)
	defer v.end()
	answer, err := once(v, "CreateNetworkInterface", in.ClientToken, in, func() (*ENI, error) {
		e, err := v.makeENI(in, "")
		if err != nil {
			return nil, err
		}
		v.put(e)
		if lag := v.lag(LagCreate, e.ID); lag > 0 {
			v.hidden[e.ID] = after(v.now, lag)
		}
		pending := edit(e)
		pending.Status = Pending
		return pending, nil
	})
	if err != nil {
		return ENI{}, err
	}
	return answer.clone(), nil
}

// makeENI checks, takes the addresses and gives an ENI that the caller puts; nothing has happened on error.
func (v *VPC) makeENI(in CreateNetworkInterfaceInput, mac string) (*ENI, error) {
	sub, err := v.subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	kind, err := checkInterfaceType(in)
	if err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(in.Description) > maxDescription {
		return nil, refuse(CodeParameterValue, "invalid value for parameter description: longer than %d characters", maxDescription)
	}
	if err := in.Tracking.check(); err != nil {
		return nil, err
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
	w, err := v.checkNewENI(sub, in, kind)
	if err != nil {
		return nil, err
	}
	e := &ENI{
		ID: v.newID(kindENI()), MAC: mac, VPCID: sub.VPCID, SubnetID: sub.ID, AZ: sub.AZ,
		Description: in.Description, Status: Available, InterfaceType: kind, SourceDestCheck: true,
		Groups: groups, Tags: maps.Clone(in.Tags), Tracking: in.Tracking, CreatedAt: v.now,
	}
	got, refusal := v.claim(sub, w, e.ID)
	if refusal != nil {
		return nil, refusal
	}
	if e.MAC == "" {
		e.MAC = v.newMAC()
	}
	v.macs[e.MAC] = e.ID
	e.settle(in, got)
	v.emit(Event{Kind: ENICreated, ENI: e.ID, Addr: e.Primary})
	v.tell(AddressAssigned, PrefixAssigned, e, want{Addresses: e.Secondary, Prefixes: e.Prefixes, IPv6: e.IPv6, IPv6Prefixes: e.IPv6Prefixes})
	return e, nil
}

func checkInterfaceType(in CreateNetworkInterfaceInput) (string, error) {
	switch in.InterfaceType {
	case "":
		return PlainInterface, nil
	case PlainInterface, TrunkInterface, BranchInterface, EFAInterface:
		return in.InterfaceType, nil
	case EFAOnly:
		if w := in.want(); in.Primary.IsValid() || w.slots4()+w.slots6() > 0 {
			return "", refuse(CodeParameterCombination, "An interface of type '%s' has no IP addresses", EFAOnly)
		}
		return EFAOnly, nil
	}
	return "", refuse(CodeParameterValue, "Value (%s) for parameter interfaceType is invalid.", clip(in.InterfaceType))
}

// checkNewENI refuses what cannot be had, and gives the want with the primary address in it.
func (v *VPC) checkNewENI(sub *subnet, in CreateNetworkInterfaceInput, kind string) (want, error) {
	w := in.want()
	if err := w.checkForm(false); err != nil {
		return w, err
	}
	switch {
	case kind == EFAOnly:
	case sub.Native() && (w.slots4() > 0 || in.Primary.IsValid()):
		return w, refuse(CodeParameterValue, "The subnet '%s' is IPv6-only", sub.ID)
	case sub.Native() && w.slots6() == 0, sub.AssignIPv6 && w.slots6() == 0:
		w.IPv6Count = 1
	}
	switch {
	case in.Primary.IsValid():
		w.Addresses = append(slices.Clone(w.Addresses), in.Primary)
	case kind != EFAOnly && !sub.Native():
		w.Count++
	}
	if in.EnablePrimaryIPv6 && len(w.IPv6)+w.IPv6Count == 0 {
		return w, refuse(CodeParameterCombination, "A primary IPv6 address needs an IPv6 address")
	}
	if (w.slots4() > MaxIPv4PerENI || w.slots6() > MaxIPv4PerENI) && !v.opts.Inferred.LateAddressLimit {
		return w, tooManyAddresses()
	}
	if err := w.checkLists(sub); err != nil {
		return w, err
	}
	return w, nil
}

// settle gives a new ENI what was claimed for it: one address is the primary one.
func (e *ENI) settle(in CreateNetworkInterfaceInput, got want) {
	e.Primary = in.Primary
	if !e.Primary.IsValid() && len(got.Addresses) > 0 {
		e.Primary = got.drawnPrimary(in.Secondary)
	}
	e.Secondary = without(got.Addresses, []netip.Addr{e.Primary})
	e.Prefixes, e.IPv6, e.IPv6Prefixes = got.Prefixes, got.IPv6, got.IPv6Prefixes
	if in.EnablePrimaryIPv6 {
		e.PrimaryIPv6 = e.IPv6[0]
		if len(in.IPv6) > 0 {
			e.PrimaryIPv6 = in.IPv6[0]
		}
	}
}

// drawnPrimary is the first of the drawn addresses, which are in order of their size; any of them would do.
func (w want) drawnPrimary(explicit []netip.Addr) netip.Addr {
	return without(w.Addresses, explicit)[0]
}

func (t ConnectionTracking) check() error {
	for _, x := range []struct {
		name            string
		value, min, max int
	}{
		{"tcpEstablishedTimeout", t.TCPEstablished, 60, 432_000}, {"udpStreamTimeout", t.UDPStream, 60, 180}, {"udpTimeout", t.UDP, 30, 60},
	} { // Source: EC2 API reference, ConnectionTrackingSpecificationRequest
		if x.value != 0 && (x.value < x.min || x.value > x.max) {
			return refuse(CodeParameterValue, "Value (%d) for parameter %s is invalid. Expecting a value between %d and %d.", x.value, x.name, x.min, x.max)
		}
	}
	return nil
}

// groupSet gives the ids ascending, or the VPC's default group for none.
func (v *VPC) groupSet(ids []string, n *Network) ([]string, error) {
	if len(ids) == 0 {
		return []string{n.DefaultGroup}, nil
	}
	if len(ids) > v.opts.GroupsPerENI {
		return nil, refuse(CodeGroupsPerInterface, "You have exceeded the maximum number of security groups allowed per network interface: %d", v.opts.GroupsPerENI)
	}
	for _, id := range ids {
		g, err := v.group(id)
		if err != nil {
			return nil, err
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

// DeleteNetworkInterface deletes an ENI that is not attached (nor attaching or detaching), no branch of a trunk and no trunk with
// branches, and frees its addresses.
func (v *VPC) DeleteNetworkInterface(now time.Time, id string) error {
	v.begin(now)
	defer v.end()
	e, err := v.eni(id)
	if err != nil {
		return err
	}
	if e.Attachment != nil || e.TrunkID != "" || v.branchCount(id) > 0 {
		return refuse(CodeParameterValue, "Network interface '%s' is currently in use.", id)
	}
	v.remove(e)
	return nil
}

func (v *VPC) remove(e *ENI) {
	v.dissolve(e.ID)
	v.unclaim(v.subnets[e.SubnetID], e.holding())
	delete(v.enis, e.ID)
	delete(v.macs, e.MAC)
	delete(v.hidden, e.ID)
	if e.Public.IsValid() {
		delete(v.publics, e.Public)
	}
	for id, p := range v.permissions {
		if p.NetworkInterfaceID == e.ID {
			delete(v.permissions, id)
		}
	}
	v.bury(e.ID)
	v.emit(Event{Kind: ENIDeleted, ENI: e.ID, Addr: e.Primary})
}

// put stores a changed ENI. It must be a copy (edit) of the one stored before: views share the stored ones.
func (v *VPC) put(e *ENI) {
	v.enis[e.ID] = e
	v.remember(e)
}
