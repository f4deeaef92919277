package vpc

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// forgetAfter is how long a terminated instance stays described. Source: EC2 user guide, "about an hour".
const forgetAfter = time.Hour

// MaxHopLimit is the most that an instance's metadata answers may be allowed to travel. Source: EC2 API reference,
// HttpPutResponseHopLimit ("Possible values: Integers from 1 to 64").
const MaxHopLimit = 64

// maxLaunch bounds one RunInstances; EC2's own bound is the account's quota of vCPUs.
const maxLaunch = 1000

// LaunchInput describes an instance to launch. Only Type and SubnetID are required.
type LaunchInput struct {
	ID, Name, Type, SubnetID string
	ImageID, Role, Namespace string
	PrivateIP                netip.Addr // drawn when zero
	MAC                      string     // of the primary ENI; drawn when empty, given for an adopted namespace
	Public                   netip.Addr // associated with the primary address; zero for none
	AssignPublic             bool       // draw Public
	Groups                   []string   // default: the VPC's default group
	HopLimit                 int        // 1 to MaxHopLimit; 0 is the default, 1
	TokensRequired           bool
	MetadataOff              bool
	MetadataIPv6             bool
	MetadataTags             bool
	PredictableNames         bool
	IPv6                     []netip.Addr
	IPv6Count                int
	Interfaces               []LaunchInterface // in place of SubnetID, PrivateIP, Groups and IPv6; one has device 0 and card 0
	Tags                     map[string]string
	ENITags                  map[string]string // of the ENIs that the launch makes
}

// LaunchInterface is an ENI that a launch makes or takes.
type LaunchInterface struct {
	Device, Card       int
	NetworkInterfaceID string // an ENI that is there; then Create must be zero
	Create             CreateNetworkInterfaceInput
	KeepOnTermination  bool // an ENI that is there is always kept
}

// interfaces are what the launch makes or takes, the primary one first.
func (in LaunchInput) interfaces() ([]LaunchInterface, error) {
	if len(in.Interfaces) == 0 {
		return []LaunchInterface{{Create: CreateNetworkInterfaceInput{
			SubnetID: in.SubnetID, Groups: in.Groups, Primary: in.PrivateIP, IPv6: in.IPv6, IPv6Count: in.IPv6Count, Tags: in.ENITags,
		}}}, nil
	}
	if in.SubnetID != "" || in.PrivateIP.IsValid() || len(in.Groups)+len(in.IPv6)+in.IPv6Count > 0 {
		return nil, refuse(CodeParameterCombination, "Network interfaces and an instance-level subnet ID, address or security group may not be specified on the same request")
	}
	list := slices.Clone(in.Interfaces)
	slices.SortFunc(list, func(a, b LaunchInterface) int {
		return (&Attachment{Card: a.Card, Device: a.Device}).compare(&Attachment{Card: b.Card, Device: b.Device})
	})
	if list[0].Device != 0 || list[0].Card != 0 {
		return nil, refuse(CodeParameterValue, "The launch has no network interface at device index 0")
	}
	for n := range list {
		list[n].Create.Tags = in.ENITags
	}
	return list, nil
}

// Launch starts an instance: it is running at once, its ENIs attached with their links.
func (v *VPC) Launch(now time.Time, in LaunchInput) (Instance, error) {
	v.begin(now)
	defer v.end()
	i, err := v.launch(in, "", Running)
	if err != nil {
		return Instance{}, err
	}
	return i.clone(), nil
}

// RunInput describes instances to run.
type RunInput struct {
	LaunchInput
	Min, Max    int // Max are started, or as many as there is room for, but at least Min
	ClientToken string
}

// RunInstances starts instances that are pending first. The same ClientToken gives the first answer again.
func (v *VPC) RunInstances(now time.Time, in RunInput) ([]Instance, error) {
	v.begin(now)
	defer v.end()
	return once(v, "RunInstances", in.ClientToken, in, func() ([]Instance, error) {
		if in.Min < 1 || in.Max < in.Min || in.Max > maxLaunch {
			return nil, refuse(CodeParameterValue, "Invalid value '%d' for maxCount: at least minCount (1 or more), at most %d", in.Max, maxLaunch)
		}
		if in.Max > 1 && (in.PrivateIP.IsValid() || len(in.IPv6) > 0 || slices.ContainsFunc(in.Interfaces, LaunchInterface.single)) {
			return nil, refuse(CodeParameterCombination, "An address or network interface can be given to one instance only")
		}
		reservation := drawID(v.minor, "r-")
		var out []Instance
		for range in.Max {
			i, err := v.launch(in.LaunchInput, reservation, Pending)
			if err != nil && len(out) < in.Min {
				for _, started := range out {
					v.undoLaunch(started.ID)
				}
				return nil, err
			}
			if err != nil {
				break
			}
			out = append(out, i.clone())
		}
		return out, nil
	})
}

