package vpc

import (
	"net/netip"
	"time"
	"unicode/utf8"
)

// ModifyNetworkInterfaceAttributeInput changes exactly one attribute: the other fields are nil.
type ModifyNetworkInterfaceAttributeInput struct {
	NetworkInterfaceID string
	Attachment         *AttachmentChange
	Groups             []string // replaces the whole set
	SourceDestCheck    *bool
	Description        *string
	EnablePrimaryIPv6  *bool // only true: EC2 has no way back
	Tracking           *ConnectionTracking
}

// AttachmentChange sets the flag of an attachment.
type AttachmentChange struct {
	AttachmentID        string
	DeleteOnTermination bool
}

// ModifyNetworkInterfaceAttribute changes one attribute of an ENI.
func (v *VPC) ModifyNetworkInterfaceAttribute(now time.Time, in ModifyNetworkInterfaceAttributeInput) error {
	v.begin(now)
	defer v.end()
	old, err := v.eni(in.NetworkInterfaceID)
	if err != nil {
		return err
	}
	given := 0
	for _, there := range []bool{
		in.Attachment != nil, len(in.Groups) > 0, in.SourceDestCheck != nil, in.Description != nil, in.EnablePrimaryIPv6 != nil, in.Tracking != nil,
	} {
		if there {
			given++
		}
	}
	switch {
	case given == 0:
		return refuse(CodeMissingParameter, "The request must contain one attribute to modify")
	case given > 1:
		return refuse(CodeParameterCombination, "Only one attribute can be modified at a time")
	}
	e := edit(old)
	detail, err := v.modify(e, in)
	if err != nil {
		return err
	}
	v.put(e)
	if detail == "groupSet" {
		v.showGroups(e)
	}
	v.emit(Event{Kind: ENIModified, ENI: e.ID, Instance: instanceOf(e), Detail: detail})
	return nil
}

func (v *VPC) modify(e *ENI, in ModifyNetworkInterfaceAttributeInput) (string, error) {
	switch {
	case in.Attachment != nil:
		found, err := v.attached(in.Attachment.AttachmentID)
		if err != nil {
			return "", err
		}
		if found.ID != e.ID {
			return "", kindAttachment().missing(in.Attachment.AttachmentID)
		}
		e.Attachment.DeleteOnTermination = in.Attachment.DeleteOnTermination
		return "deleteOnTermination", nil
	case in.Groups != nil:
		groups, err := v.groupSet(in.Groups, v.networks[e.VPCID])
		if err != nil {
			return "", err
		}
		e.Groups = groups
		return "groupSet", nil
	case in.SourceDestCheck != nil:
		e.SourceDestCheck = *in.SourceDestCheck
		return "sourceDestCheck", nil
	case in.EnablePrimaryIPv6 != nil:
		return "enablePrimaryIpv6", e.enablePrimaryIPv6(*in.EnablePrimaryIPv6)
	case in.Tracking != nil:
		if err := in.Tracking.check(); err != nil {
			return "", err
		}
		e.Tracking = *in.Tracking
		return "connectionTracking", nil
	}
	if utf8.RuneCountInString(*in.Description) > maxDescription {
		return "", refuse(CodeParameterValue, "invalid value for parameter description: longer than %d characters", maxDescription)
	}
	e.Description = *in.Description
	return "description", nil
}

func (e *ENI) enablePrimaryIPv6(on bool) error {
	switch {
	case !on && e.PrimaryIPv6 != netip.Addr{}:
		return refuse(CodeParameterValue, "A primary IPv6 address cannot be disabled")
	case on && len(e.IPv6) == 0:
		return refuse(CodeParameterCombination, "A primary IPv6 address needs an IPv6 address")
	case on && !e.PrimaryIPv6.IsValid():
		e.PrimaryIPv6 = e.IPv6[0]
	}
	return nil
}

func instanceOf(e *ENI) string {
	if e.Attachment == nil {
		return ""
	}
	return e.Attachment.InstanceID
}
