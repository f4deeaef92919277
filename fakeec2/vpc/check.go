package vpc

import (
	"fmt"
	"net/netip"
	"slices"
)

// Check proves that the model's books agree with each other: each address on at most one ENI, the subnets' accounting equal
// to what ENIs and services hold, no instance over its type's limits, device indexes unique, everything reachable from both
// ends, every transition scheduled. It is for tests, after every operation. The error names the first broken law.
func (v *VPC) Check() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, law := range []func() error{v.checkHeld, v.checkSubnets, v.checkAttachments, v.checkInstances, v.checkDue} {
		if err := law(); err != nil {
			return fmt.Errorf("check model: %w", err)
		}
	}
	return nil
}

// checkHeld: every address of an ENI or service is in its subnet's book under that name; MACs and public addresses are
// unique.
func (v *VPC) checkHeld() error {
	held := map[string]int{} // subnet -> addresses
	seen := map[string]string{}
	note := func(subnetID string, addr netip.Addr, owner string) error {
		sub := v.subnets[subnetID]
		if sub == nil {
			return fmt.Errorf("%s is in unknown subnet %s", owner, subnetID)
		}
		if got := sub.owner(addr); got != owner {
			return fmt.Errorf("%s of %s is held by %q in the subnet's book", addr, owner, got)
		}
		if other, twice := seen[sub.VPCID+addr.String()]; twice {
			return fmt.Errorf("%s is held by %s and by %s", addr, other, owner)
		}
		seen[sub.VPCID+addr.String()] = owner
		held[subnetID]++
		return nil
	}
	macs := map[string]string{}
	for id, e := range v.enis {
		if id != e.ID || macs[e.MAC] != "" || v.macs[e.MAC] != id {
			return fmt.Errorf("MAC %s of %s is not its own", e.MAC, id)
		}
		macs[e.MAC] = id
		if e.Public.IsValid() && v.publics[e.Public] != id {
			return fmt.Errorf("public address %s of %s is not its own", e.Public, id)
		}
		if !slices.IsSortedFunc(e.Secondary, netip.Addr.Compare) || !slices.IsSorted(e.Groups) {
			return fmt.Errorf("lists of %s are not ascending", id)
		}
		for _, a := range e.Addresses() {
			if err := note(e.SubnetID, a, id); err != nil {
				return err
			}
		}
	}
	for name, s := range v.services {
		if err := note(s.SubnetID, s.Addr, serviceOwner(name)); err != nil {
			return err
		}
	}
	for id, sub := range v.subnets {
		if len(sub.holder) != held[id] {
			return fmt.Errorf("%s: book says %d addresses are held, ENIs and services hold %d", id, len(sub.holder), held[id])
		}
	}
	if len(v.macs) != len(macs) {
		return fmt.Errorf("%d MACs are noted for %d ENIs", len(v.macs), len(macs))
	}
	return nil
}

// checkSubnets: every offset is in exactly one of reserved, free, cooling, held.
func (v *VPC) checkSubnets() error {
	for id, s := range v.subnets {
		places := make([]int, s.size)
		for at, offset := range s.free {
			if s.where[offset] != int32(at) {
				return fmt.Errorf("%s: offset %d is free at %d but noted at %d", id, offset, at, s.where[offset])
			}
			places[offset]++
		}
		for _, c := range s.cooling {
			places[c.offset]++
		}
		for offset := range s.holder {
			places[offset]++
		}
		for offset := range s.size {
			want := 1
			if s.reserved(offset) {
				want = 0
			}
			if places[offset] != want {
				return fmt.Errorf("%s: %s is in %d places", id, s.addr(offset), places[offset])
			}
		}
	}
	return nil
}

func (v *VPC) checkAttachments() error {
	attached := 0
	for id, e := range v.enis {
		a := e.Attachment
		if a == nil {
			if e.Status != Available {
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
		case 1+len(e.Secondary) > i.Limits.IPv4:
			return fmt.Errorf("%s has %d addresses, %s allows %d", id, 1+len(e.Secondary), i.Type, i.Limits.IPv4)
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
		if len(i.enis) == 0 || v.enis[i.enis[0]].Primary != i.PrivateIP {
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
		lost := a.Status == Attaching && v.opts.AttachDelay != Never && !scheduled[fmt.Sprint(stepAttached, attachment)] ||
			a.Status == Detaching && v.opts.DetachDelay != Never && !scheduled[fmt.Sprint(stepDetached, attachment)]
		if lost {
			return fmt.Errorf("%s is %s for ever", attachment, a.Status)
		}
	}
	return nil
}
