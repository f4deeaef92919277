package conformance

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// do sends the good request of an action, changed by the options.
func (w *world) do(action string, o ...func(*ec2.Options)) error {
	send, there := w.requests()[action]
	if !there {
		w.t.Fatalf("%s has no good request in the table", action)
	}
	return send(o...)
}

type sender func(o ...func(*ec2.Options)) error

func by[In, Out any](w *world, method func(*ec2.Client, context.Context, *In, ...func(*ec2.Options)) (*Out, error), in *In) sender {
	return func(o ...func(*ec2.Options)) error {
		_, err := method(w.sdk, w.ctx(), in, o...)
		return err
	}
}

// requests has one good request of each action in this world.
func (w *world) requests() map[string]sender {
	one, tags := aws.Int32(1), []types.Tag{{Key: aws.String("key"), Value: aws.String("value")}}
	permission := []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(80), ToPort: aws.Int32(80), IpRanges: []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}}}}
	everything := []types.IpPermission{{IpProtocol: aws.String("-1"), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}}}
	return map[string]sender{
		"DescribeInstances":         by(w, (*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{InstanceIds: []string{w.node}}),
		"DescribeInstanceTypes":     by(w, (*ec2.Client).DescribeInstanceTypes, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.large"}}),
		"DescribeNetworkInterfaces": by(w, (*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{w.free}}),
		"DescribeInternetGateways":  by(w, (*ec2.Client).DescribeInternetGateways, &ec2.DescribeInternetGatewaysInput{InternetGatewayIds: []string{w.gateway}}),
		"DescribeRouteTables":       by(w, (*ec2.Client).DescribeRouteTables, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{w.table}}),
		"DescribeSecurityGroups":    by(w, (*ec2.Client).DescribeSecurityGroups, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{w.group}}),
		"DescribeSubnets":           by(w, (*ec2.Client).DescribeSubnets, &ec2.DescribeSubnetsInput{SubnetIds: []string{w.subnet}}),
		"DescribeTags":              by(w, (*ec2.Client).DescribeTags, &ec2.DescribeTagsInput{Filters: filter("resource-id", w.node)}),
		"DescribeTrunkInterfaceAssociations": by(w, (*ec2.Client).DescribeTrunkInterfaceAssociations,
			&ec2.DescribeTrunkInterfaceAssociationsInput{AssociationIds: []string{w.association}}),
		"DescribeVpcs":              by(w, (*ec2.Client).DescribeVpcs, &ec2.DescribeVpcsInput{VpcIds: []string{w.network}}),
		"GetSubnetCidrReservations": by(w, (*ec2.Client).GetSubnetCidrReservations, &ec2.GetSubnetCidrReservationsInput{SubnetId: &w.subnet}),

		"CreateNetworkInterface": by(w, (*ec2.Client).CreateNetworkInterface, &ec2.CreateNetworkInterfaceInput{SubnetId: &w.subnet}),
		"AttachNetworkInterface": by(w, (*ec2.Client).AttachNetworkInterface,
			&ec2.AttachNetworkInterfaceInput{InstanceId: &w.node, NetworkInterfaceId: &w.free, DeviceIndex: aws.Int32(2), NetworkCardIndex: aws.Int32(0)}),
		"DetachNetworkInterface": by(w, (*ec2.Client).DetachNetworkInterface, &ec2.DetachNetworkInterfaceInput{AttachmentId: &w.attachment}),
		"DeleteNetworkInterface": by(w, (*ec2.Client).DeleteNetworkInterface, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &w.free}),
		"ModifyNetworkInterfaceAttribute": by(w, (*ec2.Client).ModifyNetworkInterfaceAttribute,
			&ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: &w.attached, SourceDestCheck: &types.AttributeBooleanValue{Value: aws.Bool(true)}}),
		"AssignPrivateIpAddresses": by(w, (*ec2.Client).AssignPrivateIpAddresses,
			&ec2.AssignPrivateIpAddressesInput{NetworkInterfaceId: &w.attached, SecondaryPrivateIpAddressCount: one}),
		"UnassignPrivateIpAddresses": by(w, (*ec2.Client).UnassignPrivateIpAddresses,
			&ec2.UnassignPrivateIpAddressesInput{NetworkInterfaceId: &w.attached, PrivateIpAddresses: []string{w.secondary}}),
		"AssignIpv6Addresses": by(w, (*ec2.Client).AssignIpv6Addresses, &ec2.AssignIpv6AddressesInput{NetworkInterfaceId: &w.attached, Ipv6AddressCount: one}),
		"UnassignIpv6Addresses": by(w, (*ec2.Client).UnassignIpv6Addresses,
			&ec2.UnassignIpv6AddressesInput{NetworkInterfaceId: &w.attached, Ipv6Addresses: []string{"2600:1f14::99"}}),
		"AssociateTrunkInterface": by(w, (*ec2.Client).AssociateTrunkInterface,
			&ec2.AssociateTrunkInterfaceInput{BranchInterfaceId: &w.free, TrunkInterfaceId: &w.trunk, VlanId: aws.Int32(8)}),
		"DisassociateTrunkInterface": by(w, (*ec2.Client).DisassociateTrunkInterface, &ec2.DisassociateTrunkInterfaceInput{AssociationId: &w.association}),
		"CreateNetworkInterfacePermission": by(w, (*ec2.Client).CreateNetworkInterfacePermission, &ec2.CreateNetworkInterfacePermissionInput{
			NetworkInterfaceId: &w.free, AwsAccountId: aws.String("210987654321"), Permission: types.InterfacePermissionTypeInstanceAttach,
		}),
		"CreateTags": by(w, (*ec2.Client).CreateTags, &ec2.CreateTagsInput{Resources: []string{w.free}, Tags: tags}),
		"DeleteTags": by(w, (*ec2.Client).DeleteTags, &ec2.DeleteTagsInput{Resources: []string{w.free}, Tags: tags}),

		"CreateVpc":    by(w, (*ec2.Client).CreateVpc, &ec2.CreateVpcInput{CidrBlock: aws.String("10.2.0.0/16")}),
		"CreateSubnet": by(w, (*ec2.Client).CreateSubnet, &ec2.CreateSubnetInput{VpcId: &w.network, CidrBlock: aws.String("10.0.9.0/24")}),
		"CreateSubnetCidrReservation": by(w, (*ec2.Client).CreateSubnetCidrReservation,
			&ec2.CreateSubnetCidrReservationInput{SubnetId: &w.subnet, Cidr: aws.String("10.0.1.192/28"), ReservationType: types.SubnetCidrReservationTypePrefix}),
		"DeleteSubnetCidrReservation": by(w, (*ec2.Client).DeleteSubnetCidrReservation, &ec2.DeleteSubnetCidrReservationInput{SubnetCidrReservationId: &w.reservation}),
		"CreateSecurityGroup": by(w, (*ec2.Client).CreateSecurityGroup,
			&ec2.CreateSecurityGroupInput{VpcId: &w.network, GroupName: aws.String("more"), Description: aws.String("more nodes")}),
		"AuthorizeSecurityGroupIngress": by(w, (*ec2.Client).AuthorizeSecurityGroupIngress, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &w.group, IpPermissions: permission}),
		"AuthorizeSecurityGroupEgress":  by(w, (*ec2.Client).AuthorizeSecurityGroupEgress, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &w.group, IpPermissions: permission}),
		"RevokeSecurityGroupIngress":    by(w, (*ec2.Client).RevokeSecurityGroupIngress, &ec2.RevokeSecurityGroupIngressInput{GroupId: &w.group, IpPermissions: permission}),
		"RevokeSecurityGroupEgress":     by(w, (*ec2.Client).RevokeSecurityGroupEgress, &ec2.RevokeSecurityGroupEgressInput{GroupId: &w.group, IpPermissions: everything}),
		"CreateInternetGateway":         by(w, (*ec2.Client).CreateInternetGateway, &ec2.CreateInternetGatewayInput{}),
		"AttachInternetGateway":         by(w, (*ec2.Client).AttachInternetGateway, &ec2.AttachInternetGatewayInput{InternetGatewayId: &w.freeGateway, VpcId: &w.elsewhere}),
		"DetachInternetGateway":         by(w, (*ec2.Client).DetachInternetGateway, &ec2.DetachInternetGatewayInput{InternetGatewayId: &w.gateway, VpcId: &w.network}),
		"DeleteInternetGateway":         by(w, (*ec2.Client).DeleteInternetGateway, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &w.freeGateway}),
		"CreateRoute": by(w, (*ec2.Client).CreateRoute,
			&ec2.CreateRouteInput{RouteTableId: &w.table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &w.gateway}),
		"DeleteRoute": by(w, (*ec2.Client).DeleteRoute, &ec2.DeleteRouteInput{RouteTableId: &w.table, DestinationIpv6CidrBlock: aws.String("::/0")}),
		"RunInstances": by(w, (*ec2.Client).RunInstances, &ec2.RunInstancesInput{
			ImageId: aws.String(image()), InstanceType: types.InstanceTypeM5Large, MinCount: one, MaxCount: one,
			NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &w.subnet, Groups: []string{w.group}}},
		}),
		"TerminateInstances": by(w, (*ec2.Client).TerminateInstances, &ec2.TerminateInstancesInput{InstanceIds: []string{w.node}}),
		"StopInstances":      by(w, (*ec2.Client).StopInstances, &ec2.StopInstancesInput{InstanceIds: []string{w.node}}),
		"StartInstances":     by(w, (*ec2.Client).StartInstances, &ec2.StartInstancesInput{InstanceIds: []string{w.node}}),
		"ModifyInstanceMetadataOptions": by(w, (*ec2.Client).ModifyInstanceMetadataOptions,
			&ec2.ModifyInstanceMetadataOptionsInput{InstanceId: &w.node, HttpTokens: types.HttpTokensStateRequired}),
	}
}

