package vpc

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// AttachNetworkInterfaceInput says where an ENI goes.
type AttachNetworkInterfaceInput struct {
	InstanceID, NetworkInterfaceID string
	Device, Card                   int
	CardUnsaid                     bool // the request named no card: EC2 then looks for the device index on every card
}

// AttachNetworkInterface begins an attachment: "attached" after one lag, and, independently, the guest's link after another.
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
	v.change(LagAttach, stepAttached, e)
	v.schedule(v.lag(LagLink, e.ID), stepLink, e.Attachment.ID)
	v.showAttached(i, e, true)
	return answer, nil
}

// change schedules the end of an attachment's transition; one that never ends is noted.
func (v *VPC) change(name string, s step, e *ENI) {
	lag := v.lag(name, e.ID)
	delete(v.stuck, e.Attachment.ID)
	if lag == Never {
		v.stuck[e.Attachment.ID] = true
	}
	v.schedule(lag, s, e.Attachment.ID)
}

func (v *VPC) checkAttach(i *instance, e *ENI, in AttachNetworkInterfaceInput) error {
	if e.Attachment != nil || e.TrunkID != "" {
		return refuse(CodeENIInUse, "Interface: [%s] in use.", e.ID)
	}
	if i.State != Running && i.State != Stopped {
		return wrongState(i)
	}
	if e.VPCID != i.VPCID || e.AZ != i.AZ {
		return refuse(CodeParameterCombination, "You may not attach a network interface to an instance if they are not in the same VPC and availability zone")
	}
	if err := v.checkPlace(i, in); err != nil {
		return err
	}
	if err := v.checkFit(i.Limits, e); err != nil {
		return err
	}
	return v.checkUsage(e.VPCID, 0)
}

// checkPlace refuses a card and device index that are not there, taken or one too many.
func (v *VPC) checkPlace(i *instance, in AttachNetworkInterfaceInput) error {
	if in.Card < 0 || in.Card >= len(i.Limits.Cards) {
		return refuse(CodeParameterValue, "invalid value for parameter networkCardIndex: %d (%s has %d network cards)", in.Card, i.Type, len(i.Limits.Cards))
	}
	if in.Device < 0 {
		return badNumber("deviceIndex", in.Device)
	}
	onCard := 0
	for _, id := range i.enis {
		other := v.enis[id].Attachment
		if other.Card == in.Card {
			onCard++
		}
		if other.Device == in.Device && (other.Card == in.Card || in.CardUnsaid) {
			return refuse(CodeParameterValue, "Instance '%s' already has an interface attached at device index '%d'.", i.ID, in.Device)
		}
	}
	if len(i.enis) >= i.Limits.ENIs || onCard >= i.Limits.Cards[in.Card] {
		return refuse(CodeAttachmentLimit, "Interface count %d exceeds the limit for %s", len(i.enis)+1, i.Type)
	}
	return nil
}

// checkFit refuses an ENI that the type cannot have.
func (v *VPC) checkFit(t InstanceType, e *ENI) error {
	switch {
	case e.InterfaceType == TrunkInterface && !t.Trunk, (e.InterfaceType == EFAInterface || e.InterfaceType == EFAOnly) && !t.EFA:
		return refuse(v.opts.Inferred.UnfitType, "The interface type '%s' is not supported on instance type %s", e.InterfaceType, t.Name)
	case len(e.Prefixes)+len(e.IPv6Prefixes) > 0 && !t.TakesPrefixes():
		return v.prefixOnXen(t)
	case e.slots4() > t.IPv4 || e.slots6() > t.IPv6:
		return tooManyAddresses()
	}
	return nil
}

// DetachNetworkInterfaceInput names an attachment. Force detaches one that is still attaching.
type DetachNetworkInterfaceInput struct {
	AttachmentID string
	Force        bool
}

// managedAttachment begins the ids of attachments that AWS services made for themselves. Source: field reports.
const managedAttachment = "ela-attach-"

// attached finds the ENI of an attachment.
func (v *VPC) attached(id string) (*ENI, error) {
	if strings.HasPrefix(id, managedAttachment) {
		return nil, refuse(CodeNotPermitted, "You are not allowed to manage 'ela-attach' attachments.")
	}
	if err := kindAttachment().check(id); err != nil {
		return nil, err
	}
	if e := v.enis[v.attachments[id]]; e != nil {
		return e, nil
	}
	return nil, kindAttachment().missing(id)
}

// DetachNetworkInterface begins a detachment: after its lag the link vanishes and the ENI is available.
func (v *VPC) DetachNetworkInterface(now time.Time, in DetachNetworkInterfaceInput) error {
	v.begin(now)
	defer v.end()
	e, err := v.attached(in.AttachmentID)
	if err != nil {
		return err
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
	v.change(LagDetach, stepDetached, e)
	v.showGone(e)
}

// join enters an attached ENI into its instance's list.
func (v *VPC) join(i *instance, e *ENI) {
	v.attachments[e.Attachment.ID] = e.ID
	at, _ := slices.BinarySearchFunc(i.enis, e.Attachment, func(id string, want *Attachment) int {
		a := v.enis[id].Attachment
		return cmp.Or(cmp.Compare(a.Card, want.Card), cmp.Compare(a.Device, want.Device))
	})
	i.enis = slices.Insert(i.enis, at, e.ID)
	v.put(e)
}

func (v *VPC) becomeAttached(attachment string) {
	e := edit(v.enis[v.attachments[attachment]])
	e.Attachment.Status = Attached
	v.put(e)
	v.emit(Event{Kind: ENIAttached, Instance: e.Attachment.InstanceID, ENI: e.ID})
}

func (v *VPC) showLink(attachment string) {
	e := v.enis[v.attachments[attachment]]
	v.setLink(e, true, false)
	if v.instances[e.Attachment.InstanceID].PredictableNames {
		v.schedule(v.lag(LagRename, e.ID), stepRenamed, attachment)
	}
}

func (v *VPC) renameLink(attachment string) {
	e := edit(v.enis[v.attachments[attachment]])
	e.Attachment.Named = true
	v.put(e)
	v.emit(Event{Kind: LinkRenamed, Instance: e.Attachment.InstanceID, ENI: e.ID})
}

// setLink shows or removes a link. One that is there when the guest boots has its name from the start.
func (v *VPC) setLink(old *ENI, there, named bool) {
	e := edit(old)
	e.Attachment.Link, e.Attachment.Named = there, named
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
	delete(v.attachments, attachment)
	delete(v.stuck, attachment)
	i.enis = slices.DeleteFunc(i.enis, func(id string) bool { return id == e.ID })
	i.depart(e.ID, v.now)
	v.put(e)
	if gone.Link {
		v.emit(Event{Kind: LinkRemoved, Instance: i.ID, ENI: e.ID})
	}
	v.emit(Event{Kind: ENIDetached, Instance: i.ID, ENI: e.ID})
	if i.State == ShuttingDown && gone.DeleteOnTermination {
		v.remove(e)
	}
}
