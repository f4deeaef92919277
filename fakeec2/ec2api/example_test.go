package ec2api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// A region in a test's own process, asked by the real SDK, in time that the test lets pass.
func Example() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	model := vpc.New(vpc.Options{Seed: 1})
	network, err := model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	check(err)
	subnet, err := model.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	check(err)
	node, err := model.Launch(now, vpc.LaunchInput{Type: "m5.large", SubnetID: subnet.ID})
	check(err)

	faults := &fault.Table{}
	handler := ec2api.New(ec2api.Options{VPC: model, Faults: faults, Now: func() time.Time { return now }})
	server := httptest.NewServer(handler)
	defer server.Close()
	client := ec2.New(ec2.Options{
		Region: "us-west-2", BaseEndpoint: &server.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "any", SecretAccessKey: "any"}, nil
		}),
	})

	// The first two attempts are throttled; the SDK's third one gets through.
	check(faults.Add(fault.Rule{Name: "busy", Action: "CreateNetworkInterface", Kind: fault.Throttle, Times: 2}))
	ctx := context.Background()
	created, err := client.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{SubnetId: &subnet.ID})
	check(err)
	eni := created.NetworkInterface.NetworkInterfaceId
	_, err = client.AttachNetworkInterface(ctx, &ec2.AttachNetworkInterfaceInput{InstanceId: &node.ID, NetworkInterfaceId: eni, DeviceIndex: aws.Int32(1)})
	check(err)
	for range 2 {
		out, err := client.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*eni}})
		check(err)
		_, listed, _ := model.MetadataENIs(node.ID) // what instance metadata show
		fmt.Printf("%s, %d ENIs in the metadata\n", out.NetworkInterfaces[0].Attachment.Status, len(listed))
		now = now.Add(3 * time.Second)
	}
	check(model.Check()) // the books: every address on one ENI, every count right
	for _, request := range handler.Journal(0) {
		fmt.Println(request.Action, request.Attempt, request.Status)
	}
	// Output:
	// attaching, 1 ENIs in the metadata
	// attached, 2 ENIs in the metadata
	// CreateNetworkInterface 1 503
	// CreateNetworkInterface 2 503
	// CreateNetworkInterface 3 200
	// AttachNetworkInterface 1 200
	// DescribeNetworkInterfaces 1 200
	// DescribeNetworkInterfaces 1 200
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
