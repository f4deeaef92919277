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

// LaunchInput describes an instance to launch. Only Type and SubnetID are required.
type LaunchInput struct {
	ID, Name, Type, SubnetID string
	ImageID, Role, Namespace string
	PrivateIP                netip.Addr // drawn when zero
	MAC                      string     // of the primary ENI; drawn when empty, given for an adopted namespace
	Public                   netip.Addr // associated with the primary address; zero for none
	Groups                   []string   // default: the VPC's default group
	HopLimit                 int        // 1 to MaxHopLimit; 0 is the default, 1
	TokensRequired           bool
	Tags                     map[string]string
}

// Launch starts an instance: it is running at once, its primary ENI attached at device 0 with its link.
func (v *VPC) Launch(now time.Time, in LaunchInput) (Instance, error) {
	v.begin(now)
	defer v.end()
	t, known := v.types[in.Type]
	if !known {
		return Instance{}, refuse(CodeParameterValue, "Invalid value '%s' for InstanceType.", clip(in.Type))
	}
	id, err := v.chosenID(kindInstance(), in.ID)
	if err != nil {
		return Instance{}, err
	}
	if v.instances[id] != nil {
		return Instance{}, refuse(CodeParameterValue, "The instance ID '%s' exists already", id)
	}
	if err := v.checkLaunch(in); err != nil {
		return Instance{}, err
	}
	e, err := v.makeENI(CreateNetworkInterfaceInput{SubnetID: in.SubnetID, Groups: in.Groups, Primary: in.PrivateIP}, in.MAC)
	if err != nil {
		return Instance{}, err
	}
	if in.Public.IsValid() {
		e.Public = in.Public
		v.publics[in.Public] = e.ID
	}
	i := &instance{Instance: Instance{
		ID: id, Type: in.Type, VPCID: e.VPCID, SubnetID: e.SubnetID, AZ: e.AZ,
		ImageID: in.ImageID, State: Running, Role: in.Role, Namespace: in.Namespace, Name: in.Name,
		PrivateIP: e.Primary, LaunchTime: v.now, HopLimit: max(1, in.HopLimit), TokensRequired: in.TokensRequired,
		Limits: t.clone(), Tags: maps.Clone(in.Tags),
	}}
	v.instances[id] = i
	v.emit(Event{Kind: InstanceLaunched, Instance: id, ENI: e.ID, Addr: e.Primary})
	e.Attachment = &Attachment{ID: v.newID(kindAttachment()), InstanceID: id, Status: Attached, DeleteOnTermination: true, AttachTime: v.now, Link: true}
	e.Status = InUse
	v.join(i, e)
	v.emit(Event{Kind: ENIAttached, Instance: id, ENI: e.ID})
	v.emit(Event{Kind: LinkAdded, Instance: id, ENI: e.ID})
	return i.clone(), nil
}

func (v *VPC) checkLaunch(in LaunchInput) error {
	if err := checkTags(nil, in.Tags); err != nil {
		return err
	}
	if in.HopLimit < 0 || in.HopLimit > MaxHopLimit {
		return refuse(CodeParameterValue, "The value '%d' for HttpPutResponseHopLimit is not valid: an integer from 1 to %d is wanted", in.HopLimit, MaxHopLimit)
	}
	if _, taken := v.macs[in.MAC]; taken {
		return refuse(CodeParameterValue, "The MAC '%s' is already in use", in.MAC)
	}
	if _, taken := v.publics[in.Public]; taken && in.Public.IsValid() {
		return refuse("Resource.AlreadyAssociated", "The address %s is already associated", in.Public)
	}
	return nil
}

// TerminateInstance shuts an instance down. After DetachDelay its ENIs with DeleteOnTermination are gone, the others
// available; it stays described for an hour. Terminating again is no error, as in EC2.
func (v *VPC) TerminateInstance(now time.Time, id string) error {
	v.begin(now)
	defer v.end()
	i, err := v.instance(id)
	if err != nil {
		return err
	}
	if i.State == ShuttingDown || i.State == Terminated {
		return nil
	}
	i.State = ShuttingDown
	v.emit(Event{Kind: InstanceShutdown, Instance: id})
	for _, eni := range slices.Clone(i.enis) {
		if v.enis[eni].Attachment.Status != Detaching {
			v.startDetach(v.enis[eni])
		}
	}
	v.schedule(v.opts.DetachDelay, stepTerminated, id)
	return nil
}

// becomeTerminated runs after the detachments that were started with it: equal due times keep their order of making.
func (v *VPC) becomeTerminated(id string) {
	i := v.instances[id]
	for _, eni := range slices.Clone(i.enis) { // a detachment made slower or to last for ever does not outlive its instance
		v.becomeDetached(v.enis[eni].Attachment.ID)
	}
	i.State = Terminated
	i.TerminatedAt = v.now
	v.emit(Event{Kind: InstanceTerminated, Instance: id})
	v.schedule(forgetAfter, stepForgotten, id)
}

// StopInstance stops a running instance at once: the guest and its links are gone, attachments stay.
func (v *VPC) StopInstance(now time.Time, id string) error {
	v.begin(now)
	defer v.end()
	i, err := v.instance(id)
	if err != nil {
		return err
	}
	if i.State != Running {
		return wrongState(i)
	}
	i.State = Stopped
	v.emit(Event{Kind: InstanceStopped, Instance: id})
	for _, eni := range i.enis {
		if v.enis[eni].Attachment.Link {
			v.setLink(v.enis[eni], false)
		}
	}
	return nil
}

// StartInstance starts a stopped instance: running at once, its links appear after LinkDelay.
func (v *VPC) StartInstance(now time.Time, id string) error {
	v.begin(now)
	defer v.end()
	i, err := v.instance(id)
	if err != nil {
		return err
	}
	if i.State != Stopped {
		return wrongState(i)
	}
	i.State = Running
	i.LaunchTime = v.now
	v.emit(Event{Kind: InstanceStarted, Instance: id})
	for _, eni := range i.enis {
		v.schedule(v.opts.LinkDelay, stepLink, v.enis[eni].Attachment.ID)
	}
	return nil
}

func wrongState(i *instance) *Error {
	return refuse(CodeIncorrectInstanceState, "The instance '%s' is not in a state from which this can be done: it is '%s'.", i.ID, i.State)
}