// idParameters are the parameters that carry an id, by action and the id's prefix.
func idParameters() map[string]map[string]string {
	return map[string]map[string]string{
		"DescribeInstances":                  {"i-": "InstanceId.1"},
		"DescribeNetworkInterfaces":          {"eni-": "NetworkInterfaceId.1"},
		"DescribeInternetGateways":           {"igw-": "InternetGatewayId.1"},
		"AttachInternetGateway":              {"igw-": "InternetGatewayId", "vpc-": "VpcId"},
		"DetachInternetGateway":              {"igw-": "InternetGatewayId", "vpc-": "VpcId"},
		"DeleteInternetGateway":              {"igw-": "InternetGatewayId"},
		"CreateRoute":                        {"rtb-": "RouteTableId", "igw-": "GatewayId"},
		"DeleteRoute":                        {"rtb-": "RouteTableId"},
		"DescribeRouteTables":                {"rtb-": "RouteTableId.1"},
		"DescribeSecurityGroups":             {"sg-": "GroupId.1"},
		"DescribeSubnets":                    {"subnet-": "SubnetId.1"},
		"DescribeTrunkInterfaceAssociations": {"trunk-assoc-": "AssociationId.1"},
		"DescribeVpcs":                       {"vpc-": "VpcId.1"},
		"GetSubnetCidrReservations":          {"subnet-": "SubnetId"},
		"CreateNetworkInterface":             {"subnet-": "SubnetId", "sg-": "SecurityGroupId.1"},
		"AttachNetworkInterface":             {"i-": "InstanceId", "eni-": "NetworkInterfaceId"},
		"DetachNetworkInterface":             {"eni-attach-": "AttachmentId"},
		"DeleteNetworkInterface":             {"eni-": "NetworkInterfaceId"},
		"ModifyNetworkInterfaceAttribute":    {"eni-": "NetworkInterfaceId"},
		"AssignPrivateIpAddresses":           {"eni-": "NetworkInterfaceId"},
		"UnassignPrivateIpAddresses":         {"eni-": "NetworkInterfaceId"},
		"AssignIpv6Addresses":                {"eni-": "NetworkInterfaceId"},
		"UnassignIpv6Addresses":              {"eni-": "NetworkInterfaceId"},
		"AssociateTrunkInterface":            {"eni-": "BranchInterfaceId"},
		"DisassociateTrunkInterface":         {"trunk-assoc-": "AssociationId"},
		"CreateNetworkInterfacePermission":   {"eni-": "NetworkInterfaceId"},
		"CreateTags":                         anyResource(),
		"DeleteTags":                         anyResource(),
		"CreateSubnet":                       {"vpc-": "VpcId"},
		"CreateSubnetCidrReservation":        {"subnet-": "SubnetId"},
		"DeleteSubnetCidrReservation":        {"scr-": "SubnetCidrReservationId"},
		"CreateSecurityGroup":                {"vpc-": "VpcId"},
		"AuthorizeSecurityGroupIngress":      {"sg-": "GroupId"},
		"AuthorizeSecurityGroupEgress":       {"sg-": "GroupId"},
		"RevokeSecurityGroupIngress":         {"sg-": "GroupId"},
		"RevokeSecurityGroupEgress":          {"sg-": "GroupId"},
		"RunInstances":                       {"subnet-": "NetworkInterface.1.SubnetId", "sg-": "NetworkInterface.1.SecurityGroupId.1", "eni-": "NetworkInterface.1.NetworkInterfaceId"},
		"TerminateInstances":                 {"i-": "InstanceId.1"},
		"StopInstances":                      {"i-": "InstanceId.1"},
		"StartInstances":                     {"i-": "InstanceId.1"},
		"ModifyInstanceMetadataOptions":      {"i-": "InstanceId"},
	}
}

