package vpc

import (
	"cmp"
	"slices"
	"time"
)

// TerminateInstance shuts an instance down. After the detach lag its ENIs with DeleteOnTermination are gone, the others
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
	v.schedule(v.lag(LagDetach, id), stepTerminated, id)
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
			v.setLink(v.enis[eni], false, false)
		}
	}
	return nil
}

// StartInstance starts a stopped instance: running at once, its links appear after their lag.
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
		v.schedule(v.lag(LagLink, eni), stepLink, v.enis[eni].Attachment.ID)
	}
	return nil
}

func wrongState(i *instance) *Error {
	return refuse(CodeIncorrectInstanceState, "The instance '%s' is not in a state from which this can be done: it is '%s'.", i.ID, i.State)
}

// MetadataOptions change how an instance's metadata answer; nil and 0 leave a setting alone.
type MetadataOptions struct {
	HopLimit                        int
	TokensRequired, Off, IPv6, Tags *bool
}

// ModifyInstanceMetadataOptions changes them at once, and gives the instance.
func (v *VPC) ModifyInstanceMetadataOptions(now time.Time, id string, o MetadataOptions) (Instance, error) {
	v.begin(now)
	defer v.end()
	i, err := v.instance(id)
	switch {
	case err != nil:
		return Instance{}, err
	case i.State == ShuttingDown || i.State == Terminated:
		return Instance{}, wrongState(i)
	case o.HopLimit < 0 || o.HopLimit > MaxHopLimit:
		return Instance{}, badHopLimit(o.HopLimit)
	}
	i.HopLimit = cmp.Or(o.HopLimit, i.HopLimit)
	for _, change := range []struct{ to, now *bool }{
		{&i.TokensRequired, o.TokensRequired}, {&i.MetadataOff, o.Off}, {&i.MetadataIPv6, o.IPv6}, {&i.MetadataTags, o.Tags},
	} {
		if change.now != nil {
			*change.to = *change.now
		}
	}
	v.emit(Event{Kind: InstanceModified, Instance: id, Detail: "metadataOptions"})
	return i.clone(), nil
}

// Announce sets what the instance's metadata announce (spot interruption, rebalance recommendation); the zero Notices take it
// back. Nothing happens by itself when the time comes.
func (v *VPC) Announce(now time.Time, id string, n Notices) error {
	v.begin(now)
	defer v.end()
	i, err := v.instance(id)
	if err != nil {
		return err
	}
	i.Notices = n
	v.emit(Event{Kind: InstanceModified, Instance: id, Detail: "notices"})
	return nil
}