// single tells whether an interface can be given to one instance only.
func (l LaunchInterface) single() bool {
	return l.NetworkInterfaceID != "" || l.Create.Primary.IsValid() || len(l.Create.Secondary)+len(l.Create.IPv6)+len(l.Create.Prefixes)+len(l.Create.IPv6Prefixes) > 0
}

// launch makes an instance with its ENIs, or leaves nothing.
func (v *VPC) launch(in LaunchInput, reservation, state string) (*instance, error) {
	t, known := v.types[in.Type]
	if !known {
		return nil, refuse(CodeParameterValue, "Invalid value '%s' for InstanceType.", clip(in.Type))
	}
	id, err := v.chosenID(kindInstance(), in.ID)
	if err != nil {
		return nil, err
	}
	if v.instances[id] != nil {
		return nil, refuse(CodeParameterValue, "The instance ID '%s' exists already", id)
	}
	if err := v.checkLaunch(in); err != nil {
		return nil, err
	}
	list, err := in.interfaces()
	if err != nil {
		return nil, err
	}
	i := &instance{Instance: Instance{
		ID: id, Type: in.Type, ImageID: in.ImageID, State: state, Role: in.Role, Namespace: in.Namespace, Name: in.Name,
		ReservationID: reservation, LaunchTime: v.now, HopLimit: max(1, in.HopLimit), TokensRequired: in.TokensRequired, MetadataOff: in.MetadataOff,
		MetadataIPv6: in.MetadataIPv6, MetadataTags: in.MetadataTags, PredictableNames: in.PredictableNames, Limits: t.clone(), Tags: maps.Clone(in.Tags),
	}}
	if reservation == "" {
		i.ReservationID = "r-" + id[len(kindInstance().prefix):]
	}
	enis, err := v.launchENIs(i, list, in.MAC)
	if err != nil {
		return nil, err
	}
	primary := enis[0]
	if in.AssignPublic && !in.Public.IsValid() {
		in.Public = v.drawPublic()
	}
	if in.Public.IsValid() {
		primary.Public = in.Public
		v.publics[in.Public] = primary.ID
	}
	i.VPCID, i.SubnetID, i.AZ, i.PrivateIP = primary.VPCID, primary.SubnetID, primary.AZ, primary.Primary
	v.instances[id] = i
	if state == Running {
		v.emit(Event{Kind: InstanceLaunched, Instance: id, ENI: primary.ID, Addr: primary.Primary})
	} else {
		v.emit(Event{Kind: InstancePending, Instance: id, ENI: primary.ID, Addr: primary.Primary})
		v.schedule(v.lag(LagLaunch, id), stepRunning, id)
	}
	for n, e := range enis {
		v.plug(i, e, list[n])
	}
	return i, nil
}

// drawPublic draws an unused public address, from the range that is kept for benchmarks: nobody's outside host is there.
func (v *VPC) drawPublic() netip.Addr {
	for {
		n := v.minor.Uint32()
		a := netip.AddrFrom4([4]byte{198, 18 + byte(n>>16)&1, byte(n >> 8), byte(n)})
		if _, taken := v.publics[a]; !taken {
			return a
		}
	}
}

