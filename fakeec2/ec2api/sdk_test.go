package ec2api_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameSDK compares the SDK's structs, which all carry an unexported marker.
func sameSDK() cmp.Options {
	return cmp.Options{cmpopts.IgnoreUnexported(
		types.NetworkInterface{}, types.NetworkInterfaceAttachment{}, types.NetworkInterfacePrivateIpAddress{}, types.NetworkInterfaceAssociation{},
		types.GroupIdentifier{}, types.Tag{}, types.InstanceNetworkInterface{}, types.InstanceNetworkInterfaceAttachment{},
		types.InstancePrivateIpAddress{}, types.InstanceNetworkInterfaceAssociation{}, types.NetworkInfo{}, types.NetworkCardInfo{},
		types.Subnet{}, types.AssignedPrivateIpAddress{},
	), cmpopts.EquateEmpty()}
}

// TestLifeOfAnENI is what a CNI does with an ENI, through the real SDK.
func TestLifeOfAnENI(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	ctx := t.Context()
	created := must(e.sdk.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{
		SubnetId: &e.subnet.ID, Groups: []string{e.group.ID}, Description: ptr("aws-K8S-" + e.node.ID), SecondaryPrivateIpAddressCount: ptr(int32(2)),
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeNetworkInterface, Tags: []types.Tag{{Key: ptr("owner"), Value: ptr("cni")}},
		}},
	})).NetworkInterface
	if created.Status != "pending" || created.Attachment != nil {
		t.Fatalf("created %s, attachment %v", created.Status, created.Attachment)
	}
	id := created.NetworkInterfaceId
	attached := must(e.sdk.AttachNetworkInterface(ctx, &ec2.AttachNetworkInterfaceInput{
		InstanceId: &e.node.ID, NetworkInterfaceId: id, DeviceIndex: ptr(int32(1)), NetworkCardIndex: ptr(int32(0)),
	}))
	must(e.sdk.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: id, Attachment: &types.NetworkInterfaceAttachmentChanges{AttachmentId: attached.AttachmentId, DeleteOnTermination: ptr(true)},
	}))
	e.clock.pass(time.Second)
	fresh := must(e.sdk.AssignPrivateIpAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{NetworkInterfaceId: id, SecondaryPrivateIpAddressCount: ptr(int32(3))}))
	if len(fresh.AssignedPrivateIpAddresses) != 3 {
		t.Fatalf("%d addresses newly assigned", len(fresh.AssignedPrivateIpAddresses))
	}
	model, _ := e.model.ENI(*id)
	var want []types.NetworkInterfacePrivateIpAddress
	for n, a := range model.Addresses() {
		want = append(want, types.NetworkInterfacePrivateIpAddress{
			PrivateIpAddress: ptr(a.String()), PrivateDnsName: ptr(dns(a.String())), Primary: ptr(n == 0),
		})
	}
	got := must(e.sdk.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*id}})).NetworkInterfaces
	wantENI := []types.NetworkInterface{{
		NetworkInterfaceId: id, SubnetId: &e.subnet.ID, VpcId: &e.network.ID, AvailabilityZone: ptr("us-west-2a"), AvailabilityZoneId: ptr("usw2-az1"),
		Description: ptr("aws-K8S-" + e.node.ID), OwnerId: ptr("123456789012"), RequesterManaged: ptr(false), Status: types.NetworkInterfaceStatusInUse,
		MacAddress: &model.MAC, PrivateIpAddress: ptr(model.Primary.String()), PrivateDnsName: ptr(dns(model.Primary.String())), SourceDestCheck: ptr(true),
		Groups: []types.GroupIdentifier{{GroupId: &e.group.ID, GroupName: ptr("pods")}}, TagSet: []types.Tag{{Key: ptr("owner"), Value: ptr("cni")}},
		Attachment: &types.NetworkInterfaceAttachment{
			AttachmentId: attached.AttachmentId, InstanceId: &e.node.ID, InstanceOwnerId: ptr("123456789012"), DeviceIndex: ptr(int32(1)),
			NetworkCardIndex: ptr(int32(0)), Status: types.AttachmentStatusAttached, AttachTime: &start, DeleteOnTermination: ptr(true),
		},
		PrivateIpAddresses: want, InterfaceType: types.NetworkInterfaceTypeInterface, DenyAllIgwTraffic: ptr(false),
	}}
	if diff := cmp.Diff(wantENI, got, sameSDK()); diff != "" {
		t.Fatal(diff)
	}
	must(e.sdk.UnassignPrivateIpAddresses(ctx, &ec2.UnassignPrivateIpAddressesInput{
		NetworkInterfaceId: id, PrivateIpAddresses: []string{*fresh.AssignedPrivateIpAddresses[0].PrivateIpAddress},
	}))
	must(e.sdk.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*id}, Tags: []types.Tag{{Key: ptr("empty"), Value: ptr("")}}}))
	must(e.sdk.DetachNetworkInterface(ctx, &ec2.DetachNetworkInterfaceInput{AttachmentId: attached.AttachmentId}))
	e.clock.pass(3 * time.Second)
	e.model.Advance(e.clock.Now())
	left, _ := e.model.ENI(*id)
	if left.Attachment != nil || len(left.Secondary) != 4 || left.Tags["owner"] != "cni" || len(left.Tags) != 2 {
		t.Fatalf("left behind: %+v", left)
	}
	must(e.sdk.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: id}))
	if _, there := e.model.ENI(*id); there {
		t.Fatal("not deleted")
	}
}

