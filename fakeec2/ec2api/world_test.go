package ec2api_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// tagged is a TagSpecification of one tag.
func tagged(kind types.ResourceType, key, value string) []types.TagSpecification {
	return []types.TagSpecification{{ResourceType: kind, Tags: []types.Tag{{Key: &key, Value: &value}}}}
}

// TestWorldThroughTheAPIAlone builds a VPC and runs an instance in it with the SDK only.
func TestWorldThroughTheAPIAlone(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	ctx := t.Context()
	network := must(e.sdk.CreateVpc(ctx, &ec2.CreateVpcInput{
		CidrBlock: ptr("10.9.0.0/16"), AmazonProvidedIpv6CidrBlock: ptr(true), TagSpecifications: tagged(types.ResourceTypeVpc, "Name", "nine"),
	})).Vpc
	six := netip.MustParsePrefix(*network.Ipv6CidrBlockAssociationSet[0].Ipv6CidrBlock)
	subnet := must(e.sdk.CreateSubnet(ctx, &ec2.CreateSubnetInput{
		VpcId: network.VpcId, CidrBlock: ptr("10.9.1.0/24"), Ipv6CidrBlock: ptr(netip.PrefixFrom(six.Addr(), 64).String()), AvailabilityZone: ptr("us-west-2c"),
	})).Subnet
	group := must(e.sdk.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: network.VpcId, GroupName: ptr("nodes"), Description: ptr("all nodes")}))
	permission := []types.IpPermission{
		{IpProtocol: ptr("tcp"), FromPort: ptr(int32(443)), ToPort: ptr(int32(443)), IpRanges: []types.IpRange{{CidrIp: ptr("0.0.0.0/0")}}, Ipv6Ranges: []types.Ipv6Range{{CidrIpv6: ptr("::/0")}}},
		{IpProtocol: ptr("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: group.GroupId}}},
	}
	must(e.sdk.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: group.GroupId, IpPermissions: permission}))
	described := must(e.sdk.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{*group.GroupId}})).SecurityGroups[0]
	if len(described.IpPermissions) != 2 || *described.IpPermissions[0].Ipv6Ranges[0].CidrIpv6 != "::/0" || *described.IpPermissions[1].UserIdGroupPairs[0].GroupId != *group.GroupId ||
		*described.IpPermissionsEgress[0].IpRanges[0].CidrIp != "0.0.0.0/0" {
		t.Errorf("%+v", described)
	}
	reservation := must(e.sdk.CreateSubnetCidrReservation(ctx, &ec2.CreateSubnetCidrReservationInput{
		SubnetId: subnet.SubnetId, Cidr: ptr("10.9.1.32/27"), ReservationType: types.SubnetCidrReservationTypePrefix, Description: ptr("pods"),
	})).SubnetCidrReservation
	run := must(e.sdk.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: ptr("ami-1"), InstanceType: types.InstanceTypeM5Large, MinCount: ptr(int32(2)), MaxCount: ptr(int32(2)),
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: ptr(int32(0)), SubnetId: subnet.SubnetId, Groups: []string{*group.GroupId}, AssociatePublicIpAddress: ptr(true), Ipv4PrefixCount: ptr(int32(1)),
		}},
		MetadataOptions:   &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: ptr(int32(2))},
		TagSpecifications: append(tagged(types.ResourceTypeInstance, "Name", "node"), tagged(types.ResourceTypeNetworkInterface, "of", "node")...),
	}))
	if len(run.Instances) != 2 || run.Instances[0].State.Name != types.InstanceStateNamePending || run.Instances[0].PublicIpAddress == nil {
		t.Fatalf("%+v", run)
	}
	prefix := netip.MustParsePrefix(*run.Instances[0].NetworkInterfaces[0].Ipv4Prefixes[0].Ipv4Prefix)
	if !netip.MustParsePrefix(*reservation.Cidr).Contains(prefix.Addr()) {
		t.Errorf("prefix %s is not from the reservation", prefix)
	}
	e.clock.pass(2 * time.Second)
	id := *run.Instances[0].InstanceId
	all := must(e.sdk.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filter("tag:Name", "node")})).Reservations
	if len(all) != 1 || len(all[0].Instances) != 2 || *all[0].ReservationId != *run.ReservationId || all[0].Instances[1].State.Name != types.InstanceStateNameRunning {
		t.Errorf("%+v", all)
	}
	e.checkRest(*network.VpcId, *subnet.SubnetId, id)
	if err := e.model.Check(); err != nil {
		t.Fatal(err)
	}
}