func anyResource() map[string]string {
	out := map[string]string{}
	for _, prefix := range []string{"i-", "eni-", "rtb-", "sg-", "subnet-", "vpc-", "scr-", "igw-"} {
		out[prefix] = "ResourceId.1"
	}
	return out
}

// idCodes are the codes of an id that has not the form of its kind, and of one that does not exist.
func idCodes() map[string][2]string {
	return map[string][2]string{
		"i-":           {"InvalidInstanceID.Malformed", "InvalidInstanceID.NotFound"},
		"eni-":         {"InvalidNetworkInterfaceId.Malformed", "InvalidNetworkInterfaceID.NotFound"},
		"eni-attach-":  {"InvalidNetworkInterfaceAttachmentId.Malformed", "InvalidAttachmentID.NotFound"},
		"igw-":         {"InvalidInternetGatewayId.Malformed", "InvalidInternetGatewayID.NotFound"},
		"rtb-":         {"InvalidRouteTableId.Malformed", "InvalidRouteTableID.NotFound"},
		"sg-":          {"InvalidGroupId.Malformed", "InvalidGroup.NotFound"},
		"subnet-":      {"InvalidSubnetId.Malformed", "InvalidSubnetID.NotFound"},
		"vpc-":         {"InvalidVpcId.Malformed", "InvalidVpcID.NotFound"},
		"scr-":         {"InvalidSubnetCidrReservationId.Malformed", "InvalidSubnetCidrReservationID.NotFound"},
		"trunk-assoc-": {"InvalidAssociationID.Malformed", "InvalidAssociationID.NotFound"},
	}
}