func dns(addr string) string {
	out := []byte("ip-" + addr)
	for n := range out {
		if out[n] == '.' {
			out[n] = '-'
		}
	}
	return string(out) + ".us-west-2.compute.internal"
}

func TestModifyEachAttribute(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	eni := e.create(0)
	for _, in := range []ec2.ModifyNetworkInterfaceAttributeInput{
		{Groups: []string{e.group.ID}},
		{SourceDestCheck: &types.AttributeBooleanValue{Value: ptr(false)}},
		{Description: &types.AttributeValue{Value: ptr("")}},
		{Description: &types.AttributeValue{Value: ptr("new & <odd>")}},
	} {
		in.NetworkInterfaceId = &eni.ID
		if _, err := e.sdk.ModifyNetworkInterfaceAttribute(t.Context(), &in); err != nil {
			t.Fatal(err)
		}
	}
	got := must(e.sdk.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{eni.ID}})).NetworkInterfaces[0]
	if *got.Groups[0].GroupId != e.group.ID || *got.SourceDestCheck || *got.Description != "new & <odd>" {
		t.Fatalf("%+v", got)
	}
}

func TestExplicitAddresses(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	created := must(e.sdk.CreateNetworkInterface(t.Context(), &ec2.CreateNetworkInterfaceInput{
		SubnetId: &e.subnet.ID, PrivateIpAddresses: []types.PrivateIpAddressSpecification{
			{PrivateIpAddress: ptr("10.0.1.31")}, {PrivateIpAddress: ptr("10.0.1.30"), Primary: ptr(true)},
		},
	})).NetworkInterface
	if *created.PrivateIpAddress != "10.0.1.30" || *created.PrivateIpAddresses[1].PrivateIpAddress != "10.0.1.31" {
		t.Fatalf("%+v", created.PrivateIpAddresses)
	}
	assigned := must(e.sdk.AssignPrivateIpAddresses(t.Context(), &ec2.AssignPrivateIpAddressesInput{
		NetworkInterfaceId: created.NetworkInterfaceId, PrivateIpAddresses: []string{"10.0.1.33", "10.0.1.32"},
	})).AssignedPrivateIpAddresses
	want := []types.AssignedPrivateIpAddress{{PrivateIpAddress: ptr("10.0.1.32")}, {PrivateIpAddress: ptr("10.0.1.33")}}
	if diff := cmp.Diff(want, assigned, sameSDK()); diff != "" {
		t.Fatal(diff)
	}
}

