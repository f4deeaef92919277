package ec2api_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestErrorsByAction: what the SDK sees for each action's ways to fail.
func TestErrorsByAction(t *testing.T) {
	t.Parallel()
	unknown := ptr("eni-0123456789abcdef0")
	malformed := ptr("eni-xyz")
	cases := []struct {
		name, want string
		do         func(ctx context.Context, e *endpoint) error
	}{
		{"DescribeInstances unknown", "InvalidInstanceID.NotFound", call((*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-01234567"}})},
		{"DescribeInstances malformed", "InvalidInstanceID.Malformed", call((*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{InstanceIds: []string{"x"}})},
		{"DescribeInstances bad filter", "InvalidParameterValue", call((*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{Filters: filter("colour", "red")})},
		{"DescribeInstances dry run", "DryRunOperation", call((*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{DryRun: ptr(true)})},
		{"DescribeNetworkInterfaces unknown", "InvalidNetworkInterfaceID.NotFound", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*unknown}})},
		{"DescribeNetworkInterfaces malformed", "InvalidNetworkInterfaceId.Malformed", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*malformed}})},
		{"DescribeNetworkInterfaces ids and page size", "InvalidParameterCombination", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*unknown}, MaxResults: ptr(int32(10))})},
		{"DescribeNetworkInterfaces small page", "InvalidParameterValue", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{MaxResults: ptr(int32(4))})},
		{"DescribeNetworkInterfaces big page", "InvalidParameterValue", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{MaxResults: ptr(int32(1001))})},
		{"DescribeNetworkInterfaces bad token", "InvalidPaginationToken", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{MaxResults: ptr(int32(10)), NextToken: ptr("bad")})},
		{"DescribeNetworkInterfaces bad filter", "InvalidParameterValue", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{Filters: filter("colour", "red")})},
		{"DescribeNetworkInterfaces too many values", "FilterLimitExceeded", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{Filters: filter("status", make([]string, 201)...)})},
		{"DescribeNetworkInterfaces filter without value", "MissingParameter", call((*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{Filters: filter("status")})},
		{"DescribeSubnets unknown", "InvalidSubnetID.NotFound", call((*ec2.Client).DescribeSubnets, &ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-01234567"}})},
		{"DescribeSubnets bad filter", "InvalidParameterValue", call((*ec2.Client).DescribeSubnets, &ec2.DescribeSubnetsInput{Filters: filter("colour", "red")})},
		{"DescribeInstanceTypes unknown", "InvalidInstanceType", call((*ec2.Client).DescribeInstanceTypes, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"x9.huge"}})},
		{"DescribeInstanceTypes big page", "InvalidParameterValue", call((*ec2.Client).DescribeInstanceTypes, &ec2.DescribeInstanceTypesInput{MaxResults: ptr(int32(101))})},
		{"DescribeSecurityGroups unknown", "InvalidGroup.NotFound", call((*ec2.Client).DescribeSecurityGroups, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-01234567"}})},
		{"DescribeSecurityGroups by name", "UnsupportedOperation", call((*ec2.Client).DescribeSecurityGroups, &ec2.DescribeSecurityGroupsInput{GroupNames: []string{"pods"}})},
		{"DescribeVpcs unknown", "InvalidVpcID.NotFound", call((*ec2.Client).DescribeVpcs, &ec2.DescribeVpcsInput{VpcIds: []string{"vpc-01234567"}})},
		{"CreateNetworkInterface unknown subnet", "InvalidSubnetID.NotFound", call((*ec2.Client).CreateNetworkInterface, &ec2.CreateNetworkInterfaceInput{SubnetId: ptr("subnet-01234567")})},
		{"CreateNetworkInterface unknown group", "InvalidGroup.NotFound", creating(ec2.CreateNetworkInterfaceInput{Groups: []string{"sg-01234567"}})},
		{"CreateNetworkInterface operator", "UnsupportedOperation", creating(ec2.CreateNetworkInterfaceInput{Operator: &types.OperatorRequest{Principal: ptr("x")}})},
		{"CreateNetworkInterface bad address", "InvalidParameterValue", creating(ec2.CreateNetworkInterfaceInput{PrivateIpAddress: ptr("ten")})},
		{"CreateNetworkInterface held address", "InvalidIPAddress.InUse", creating(ec2.CreateNetworkInterfaceInput{PrivateIpAddress: ptr("10.0.1.20")})},
		{"CreateNetworkInterface count and list", "InvalidParameterCombination", creating(ec2.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: ptr(int32(1)), PrivateIpAddresses: []types.PrivateIpAddressSpecification{{PrivateIpAddress: ptr("10.0.1.9")}}})},
		{"CreateNetworkInterface two primaries", "InvalidParameterCombination", creating(ec2.CreateNetworkInterfaceInput{PrivateIpAddress: ptr("10.0.1.8"), PrivateIpAddresses: []types.PrivateIpAddressSpecification{{PrivateIpAddress: ptr("10.0.1.9"), Primary: ptr(true)}}})},
		{"CreateNetworkInterface too many addresses", "PrivateIpAddressLimitExceeded", creating(ec2.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: ptr(int32(50))})},
		{"CreateNetworkInterface tags for another thing", "InvalidParameterValue", creating(ec2.CreateNetworkInterfaceInput{TagSpecifications: []types.TagSpecification{{ResourceType: "instance"}}})},
		{"CreateNetworkInterface aws tag", "InvalidParameterValue", creating(ec2.CreateNetworkInterfaceInput{TagSpecifications: []types.TagSpecification{{ResourceType: "network-interface", Tags: []types.Tag{{Key: ptr("aws:x"), Value: ptr("")}}}}})},
		{"CreateNetworkInterface dry run", "DryRunOperation", creating(ec2.CreateNetworkInterfaceInput{DryRun: ptr(true)})},
		{"AttachNetworkInterface unknown ENI", "InvalidNetworkInterfaceID.NotFound", attaching(func(*endpoint) *string { return unknown }, 1)},
		{"AttachNetworkInterface taken index", "InvalidParameterValue", attaching(func(e *endpoint) *string { return ptr(e.create(0).ID) }, 0)},
		{"AttachNetworkInterface in use", "InvalidNetworkInterface.InUse", attaching(func(e *endpoint) *string { return ptr(e.model.InstanceENIs(e.node.ID)[0].ID) }, 1)},
		{"AttachNetworkInterface too many addresses", "PrivateIpAddressLimitExceeded", attaching(func(e *endpoint) *string { return ptr(e.create(15).ID) }, 1)},
		{"AttachNetworkInterface too many ENIs", "AttachmentLimitExceeded", attaching(func(e *endpoint) *string {
			for n := range 3 {
				e.attach(e.create(0), n+1)
			}
			return ptr(e.create(0).ID)
		}, 4)},
		{"AttachNetworkInterface dead instance", "IncorrectInstanceState", attaching(func(e *endpoint) *string {
			if err := e.model.TerminateInstance(e.clock.Now(), e.node.ID); err != nil {
				return nil
			}
			return ptr(e.create(0).ID)
		}, 1)},
		{"DetachNetworkInterface unknown", "InvalidAttachmentID.NotFound", call((*ec2.Client).DetachNetworkInterface, &ec2.DetachNetworkInterfaceInput{AttachmentId: ptr("eni-attach-01234567")})},
		{"DetachNetworkInterface primary", "OperationNotPermitted", func(ctx context.Context, e *endpoint) error {
			_, err := e.sdk.DetachNetworkInterface(ctx, &ec2.DetachNetworkInterfaceInput{AttachmentId: &e.model.InstanceENIs(e.node.ID)[0].Attachment.ID})
			return err
		}},
		{"DeleteNetworkInterface unknown", "InvalidNetworkInterfaceID.NotFound", call((*ec2.Client).DeleteNetworkInterface, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: unknown})},
		{"DeleteNetworkInterface attached", "InvalidParameterValue", func(ctx context.Context, e *endpoint) error {
			_, err := e.sdk.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &e.model.InstanceENIs(e.node.ID)[0].ID})
			return err
		}},
		{"ModifyNetworkInterfaceAttribute two", "InvalidParameterCombination", modifying(ec2.ModifyNetworkInterfaceAttributeInput{Description: &types.AttributeValue{Value: ptr("x")}, SourceDestCheck: &types.AttributeBooleanValue{Value: ptr(true)}})},
		{"ModifyNetworkInterfaceAttribute none", "MissingParameter", modifying(ec2.ModifyNetworkInterfaceAttributeInput{})},
		{"ModifyNetworkInterfaceAttribute flag without value", "MissingParameter", modifying(ec2.ModifyNetworkInterfaceAttributeInput{Attachment: &types.NetworkInterfaceAttachmentChanges{AttachmentId: ptr("eni-attach-01234567")}})},
		{"AssignPrivateIpAddresses limit", "PrivateIpAddressLimitExceeded", assigning(ec2.AssignPrivateIpAddressesInput{SecondaryPrivateIpAddressCount: ptr(int32(15))})},
		{"AssignPrivateIpAddresses zero", "InvalidParameterValue", assigning(ec2.AssignPrivateIpAddressesInput{SecondaryPrivateIpAddressCount: ptr(int32(0))})},
		{"AssignPrivateIpAddresses nothing", "MissingParameter", assigning(ec2.AssignPrivateIpAddressesInput{})},
		{"AssignPrivateIpAddresses outside", "InvalidParameterValue", assigning(ec2.AssignPrivateIpAddressesInput{PrivateIpAddresses: []string{"10.9.9.9"}})},
		{"UnassignPrivateIpAddresses unknown", "InvalidParameterValue", func(ctx context.Context, e *endpoint) error {
			_, err := e.sdk.UnassignPrivateIpAddresses(ctx, &ec2.UnassignPrivateIpAddressesInput{NetworkInterfaceId: &e.model.InstanceENIs(e.node.ID)[0].ID, PrivateIpAddresses: []string{"10.0.1.77"}})
			return err
		}},
		{"CreateTags unknown", "InvalidNetworkInterfaceID.NotFound", call((*ec2.Client).CreateTags, &ec2.CreateTagsInput{Resources: []string{*unknown}, Tags: []types.Tag{{Key: ptr("a"), Value: ptr("b")}}})},
		{"CreateTags twice the key", "InvalidParameterValue", call((*ec2.Client).CreateTags, &ec2.CreateTagsInput{Resources: []string{*unknown}, Tags: []types.Tag{{Key: ptr("a")}, {Key: ptr("a")}}})},
		{"an action of EC2 that the fake has not", "InvalidAction", call((*ec2.Client).DescribeRegions, &ec2.DescribeRegionsInput{})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := newEndpoint(t)
			err := c.do(t.Context(), e)
			if got := codeOf(err); got != c.want {
				t.Fatalf("code %q, want %q (%v)", got, c.want, err)
			}
			status := 400
			if c.want == "DryRunOperation" {
				status = 412
			}
			var answer *awshttp.ResponseError
			if !errors.As(err, &answer) || answer.HTTPStatusCode() != status || answer.RequestID == "" {
				t.Fatalf("status %d, request %q, want %d and an id", answer.HTTPStatusCode(), answer.RequestID, status)
			}
			journal := e.handler.Journal(0)
			last := journal[len(journal)-1]
			if action, _, _ := strings.Cut(c.name, " "); last.Code != c.want || last.Status != status || action != last.Action && c.want != "InvalidAction" {
				t.Fatalf("journal: %+v", last)
			}
			if err := e.model.Check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// call makes a case of a client method that needs nothing of the endpoint.
func call[In, Out any](method func(*ec2.Client, context.Context, *In, ...func(*ec2.Options)) (*Out, error), in *In) func(context.Context, *endpoint) error {
	return func(ctx context.Context, e *endpoint) error {
		_, err := method(e.sdk, ctx, in)
		return err
	}
}

func filter(name string, values ...string) []types.Filter {
	return []types.Filter{{Name: aws.String(name), Values: values}}
}

func creating(in ec2.CreateNetworkInterfaceInput) func(context.Context, *endpoint) error {
	return func(ctx context.Context, e *endpoint) error {
		in.SubnetId = &e.subnet.ID
		_, err := e.sdk.CreateNetworkInterface(ctx, &in)
		return err
	}
}

func attaching(eni func(*endpoint) *string, device int32) func(context.Context, *endpoint) error {
	return func(ctx context.Context, e *endpoint) error {
		_, err := e.sdk.AttachNetworkInterface(ctx, &ec2.AttachNetworkInterfaceInput{InstanceId: &e.node.ID, NetworkInterfaceId: eni(e), DeviceIndex: &device})
		return err
	}
}

func modifying(in ec2.ModifyNetworkInterfaceAttributeInput) func(context.Context, *endpoint) error {
	return func(ctx context.Context, e *endpoint) error {
		in.NetworkInterfaceId = &e.model.InstanceENIs(e.node.ID)[0].ID
		_, err := e.sdk.ModifyNetworkInterfaceAttribute(ctx, &in)
		return err
	}
}

func assigning(in ec2.AssignPrivateIpAddressesInput) func(context.Context, *endpoint) error {
	return func(ctx context.Context, e *endpoint) error {
		in.NetworkInterfaceId = &e.model.InstanceENIs(e.node.ID)[0].ID
		_, err := e.sdk.AssignPrivateIpAddresses(ctx, &in)
		return err
	}
}
