package vpc

import (
	"fmt"
	"slices"
)

// Check proves that the model's books agree with each other: each address on at most one ENI, the subnets' accounting equal
// to what ENIs and services hold, no instance over its type's limits, device indexes unique, everything reachable from both
// ends, every transition scheduled, the views' last words equal to what is true. It is for tests, after every operation. The error names the first broken law.
func (v *VPC) Check() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, law := range []func() error{v.checkHeld, v.checkSubnets, v.checkAttachments, v.checkInstances, v.checkTrunks, v.checkViews, v.checkDue} {
		if err := law(); err != nil {
			return fmt.Errorf("check model: %w", err)
		}
	}
	return nil
}

func (v *VPC) checkAttachments() error {
	attached := 0
	for id, e := range v.enis {
		a := e.Attachment
		if a == nil {
			if e.Status != Available && e.TrunkID == "" {
				return fmt.Errorf("%s is %s without an attachment", id, e.Status)
			}
			continue
		}
		attached++
		i := v.instances[a.InstanceID]
		switch {
		case e.Status != InUse:
			return fmt.Errorf("%s is %s with an attachment", id, e.Status)
		case v.attachments[a.ID] != id:
			return fmt.Errorf("%s of %s is noted for %q", a.ID, id, v.attachments[a.ID])
		case i == nil:
			return fmt.Errorf("%s is attached to unknown %s", id, a.InstanceID)
		case !slices.Contains(i.enis, id):
			return fmt.Errorf("%s is not in the list of %s", id, i.ID)
		case e.VPCID != i.VPCID || e.AZ != i.AZ:
			return fmt.Errorf("%s and %s are apart", id, i.ID)
		case e.slots4() > i.Limits.IPv4 || e.slots6() > i.Limits.IPv6:
			return fmt.Errorf("%s has %d IPv4 and %d IPv6 addresses and prefixes, %s allows %d and %d", id, e.slots4(), e.slots6(), i.Type, i.Limits.IPv4, i.Limits.IPv6)
		case len(e.Prefixes)+len(e.IPv6Prefixes) > 0 && !i.Limits.TakesPrefixes():
			return fmt.Errorf("%s has prefixes, %s takes none", id, i.Type)
		case a.Link && i.State != Running && i.State != ShuttingDown:
			return fmt.Errorf("%s has a link in %s instance %s", id, i.State, i.ID)
		}
	}
	if attached != len(v.attachments) {
		return fmt.Errorf("%d attachments are noted, %d exist", len(v.attachments), attached)
	}
	return nil
}

func (v *VPC) checkInstances() error {
	for id, i := range v.instances {
		if i.State == Terminated {
			if len(i.enis) > 0 {
				return fmt.Errorf("terminated %s has ENIs", id)
			}
			continue
		}
		perCard := map[int]int{}
		last := Attachment{Device: -1}
		for _, eni := range i.enis {
			e := v.enis[eni]
			if e == nil || e.Attachment == nil || e.Attachment.InstanceID != id {
				return fmt.Errorf("%s lists %s, which is not attached to it", id, eni)
			}
			a := *e.Attachment
			if a.Card < last.Card || a.Card == last.Card && a.Device <= last.Device {
				return fmt.Errorf("%s: card %d device %d is taken twice or out of order", id, a.Card, a.Device)
			}
			last = a
			perCard[a.Card]++
			if perCard[a.Card] > i.Limits.Cards[a.Card] {
				return fmt.Errorf("%s has more ENIs on card %d than %s allows", id, a.Card, i.Type)
			}
		}
		if i.State != ShuttingDown && (len(i.enis) == 0 || v.enis[i.enis[0]].Primary != i.PrivateIP) {
			return fmt.Errorf("%s has lost its primary ENI", id)
		}
		if len(i.enis) > i.Limits.ENIs {
			return fmt.Errorf("%s has %d ENIs, %s allows %d", id, len(i.enis), i.Type, i.Limits.ENIs)
		}
	}
	return nil
}

// checkDue: every transition that has begun will end, unless its delay was Never; nothing due is left undone.
func (v *VPC) checkDue() error {
	scheduled := map[string]bool{}
	for _, t := range v.due {
		scheduled[fmt.Sprint(t.step, t.id)] = true
		if t.at.Before(v.now) && v.pending(t) {
			return fmt.Errorf("step %d of %s was due at %s and is undone", t.step, t.id, t.at)
		}
	}
	for attachment, id := range v.attachments {
		a := v.enis[id].Attachment
		lost := !v.stuck[attachment] && (a.Status == Attaching && !scheduled[fmt.Sprint(stepAttached, attachment)] ||
			a.Status == Detaching && !scheduled[fmt.Sprint(stepDetached, attachment)])
		if lost {
			return fmt.Errorf("%s is %s for ever", attachment, a.Status)
		}
	}
	return nil
}
