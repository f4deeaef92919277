package vpc

import (
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
	for _, there := range []bool{in.Attachment != nil, len(in.Groups) > 0, in.SourceDestCheck != nil, in.Description != nil} {
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
	v.emit(Event{Kind: ENIModified, ENI: e.ID, Instance: instanceOf(e), Detail: detail})
	return nil
}

func (v *VPC) modify(e *ENI, in ModifyNetworkInterfaceAttributeInput) (string, error) {
	switch {
	case in.Attachment != nil:
		if err := kindAttachment().check(in.Attachment.AttachmentID); err != nil {
			return "", err
		}
		if e.Attachment == nil || e.Attachment.ID != in.Attachment.AttachmentID {
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
	}
	if utf8.RuneCountInString(*in.Description) > maxDescription {
		return "", refuse(CodeParameterValue, "invalid value for parameter description: longer than %d characters", maxDescription)
	}
	e.Description = *in.Description
	return "description", nil
}

func instanceOf(e *ENI) string {
	if e.Attachment == nil {
		return ""
	}
	return e.Attachment.InstanceID
}