// checkRest looks at tags, routes, options and the instance's end.
func (e *endpoint) checkRest(network, subnet, instance string) {
	e.t.Helper()
	ctx := e.t.Context()
	tags := must(e.sdk.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: append(filter("resource-type", "instance"), filter("key", "Name")...)})).Tags
	if len(tags) != 3 || *tags[0].Key != "Name" || tags[0].ResourceType != types.ResourceTypeInstance {
		e.t.Errorf("%+v", tags)
	}
	must(e.sdk.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{instance}, Tags: []types.Tag{{Key: ptr("Name"), Value: ptr("other")}, {Key: ptr("none")}}}))
	if i, _ := e.model.Instance(instance); i.Tags["Name"] != "node" {
		e.t.Error("a tag with another value was deleted")
	}
	if n := must(e.sdk.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{network}})).Vpcs[0]; n.CidrBlockAssociationSet[0].AssociationId == nil ||
		*n.CidrBlockAssociationSet[0].AssociationId == *n.Ipv6CidrBlockAssociationSet[0].AssociationId {
		e.t.Errorf("%+v", n)
	}
	table := must(e.sdk.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: filter("vpc-id", network)})).RouteTables[0]
	if !*table.Associations[0].Main || *table.Routes[0].GatewayId != "local" || *table.Routes[0].DestinationCidrBlock != "10.9.0.0/16" || len(table.Routes) != 2 {
		e.t.Errorf("%+v", table)
	}
	reservations := must(e.sdk.GetSubnetCidrReservations(ctx, &ec2.GetSubnetCidrReservationsInput{SubnetId: &subnet}))
	if len(reservations.SubnetIpv4CidrReservations) != 1 || len(reservations.SubnetIpv6CidrReservations) != 0 {
		e.t.Errorf("%+v", reservations)
	}
	must(e.sdk.DeleteSubnetCidrReservation(ctx, &ec2.DeleteSubnetCidrReservationInput{SubnetCidrReservationId: reservations.SubnetIpv4CidrReservations[0].SubnetCidrReservationId}))
	must(e.sdk.ModifyInstanceMetadataOptions(ctx, &ec2.ModifyInstanceMetadataOptionsInput{InstanceId: &instance, HttpTokens: types.HttpTokensStateOptional, HttpEndpoint: types.InstanceMetadataEndpointStateDisabled}))
	if i, _ := e.model.Instance(instance); i.TokensRequired || !i.MetadataOff || i.HopLimit != 2 {
		e.t.Errorf("%+v", i)
	}
	ids := []string{instance}
	if stopped := must(e.sdk.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})).StoppingInstances[0]; *stopped.CurrentState.Code != 64 {
		e.t.Errorf("%+v", stopped.CurrentState)
	}
	if again := must(e.sdk.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})).StoppingInstances[0]; *again.CurrentState.Code != 80 {
		e.t.Errorf("%+v", again.CurrentState)
	}
	if started := must(e.sdk.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})).StartingInstances[0]; started.CurrentState.Name != types.InstanceStateNamePending {
		e.t.Errorf("%+v", started.CurrentState)
	}
	ended := must(e.sdk.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})).TerminatingInstances[0]
	if *ended.PreviousState.Code != 16 || ended.CurrentState.Name != types.InstanceStateNameShuttingDown {
		e.t.Errorf("%+v", ended)
	}
}

func TestPrefixesAndIPv6OverTheWire(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	ctx := t.Context()
	created := must(e.sdk.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{
		SubnetId: &e.wide.ID, Ipv4PrefixCount: ptr(int32(1)), Ipv6AddressCount: ptr(int32(2)), EnablePrimaryIpv6: ptr(true),
		ConnectionTrackingSpecification: &types.ConnectionTrackingSpecificationRequest{TcpEstablishedTimeout: ptr(int32(350))},
	})).NetworkInterface
	id := created.NetworkInterfaceId
	prefixes := must(e.sdk.AssignPrivateIpAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{NetworkInterfaceId: id, Ipv4PrefixCount: ptr(int32(2))})).AssignedIpv4Prefixes
	sixes := must(e.sdk.AssignIpv6Addresses(ctx, &ec2.AssignIpv6AddressesInput{NetworkInterfaceId: id, Ipv6PrefixCount: ptr(int32(1))}))
	if len(prefixes) != 2 || len(sixes.AssignedIpv6Prefixes) != 1 || len(sixes.AssignedIpv6Addresses) != 0 {
		t.Fatalf("%+v %+v", prefixes, sixes)
	}
	got := must(e.sdk.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*id}})).NetworkInterfaces[0]
	if len(got.Ipv4Prefixes) != 3 || len(got.Ipv6Addresses) != 2 || len(got.Ipv6Prefixes) != 1 || !*got.Ipv6Addresses[0].IsPrimaryIpv6 ||
		*got.Ipv6Address != *got.Ipv6Addresses[0].Ipv6Address || *got.ConnectionTrackingConfiguration.TcpEstablishedTimeout != 350 {
		t.Fatalf("%+v", got)
	}
	must(e.sdk.UnassignPrivateIpAddresses(ctx, &ec2.UnassignPrivateIpAddressesInput{NetworkInterfaceId: id, Ipv4Prefixes: []string{*prefixes[0].Ipv4Prefix}}))
	gone := must(e.sdk.UnassignIpv6Addresses(ctx, &ec2.UnassignIpv6AddressesInput{NetworkInterfaceId: id, Ipv6Prefixes: sixes.AssignedIpv6Prefixes}))
	if diff := cmp.Diff(sixes.AssignedIpv6Prefixes, gone.UnassignedIpv6Prefixes); diff != "" {
		t.Fatal(diff)
	}
	if err := e.model.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestTrunkAndBranches is what the branch-ENI controller does.
