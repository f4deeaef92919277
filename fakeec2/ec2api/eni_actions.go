package ec2api

import "github.com/vpc-cni/vpc-cni/fakeec2/vpc"

type attachInput struct {
	dryRun
	InstanceID         string `query:"InstanceId,required"`
	NetworkInterfaceID string `query:"NetworkInterfaceId,required"`
	DeviceIndex        int    `query:"DeviceIndex,required"`
	NetworkCardIndex   *int   `query:"NetworkCardIndex"`
}

type attachOutput struct {
	head
	AttachmentID     string `xml:"attachmentId"`
	NetworkCardIndex int    `xml:"networkCardIndex"`
}

func attachNetworkInterface(c *call, in attachInput) (response, error) {
	attach := vpc.AttachNetworkInterfaceInput{
		InstanceID: in.InstanceID, NetworkInterfaceID: in.NetworkInterfaceID, Device: in.DeviceIndex, CardUnsaid: in.NetworkCardIndex == nil,
	}
	if in.NetworkCardIndex != nil {
		attach.Card = *in.NetworkCardIndex
	}
	a, err := c.vpc.AttachNetworkInterface(c.now(), attach)
	return &attachOutput{AttachmentID: a.ID, NetworkCardIndex: a.Card}, err
}

type detachInput struct {
	dryRun
	AttachmentID string `query:"AttachmentId,required"`
	Force        bool   `query:"Force"`
}

func detachNetworkInterface(c *call, in detachInput) (response, error) {
	err := c.vpc.DetachNetworkInterface(c.now(), vpc.DetachNetworkInterfaceInput{AttachmentID: in.AttachmentID, Force: in.Force})
	return &done{Return: true}, err
}

type deleteInput struct {
	dryRun
	NetworkInterfaceID string `query:"NetworkInterfaceId,required"`
}

func deleteNetworkInterface(c *call, in deleteInput) (response, error) {
	return &done{Return: true}, c.vpc.DeleteNetworkInterface(c.now(), in.NetworkInterfaceID)
}

type modifyInput struct {
	dryRun
	NetworkInterfaceID string         `query:"NetworkInterfaceId,required"`
	Attachment         *flagInput     `query:"Attachment"`
	SecurityGroupID    []string       `query:"SecurityGroupId"`
	SourceDestCheck    *boolAttribute `query:"SourceDestCheck"`
	Description        *textAttribute `query:"Description"`
	EnablePrimaryIPv6  *bool          `query:"EnablePrimaryIpv6"`
	Tracking           *trackingInput `query:"ConnectionTrackingSpecification"`
}

type flagInput struct {
	AttachmentID        string `query:"AttachmentId,required"`
	DeleteOnTermination bool   `query:"DeleteOnTermination,required"`
}

type boolAttribute struct {
	Value bool `query:"Value,required"`
}

type textAttribute struct {
	Value *string `query:"Value,required"` // a pointer: the empty description is a description
}

func modifyNetworkInterfaceAttribute(c *call, in modifyInput) (response, error) {
	modify := vpc.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceID: in.NetworkInterfaceID, Groups: in.SecurityGroupID, EnablePrimaryIPv6: in.EnablePrimaryIPv6,
	}
	if in.Tracking != nil {
		modify.Tracking = &vpc.ConnectionTracking{TCPEstablished: in.Tracking.TCPEstablished, UDPStream: in.Tracking.UDPStream, UDP: in.Tracking.UDP}
	}
	if in.Attachment != nil {
		modify.Attachment = &vpc.AttachmentChange{AttachmentID: in.Attachment.AttachmentID, DeleteOnTermination: in.Attachment.DeleteOnTermination}
	}
	if in.SourceDestCheck != nil {
		modify.SourceDestCheck = &in.SourceDestCheck.Value
	}
	if in.Description != nil {
		modify.Description = in.Description.Value
	}
	return &done{Return: true}, c.vpc.ModifyNetworkInterfaceAttribute(c.now(), modify)
}