func TestDescribeInstances(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.attach(e.create(1), 2)
	reservations := must(e.sdk.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{e.node.ID}})).Reservations
	if len(reservations) != 1 || len(reservations[0].Instances) != 1 {
		t.Fatalf("%d reservations", len(reservations))
	}
	i := reservations[0].Instances[0]
	type facts struct {
		ID, Type, AZ, IP, Public, DNS, Image, Subnet, VPC, Group, Profile, Tokens string
		State                                                                     types.InstanceStateName
		StateCode, HopLimit                                                       int32
		Launched                                                                  time.Time
	}
	got := facts{
		*i.InstanceId, string(i.InstanceType), *i.Placement.AvailabilityZone, *i.PrivateIpAddress, *i.PublicIpAddress, *i.PrivateDnsName, *i.ImageId, *i.SubnetId, *i.VpcId,
		*i.SecurityGroups[0].GroupName, *i.IamInstanceProfile.Arn, string(i.MetadataOptions.HttpTokens), i.State.Name, *i.State.Code,
		*i.MetadataOptions.HttpPutResponseHopLimit, *i.LaunchTime,
	}
	want := facts{
		e.node.ID, "m5.xlarge", "us-west-2a", "10.0.1.20", "198.51.100.7", dns("10.0.1.20"), "ami-0123456789abcdef0", e.subnet.ID, e.network.ID,
		"default", "arn:aws:iam::123456789012:instance-profile/node", "required", types.InstanceStateNameRunning, 16, 2, start,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(i.NetworkInterfaces); n != 2 {
		t.Fatalf("%d interfaces", n)
	}
	for n, device := range []int32{0, 2} {
		a := i.NetworkInterfaces[n]
		if *a.Attachment.DeviceIndex != device || *a.Attachment.NetworkCardIndex != 0 || len(a.PrivateIpAddresses) != n+1 || *a.NetworkInterfaceId == "" {
			t.Errorf("interface %d: %+v", n, a)
		}
	}
	if err := e.model.TerminateInstance(e.clock.Now(), e.node.ID); err != nil {
		t.Fatal(err)
	}
	e.clock.pass(time.Minute)
	dead := must(e.sdk.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{e.node.ID}})).Reservations[0].Instances[0]
	if dead.State.Name != types.InstanceStateNameTerminated || dead.SubnetId != nil || len(dead.NetworkInterfaces) != 0 {
		t.Errorf("terminated instance: %+v", dead)
	}
}

func TestDescribeInstanceTypes(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	got := must(e.sdk.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []types.InstanceType{"p4d.24xlarge", "m5.metal", "toy"},
	})).InstanceTypes
	if len(got) != 3 || got[0].InstanceType != "m5.metal" || !*got[0].BareMetal || got[0].Hypervisor != "" {
		t.Fatalf("%+v", got)
	}
	want := &types.NetworkInfo{
		MaximumNetworkInterfaces: ptr(int32(60)), Ipv4AddressesPerInterface: ptr(int32(50)), Ipv6AddressesPerInterface: ptr(int32(50)),
		Ipv6Supported: ptr(true), MaximumNetworkCards: ptr(int32(4)), DefaultNetworkCardIndex: ptr(int32(0)), EnaSupport: types.EnaSupportRequired, EfaSupported: ptr(true),
	}
	for n := range int32(4) {
		want.NetworkCards = append(want.NetworkCards, types.NetworkCardInfo{NetworkCardIndex: ptr(n), MaximumNetworkInterfaces: ptr(int32(15))})
	}
	if diff := cmp.Diff(want, got[1].NetworkInfo, sameSDK()); diff != "" {
		t.Error(diff)
	}
	if *got[2].NetworkInfo.Ipv4AddressesPerInterface != 3 || got[2].Hypervisor != types.InstanceTypeHypervisorNitro {
		t.Errorf("user-defined type: %+v", got[2])
	}
}

func TestDescribeNetworkParts(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	ctx := t.Context()
	subnets := must(e.sdk.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []types.Filter{
		{Name: ptr("vpc-id"), Values: []string{e.network.ID}}, {Name: ptr("tag:role"), Values: []string{"cni"}},
	}})).Subnets
	if len(subnets) != 1 || *subnets[0].SubnetId != e.subnet.ID || *subnets[0].AvailableIpAddressCount != 250 || *subnets[0].CidrBlock != "10.0.1.0/24" {
		t.Errorf("%+v", subnets)
	}
	vpcs := must(e.sdk.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{e.network.ID}})).Vpcs
	if len(vpcs) != 1 || *vpcs[0].CidrBlock != "10.0.0.0/16" || *vpcs[0].CidrBlockAssociationSet[0].CidrBlock != "10.0.0.0/16" {
		t.Errorf("%+v", vpcs)
	}
	groups := must(e.sdk.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{{Name: ptr("group-name"), Values: []string{"pod?"}}}})).SecurityGroups
	if len(groups) != 1 || *groups[0].GroupId != e.group.ID || *groups[0].VpcId != e.network.ID {
		t.Errorf("%+v", groups)
	}
}
