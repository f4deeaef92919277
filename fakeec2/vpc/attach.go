package vpc

import (
	"cmp"
	"slices"
	"time"
)

// AttachNetworkInterfaceInput says where an ENI goes.
type AttachNetworkInterfaceInput struct {
	InstanceID, NetworkInterfaceID string
	Device, Card                   int
}

// AttachNetworkInterface begins an attachment: "attached" after AttachDelay, and, independently, the guest's link after
// LinkDelay.
func (v *VPC) AttachNetworkInterface(now time.Time, in AttachNetworkInterfaceInput) (Attachment, error) {
	v.begin(now)
	defer v.end()
	i, err := v.instance(in.InstanceID)
	if err != nil {
		return Attachment{}, err
	}
	old, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return Attachment{}, err
	}
	if err := v.checkAttach(i, old, in); err != nil {
		return Attachment{}, err
	}
	e := edit(old)
	e.Status = InUse
	e.Attachment = &Attachment{
		ID: v.newID(kindAttachment()), InstanceID: i.ID, Device: in.Device, Card: in.Card, Status: Attaching, AttachTime: v.now,
	}
	answer := *e.Attachment
	v.join(i, e)
	v.emit(Event{Kind: ENIAttaching, Instance: i.ID, ENI: e.ID})
	v.schedule(v.opts.AttachDelay, stepAttached, e.Attachment.ID)
	v.schedule(v.opts.LinkDelay, stepLink, e.Attachment.ID)
	return answer, nil
}

func (v *VPC) checkAttach(i *instance, e *ENI, in AttachNetworkInterfaceInput) error {
	if e.Attachment != nil {
		return refuse(CodeENIInUse, "Interface: [%s] in use.", e.ID)
	}
	if i.State != Running && i.State != Stopped {
		return wrongState(i)
	}
	if e.VPCID != i.VPCID || e.AZ != i.AZ {
		return refuse(CodeParameterCombination, "You may not attach a network interface to an instance if they are not in the same VPC and availability zone")
	}
	if in.Card < 0 || in.Card >= len(i.Limits.Cards) {
		return refuse(CodeParameterValue, "invalid value for parameter networkCardIndex: %d (%s has %d network cards)", in.Card, i.Type, len(i.Limits.Cards))
	}
	if in.Device < 0 {
		return refuse(CodeParameterValue, "invalid value for parameter deviceIndex: %d", in.Device)
	}
	onCard := 0
	for _, id := range i.enis {
		other := v.enis[id].Attachment
		if other.Card != in.Card {
			continue
		}
		onCard++
		if other.Device == in.Device {
			return refuse(CodeParameterValue, "Instance '%s' already has an interface attached at device index '%d'.", i.ID, in.Device)
		}
	}
	if len(i.enis) >= i.Limits.ENIs || onCard >= i.Limits.Cards[in.Card] {
		return refuse(CodeAttachmentLimit, "Interface count %d exceeds the limit for %s", len(i.enis)+1, i.Type)
	}
	if 1+len(e.Secondary) > i.Limits.IPv4 {
		return tooManyAddresses()
	}
	return nil
}

// DetachNetworkInterfaceInput names an attachment. Force detaches one that is still attaching.
type DetachNetworkInterfaceInput struct {
	AttachmentID string
	Force        bool
}

// DetachNetworkInterface begins a detachment: after DetachDelay the link vanishes and the ENI is available.
func (v *VPC) DetachNetworkInterface(now time.Time, in DetachNetworkInterfaceInput) error {
	v.begin(now)
	defer v.end()
	if err := kindAttachment().check(in.AttachmentID); err != nil {
		return err
	}
	e := v.enis[v.attachments[in.AttachmentID]]
	if e == nil {
		return kindAttachment().missing(in.AttachmentID)
	}
	a := e.Attachment
	switch {
	case a.Device == 0 && a.Card == 0:
		return refuse(CodeNotPermitted, "The network interface at device index 0 and networkCard index 0 cannot be detached.")
	case a.Status == Detaching, a.Status == Attaching && !in.Force:
		return refuse(CodeIncorrectState, "The attachment '%s' is currently '%s'.", a.ID, a.Status)
	}
	v.startDetach(e)
	return nil
}

func (v *VPC) startDetach(old *ENI) {
	e := edit(old)
	e.Attachment.Status = Detaching
	v.put(e)
	v.emit(Event{Kind: ENIDetaching, Instance: e.Attachment.InstanceID, ENI: e.ID})
	v.schedule(v.opts.DetachDelay, stepDetached, e.Attachment.ID)
}

// join enters an attached ENI into its instance's list.
func (v *VPC) join(i *instance, e *ENI) {
	v.attachments[e.Attachment.ID] = e.ID
	v.enis[e.ID] = e
	at, _ := slices.BinarySearchFunc(i.enis, e.Attachment, func(id string, want *Attachment) int {
		a := v.enis[id].Attachment
		return cmp.Or(cmp.Compare(a.Card, want.Card), cmp.Compare(a.Device, want.Device))
	})
	i.enis = slices.Insert(i.enis, at, e.ID)
	v.record(i)
}

func (v *VPC) becomeAttached(attachment string) {
	e := edit(v.enis[v.attachments[attachment]])
	e.Attachment.Status = Attached
	v.put(e)
	v.emit(Event{Kind: ENIAttached, Instance: e.Attachment.InstanceID, ENI: e.ID})
}

func (v *VPC) showLink(attachment string) { v.setLink(v.enis[v.attachments[attachment]], true) }

func (v *VPC) setLink(old *ENI, there bool) {
	e := edit(old)
	e.Attachment.Link = there
	v.put(e)
	kind := LinkRemoved
	if there {
		kind = LinkAdded
	}
	v.emit(Event{Kind: kind, Instance: e.Attachment.InstanceID, ENI: e.ID})
}

// becomeDetached frees the ENI, and deletes it where its instance is going and the attachment says so.
func (v *VPC) becomeDetached(attachment string) {
	e := edit(v.enis[v.attachments[attachment]])
	gone := *e.Attachment
	i := v.instances[gone.InstanceID]
	e.Attachment = nil
	e.Status = Available
	v.enis[e.ID] = e
	delete(v.attachments, attachment)
	i.enis = slices.DeleteFunc(i.enis, func(id string) bool { return id == e.ID })
	v.record(i)
	if gone.Link {
		v.emit(Event{Kind: LinkRemoved, Instance: i.ID, ENI: e.ID})
	}
	v.emit(Event{Kind: ENIDetached, Instance: i.ID, ENI: e.ID})
	if i.State == ShuttingDown && gone.DeleteOnTermination {
		v.remove(e)
	}
}

// record notes what the instance's metadata will show after the lag, and drops what it can never show again.
func (v *VPC) record(i *instance) {
	now := view{at: v.now, enis: make([]*ENI, len(i.enis))}
	for n, id := range i.enis {
		now.enis[n] = v.enis[id]
	}
	if last := len(i.views) - 1; last >= 0 && i.views[last].at.Equal(v.now) {
		i.views[last] = now
	} else {
		i.views = append(i.views, now)
	}
	seen := v.shown(i)
	i.views = i.views[seen:]
}

// shown is the index of the view that the metadata show at the model's time.
func (v *VPC) shown(i *instance) int {
	n := 0
	if v.opts.IMDSLag == Never {
		return 0
	}
	for n+1 < len(i.views) && !i.views[n+1].at.Add(v.opts.IMDSLag).After(v.now) {
		n++
	}
	return n
}
