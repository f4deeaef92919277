package ec2api

import (
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// maxTrunkPage is the biggest page of DescribeTrunkInterfaceAssociations. Source: EC2 API reference.
const maxTrunkPage = 255

type associateInput struct {
	dryRun
	BranchID    string `query:"BranchInterfaceId,required"`
	TrunkID     string `query:"TrunkInterfaceId,required"`
	VLAN        *int   `query:"VlanId"`
	ClientToken string `query:"ClientToken"`
}

type associateOutput struct {
	head
	Association associationOfTrunkXML `xml:"interfaceAssociation"`
	ClientToken string                `xml:"clientToken,omitempty"`
}

type associationOfTrunkXML struct {
	ID       string      `xml:"associationId"`
	BranchID string      `xml:"branchInterfaceId"`
	TrunkID  string      `xml:"trunkInterfaceId"`
	Protocol string      `xml:"interfaceProtocol"`
	VLAN     int         `xml:"vlanId"`
	Tags     set[tagXML] `xml:"tagSet"`
}

func trunkElement(a vpc.TrunkAssociation) associationOfTrunkXML {
	return associationOfTrunkXML{ID: a.ID, BranchID: a.BranchID, TrunkID: a.TrunkID, Protocol: "VLAN", VLAN: a.VLAN, Tags: tagSet(a.Tags)}
}

func associateTrunkInterface(c *call, in associateInput) (response, error) {
	if in.VLAN == nil {
		return nil, missing("VlanId")
	}
	a, err := c.vpc.AssociateTrunkInterface(c.now(), vpc.AssociateTrunkInterfaceInput{
		BranchID: in.BranchID, TrunkID: in.TrunkID, VLAN: *in.VLAN, ClientToken: in.ClientToken,
	})
	if err != nil {
		return nil, err
	}
	return &associateOutput{Association: trunkElement(a), ClientToken: in.ClientToken}, nil
}

type disassociateInput struct {
	dryRun
	AssociationID string `query:"AssociationId,required"`
	ClientToken   string `query:"ClientToken"`
}

type disassociateOutput struct {
	head
	Return      bool   `xml:"return"`
	ClientToken string `xml:"clientToken,omitempty"`
}

func disassociateTrunkInterface(c *call, in disassociateInput) (response, error) {
	return &disassociateOutput{Return: true, ClientToken: in.ClientToken}, c.vpc.DisassociateTrunkInterface(c.now(), in.AssociationID, in.ClientToken)
}

type describeTrunksInput struct {
	dryRun
	pageInput
	AssociationID []string      `query:"AssociationId"`
	Filter        []filterInput `query:"Filter"`
}

type describeTrunksOutput struct {
	head
	Associations set[associationOfTrunkXML] `xml:"interfaceAssociationSet"`
	NextToken    string                     `xml:"nextToken,omitempty"`
}

func describeTrunkInterfaceAssociations(c *call, in describeTrunksInput) (response, error) {
	s := search[vpc.TrunkAssociation]{
		ids: in.AssociationID, idsName: "associationIds", byID: c.vpc.DescribeTrunkInterfaceAssociations, limit: maxTrunkPage,
		id: func(a *vpc.TrunkAssociation) string { return a.ID },
		filters: filters[vpc.TrunkAssociation]{
			tags: func(a *vpc.TrunkAssociation) map[string]string { return a.Tags },
			names: map[string]func(*vpc.TrunkAssociation) []string{
				"gre-key":            func(*vpc.TrunkAssociation) []string { return nil },
				"interface-protocol": func(*vpc.TrunkAssociation) []string { return []string{"VLAN"} },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeTrunksOutput{Associations: setOf(found, trunkElement), NextToken: next}, nil
}

type permissionInput struct {
	dryRun
	NetworkInterfaceID string `query:"NetworkInterfaceId,required"`
	Permission         string `query:"Permission,required"`
	AccountID          string `query:"AwsAccountId"`
	Service            string `query:"AwsService"`
}

type permissionOutput struct {
	head
	Permission permissionXML `xml:"interfacePermission"`
}

type permissionXML struct {
	ID                 string `xml:"networkInterfacePermissionId"`
	NetworkInterfaceID string `xml:"networkInterfaceId"`
	AccountID          string `xml:"awsAccountId,omitempty"`
	Service            string `xml:"awsService,omitempty"`
	Permission         string `xml:"permission"`
	State              string `xml:"permissionState>state"`
}

func createNetworkInterfacePermission(c *call, in permissionInput) (response, error) {
	p, err := c.vpc.CreateNetworkInterfacePermission(c.now(), vpc.Permission{
		NetworkInterfaceID: in.NetworkInterfaceID, Account: in.AccountID, Service: in.Service, Kind: in.Permission,
	})
	if err != nil {
		return nil, err
	}
	return &permissionOutput{Permission: permissionXML{
		ID: p.ID, NetworkInterfaceID: p.NetworkInterfaceID, AccountID: p.Account, Service: p.Service, Permission: p.Kind, State: "granted",
	}}, nil
}