// launchENIs makes or finds the ENIs of a launch, or leaves nothing.
func (v *VPC) launchENIs(i *instance, list []LaunchInterface, mac string) ([]*ENI, error) {
	var enis, made []*ENI
	fail := func(err error) ([]*ENI, error) {
		for _, e := range made {
			v.put(e)
			v.remove(e)
		}
		return nil, err
	}
	for n, l := range list {
		if n > 0 {
			mac = ""
		}
		e, err := v.launchENI(l, mac)
		if err != nil {
			return fail(err)
		}
		if l.NetworkInterfaceID == "" {
			made = append(made, e)
		}
		switch { // places are checked here, on a list that is not attached yet
		case n > 0 && (list[n-1].Card == l.Card && list[n-1].Device == l.Device):
			return fail(refuse(CodeParameterValue, "Instance '%s' already has an interface attached at device index '%d'.", i.ID, l.Device))
		case n >= i.Limits.ENIs:
			return fail(refuse(CodeAttachmentLimit, "Interface count %d exceeds the limit for %s", n+1, i.Type))
		case l.Card < 0 || l.Card >= len(i.Limits.Cards) || l.Device < 0:
			return fail(badNumber("networkCardIndex", l.Card))
		case n > 0 && (e.VPCID != enis[0].VPCID || e.AZ != enis[0].AZ):
			return fail(refuse(CodeParameterCombination, "The network interfaces of an instance must be in one VPC and availability zone"))
		}
		if err := v.checkFit(i.Limits, e); err != nil {
			return fail(err)
		}
		enis = append(enis, e)
	}
	return enis, nil
}

func (v *VPC) launchENI(l LaunchInterface, mac string) (*ENI, error) {
	if l.NetworkInterfaceID == "" {
		if sub, err := v.subnet(l.Create.SubnetID); err == nil {
			if err := v.checkUsage(sub.VPCID, l.Create.want().slots4()+l.Create.want().slots6()+1); err != nil {
				return nil, err
			}
		}
		return v.makeENI(l.Create, mac)
	}
	e, err := v.eni(l.NetworkInterfaceID)
	switch {
	case err != nil:
		return nil, err
	case e.Attachment != nil || e.TrunkID != "":
		return nil, refuse(CodeENIInUse, "Interface: [%s] in use.", e.ID)
	}
	return edit(e), nil
}

// plug attaches an ENI of a launch.
func (v *VPC) plug(i *instance, e *ENI, l LaunchInterface) {
	running := i.State == Running
	e.Attachment = &Attachment{
		ID: v.newID(kindAttachment()), InstanceID: i.ID, Device: l.Device, Card: l.Card, Status: Attached, AttachTime: v.now, Link: running, Named: running,
		DeleteOnTermination: !l.KeepOnTermination && l.NetworkInterfaceID == "",
	}
	e.Status = InUse
	v.join(i, e)
	v.emit(Event{Kind: ENIAttached, Instance: i.ID, ENI: e.ID})
	if running {
		v.emit(Event{Kind: LinkAdded, Instance: i.ID, ENI: e.ID})
	}
	v.showAttached(i, e, false)
}

// becomeRunning is the end of pending: the guest boots with all its links.
func (v *VPC) becomeRunning(id string) {
	i := v.instances[id]
	i.State = Running
	v.emit(Event{Kind: InstanceLaunched, Instance: id, ENI: i.enis[0], Addr: i.PrivateIP})
	for _, eni := range i.enis {
		v.setLink(v.enis[eni], true, true)
	}
}

// undoLaunch takes back an instance of a RunInstances that failed.
func (v *VPC) undoLaunch(id string) {
	i := v.instances[id]
	i.State = ShuttingDown
	for _, eni := range slices.Clone(i.enis) { // all of them made by the launch: given ones go with one instance only
		e := edit(v.enis[eni])
		e.Attachment.DeleteOnTermination = true
		v.put(e)
		v.becomeDetached(e.Attachment.ID)
	}
	delete(v.instances, id)
	v.emit(Event{Kind: InstanceForgotten, Instance: id})
}

func (v *VPC) checkLaunch(in LaunchInput) error {
	if err := checkTags(nil, in.Tags); err != nil {
		return err
	}
	if in.HopLimit < 0 || in.HopLimit > MaxHopLimit {
		return badHopLimit(in.HopLimit)
	}
	if _, taken := v.macs[in.MAC]; taken {
		return refuse(CodeParameterValue, "The MAC '%s' is already in use", in.MAC)
	}
	if _, taken := v.publics[in.Public]; taken && in.Public.IsValid() {
		return refuse(CodeAlreadyAssociated, "The address %s is already associated", in.Public)
	}
	return nil
}

func badHopLimit(n int) *Error {
	return refuse(CodeParameterValue, "The value '%d' for HttpPutResponseHopLimit is not valid: an integer from 1 to %d is wanted", n, MaxHopLimit)
}