func TestTrunkAndBranches(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	ctx := t.Context()
	trunk := must(e.sdk.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{
		SubnetId: &e.subnet.ID, InterfaceType: types.NetworkInterfaceCreationTypeTrunk, TagSpecifications: tagged(types.ResourceTypeNetworkInterface, "eks:eni:owner", "eks-vpc-resource-controller"),
	})).NetworkInterface
	granted := must(e.sdk.CreateNetworkInterfacePermission(ctx, &ec2.CreateNetworkInterfacePermissionInput{
		NetworkInterfaceId: trunk.NetworkInterfaceId, AwsAccountId: ptr("210987654321"), Permission: types.InterfacePermissionTypeInstanceAttach,
	})).InterfacePermission
	if granted.PermissionState.State != types.NetworkInterfacePermissionStateCodeGranted {
		t.Errorf("%+v", granted)
	}
	must(e.sdk.AttachNetworkInterface(ctx, &ec2.AttachNetworkInterfaceInput{InstanceId: &e.node.ID, NetworkInterfaceId: trunk.NetworkInterfaceId, DeviceIndex: ptr(int32(3)), NetworkCardIndex: ptr(int32(0))}))
	var associations []string
	for vlan := range int32(2) {
		branch := must(e.sdk.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{
			SubnetId: &e.subnet.ID, TagSpecifications: tagged(types.ResourceTypeNetworkInterface, "vpcresources.k8s.aws/trunk-eni-id", *trunk.NetworkInterfaceId),
		})).NetworkInterface
		a := must(e.sdk.AssociateTrunkInterface(ctx, &ec2.AssociateTrunkInterfaceInput{
			BranchInterfaceId: branch.NetworkInterfaceId, TrunkInterfaceId: trunk.NetworkInterfaceId, VlanId: ptr(vlan + 1),
		})).InterfaceAssociation
		if *a.VlanId != vlan+1 || a.InterfaceProtocol != types.InterfaceProtocolTypeVlan {
			t.Errorf("%+v", a)
		}
		associations = append(associations, *a.AssociationId)
	}
	branches := must(e.sdk.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: append(
		filter("tag:vpcresources.k8s.aws/trunk-eni-id", *trunk.NetworkInterfaceId), filter("subnet-id", e.subnet.ID)...)})).NetworkInterfaces
	if len(branches) != 2 || branches[0].InterfaceType != types.NetworkInterfaceTypeBranch || branches[0].Status != types.NetworkInterfaceStatusInUse {
		t.Fatalf("%+v", branches)
	}
	listed := must(e.sdk.DescribeTrunkInterfaceAssociations(ctx, &ec2.DescribeTrunkInterfaceAssociationsInput{})).InterfaceAssociations
	slices.Sort(associations)
	if len(listed) != 2 || *listed[0].AssociationId != associations[0] {
		t.Fatalf("%+v", listed)
	}
	_, err := e.sdk.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: branches[0].NetworkInterfaceId})
	if codeOf(err) != "InvalidParameterValue" {
		t.Errorf("delete of an associated branch: %v", err)
	}
	for _, id := range associations {
		must(e.sdk.DisassociateTrunkInterface(ctx, &ec2.DisassociateTrunkInterfaceInput{AssociationId: aws.String(id)}))
	}
	must(e.sdk.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: branches[0].NetworkInterfaceId}))
	if err := e.model.Check(); err != nil {
		t.Fatal(err)
	}
}
