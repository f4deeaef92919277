package ec2api

import (
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type createInput struct {
	dryRun
	SubnetID           string        `query:"SubnetId,required"`
	Description        string        `query:"Description"`
	InterfaceType      string        `query:"InterfaceType"`
	ClientToken        string        `query:"ClientToken"`
	SecurityGroupID    []string      `query:"SecurityGroupId"`
	PrivateIPAddress   string        `query:"PrivateIpAddress"`
	PrivateIPAddresses []wantedIP    `query:"PrivateIpAddresses"`
	SecondaryCount     *int          `query:"SecondaryPrivateIpAddressCount"`
	TagSpecification   []tagsForType `query:"TagSpecification"`
}

type wantedIP struct {
	PrivateIPAddress string `query:"PrivateIpAddress,required"`
	Primary          bool   `query:"Primary"`
}

type tagsForType struct {
	ResourceType string     `query:"ResourceType,required"`
	Tag          []tagInput `query:"Tag"`
}

type tagInput struct {
	Key   string `query:"Key,required"`
	Value string `query:"Value"`
}

type createOutput struct {
	head
	NetworkInterface eniXML `xml:"networkInterface"`
	ClientToken      string `xml:"clientToken,omitempty"`
}

func createNetworkInterface(h *Handler, in createInput) (response, error) {
	create := vpc.CreateNetworkInterfaceInput{
		SubnetID: in.SubnetID, Description: in.Description, InterfaceType: in.InterfaceType, ClientToken: in.ClientToken,
		Groups: in.SecurityGroupID,
	}
	if err := in.addresses(&create); err != nil {
		return nil, err
	}
	for _, spec := range in.TagSpecification {
		if spec.ResourceType != "network-interface" {
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", clip(spec.ResourceType))
		}
		tags, err := tagMap(spec.Tag, create.Tags)
		if err != nil {
			return nil, err
		}
		create.Tags = tags
	}
	e, err := h.vpc.CreateNetworkInterface(h.now(), create)
	if err != nil {
		return nil, err
	}
	return &createOutput{NetworkInterface: h.painter().eni(e), ClientToken: in.ClientToken}, nil
}

// addresses reads the three ways to ask for addresses: a primary one, a list with one of them marked primary, a count.
func (in createInput) addresses(create *vpc.CreateNetworkInterfaceInput) error {
	primary := in.PrivateIPAddress
	var secondary []string
	for _, wanted := range in.PrivateIPAddresses {
		switch {
		case !wanted.Primary:
			secondary = append(secondary, wanted.PrivateIPAddress)
		case primary != "":
			return refuse("InvalidParameterCombination", "Only one primary private IP address may be specified")
		default:
			primary = wanted.PrivateIPAddress
		}
	}
	if in.SecondaryCount != nil {
		if len(secondary) > 0 {
			return combination("secondaryPrivateIpAddressCount", "privateIpAddresses")
		}
		create.SecondaryCount = *in.SecondaryCount
	}
	var err error
	if primary != "" {
		if create.Primary, err = parseAddr(primary); err != nil {
			return err
		}
	}
	create.Secondary, err = parseAddrs(secondary)
	return err
}

type attachInput struct {
	dryRun
	InstanceID         string `query:"InstanceId,required"`
	NetworkInterfaceID string `query:"NetworkInterfaceId,required"`
	DeviceIndex        int    `query:"DeviceIndex,required"`
	NetworkCardIndex   int    `query:"NetworkCardIndex"`
}

type attachOutput struct {
	head
	AttachmentID     string `xml:"attachmentId"`
	NetworkCardIndex int    `xml:"networkCardIndex"`
}

func attachNetworkInterface(h *Handler, in attachInput) (response, error) {
	a, err := h.vpc.AttachNetworkInterface(h.now(), vpc.AttachNetworkInterfaceInput{
		InstanceID: in.InstanceID, NetworkInterfaceID: in.NetworkInterfaceID, Device: in.DeviceIndex, Card: in.NetworkCardIndex,
	})
	return &attachOutput{AttachmentID: a.ID, NetworkCardIndex: a.Card}, err
}

type detachInput struct {
	dryRun
	AttachmentID string `query:"AttachmentId,required"`
	Force        bool   `query:"Force"`
}

func detachNetworkInterface(h *Handler, in detachInput) (response, error) {
	err := h.vpc.DetachNetworkInterface(h.now(), vpc.DetachNetworkInterfaceInput{AttachmentID: in.AttachmentID, Force: in.Force})
	return &done{Return: true}, err
}

type deleteInput struct {
	dryRun
	NetworkInterfaceID string `query:"NetworkInterfaceId,required"`
}

func deleteNetworkInterface(h *Handler, in deleteInput) (response, error) {
	return &done{Return: true}, h.vpc.DeleteNetworkInterface(h.now(), in.NetworkInterfaceID)
}

type modifyInput struct {
	dryRun
	NetworkInterfaceID string         `query:"NetworkInterfaceId,required"`
	Attachment         *flagInput     `query:"Attachment"`
	SecurityGroupID    []string       `query:"SecurityGroupId"`
	SourceDestCheck    *boolAttribute `query:"SourceDestCheck"`
	Description        *textAttribute `query:"Description"`
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

func modifyNetworkInterfaceAttribute(h *Handler, in modifyInput) (response, error) {
	modify := vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: in.NetworkInterfaceID, Groups: in.SecurityGroupID}
	if in.Attachment != nil {
		modify.Attachment = &vpc.AttachmentChange{AttachmentID: in.Attachment.AttachmentID, DeleteOnTermination: in.Attachment.DeleteOnTermination}
	}
	if in.SourceDestCheck != nil {
		modify.SourceDestCheck = &in.SourceDestCheck.Value
	}
	if in.Description != nil {
		modify.Description = in.Description.Value
	}
	return &done{Return: true}, h.vpc.ModifyNetworkInterfaceAttribute(h.now(), modify)
}

// assignInput has no DryRun, and neither has unassignInput: EC2 knows none there.
type assignInput struct {
	NetworkInterfaceID string   `query:"NetworkInterfaceId,required"`
	PrivateIPAddress   []string `query:"PrivateIpAddress"`
	SecondaryCount     *int     `query:"SecondaryPrivateIpAddressCount"`
	AllowReassignment  bool     `query:"AllowReassignment"`
}

type assignOutput struct {
	head
	NetworkInterfaceID string             `xml:"networkInterfaceId"`
	Assigned           set[assignedIPXML] `xml:"assignedPrivateIpAddressesSet"`
	Prefixes           set[struct{}]      `xml:"assignedIpv4PrefixSet"`
}

type assignedIPXML struct {
	Address string `xml:"privateIpAddress"`
}

func assignPrivateIpAddresses(h *Handler, in assignInput) (response, error) {
	addrs, err := parseAddrs(in.PrivateIPAddress)
	if err != nil {
		return nil, err
	}
	assign := vpc.AssignPrivateIpAddressesInput{
		NetworkInterfaceID: in.NetworkInterfaceID, Addresses: addrs, AllowReassignment: in.AllowReassignment,
	}
	if in.SecondaryCount != nil {
		if assign.Count = *in.SecondaryCount; assign.Count <= 0 {
			return nil, refuse("InvalidParameterValue", "invalid value for parameter secondaryPrivateIpAddressCount: %d", assign.Count)
		}
	}
	fresh, err := h.vpc.AssignPrivateIpAddresses(h.now(), assign)
	if err != nil {
		return nil, err
	}
	return &assignOutput{
		NetworkInterfaceID: in.NetworkInterfaceID,
		Assigned:           setOf(fresh, func(a netip.Addr) assignedIPXML { return assignedIPXML{a.String()} }),
	}, nil
}

type unassignInput struct {
	NetworkInterfaceID string   `query:"NetworkInterfaceId,required"`
	PrivateIPAddress   []string `query:"PrivateIpAddress"`
}

func unassignPrivateIpAddresses(h *Handler, in unassignInput) (response, error) {
	addrs, err := parseAddrs(in.PrivateIPAddress)
	if err != nil {
		return nil, err
	}
	return &done{Return: true}, h.vpc.UnassignPrivateIpAddresses(h.now(), vpc.UnassignPrivateIpAddressesInput{
		NetworkInterfaceID: in.NetworkInterfaceID, Addresses: addrs,
	})
}

type tagsInput struct {
	dryRun
	ResourceID []string   `query:"ResourceId,required"`
	Tag        []tagInput `query:"Tag,required"`
}

func createTags(h *Handler, in tagsInput) (response, error) {
	tags, err := tagMap(in.Tag, nil)
	if err != nil {
		return nil, err
	}
	return &done{Return: true}, h.vpc.CreateTags(h.now(), in.ResourceID, tags)
}

// tagMap adds tags to those that were read before; a key may be given once.
func tagMap(list []tagInput, into map[string]string) (map[string]string, error) {
	for _, tag := range list {
		if into == nil {
			into = map[string]string{}
		}
		if _, twice := into[tag.Key]; twice {
			return nil, refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", clip(tag.Key))
		}
		into[tag.Key] = tag.Value
	}
	return into, nil
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return netip.Addr{}, refuse("InvalidParameterValue", "invalid value for parameter address: %s", clip(text))
	}
	return a, nil
}

func parseAddrs(texts []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, text := range texts {
		a, err := parseAddr(text)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}
