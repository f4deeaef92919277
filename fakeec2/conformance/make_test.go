package conformance

import (
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// realWait bounds how long a real instance may take to start.
const realWait = 10 * time.Minute

func (w *world) makeVPC(cidr string) string {
	w.t.Helper()
	out, err := w.sdk.CreateVpc(w.ctx(), &ec2.CreateVpcInput{CidrBlock: &cidr, AmazonProvidedIpv6CidrBlock: aws.Bool(true)})
	w.must(err)
	w.later(func() { _, _ = w.sdk.DeleteVpc(w.ctx(), &ec2.DeleteVpcInput{VpcId: out.Vpc.VpcId}) })
	return *out.Vpc.VpcId
}

func (w *world) makeSubnet(network, cidr, six, zone string) string {
	w.t.Helper()
	in := &ec2.CreateSubnetInput{VpcId: &network, CidrBlock: &cidr, AvailabilityZone: &zone}
	if six != "" {
		in.Ipv6CidrBlock = &six
	}
	out, err := w.sdk.CreateSubnet(w.ctx(), in)
	w.must(err)
	w.later(func() { _, _ = w.sdk.DeleteSubnet(w.ctx(), &ec2.DeleteSubnetInput{SubnetId: out.Subnet.SubnetId}) })
	return *out.Subnet.SubnetId
}

func (w *world) makeGroup(network, name string) string {
	w.t.Helper()
	out, err := w.sdk.CreateSecurityGroup(w.ctx(), &ec2.CreateSecurityGroupInput{VpcId: &network, GroupName: &name, Description: aws.String("conformance")})
	w.must(err)
	w.later(func() { _, _ = w.sdk.DeleteSecurityGroup(w.ctx(), &ec2.DeleteSecurityGroupInput{GroupId: out.GroupId}) })
	return *out.GroupId
}

// makeGateway makes an internet gateway that is attached to nothing.
func (w *world) makeGateway() string {
	w.t.Helper()
	out, err := w.sdk.CreateInternetGateway(w.ctx(), &ec2.CreateInternetGatewayInput{})
	w.must(err)
	w.later(func() {
		_, _ = w.sdk.DeleteInternetGateway(w.ctx(), &ec2.DeleteInternetGatewayInput{InternetGatewayId: out.InternetGateway.InternetGatewayId})
	})
	return *out.InternetGateway.InternetGatewayId
}

// image is what instances run: on the fake any id will do.
func image() string {
	if real() {
		return os.Getenv("CONFORMANCE_AMI")
	}
	return "ami-0123456789abcdef0"
}

// run starts an instance and waits until it runs.
func (w *world) run(kind string) string {
	w.t.Helper()
	image := image()
	out, err := w.sdk.RunInstances(w.ctx(), &ec2.RunInstancesInput{
		ImageId: &image, InstanceType: types.InstanceType(kind), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &w.subnet, SecurityGroupIds: []string{w.group},
	})
	w.must(err)
	id := *out.Instances[0].InstanceId
	w.pass(time.Minute)
	if real() {
		w.later(func() {
			_, _ = w.sdk.TerminateInstances(w.ctx(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
			_ = ec2.NewInstanceTerminatedWaiter(w.sdk).Wait(w.ctx(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}, realWait)
		})
		w.must(ec2.NewInstanceRunningWaiter(w.sdk).Wait(w.ctx(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}, realWait))
	}
	return id
}

func (w *world) instance(id string) types.Instance {
	w.t.Helper()
	out, err := w.sdk.DescribeInstances(w.ctx(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	w.must(err)
	return out.Reservations[0].Instances[0]
}

// eni makes an ENI, in the world's subnet where no other is named.
func (w *world) eni(in ec2.CreateNetworkInterfaceInput) string {
	w.t.Helper()
	if in.SubnetId == nil {
		in.SubnetId = &w.subnet
	}
	out, err := w.sdk.CreateNetworkInterface(w.ctx(), &in)
	w.must(err)
	id := *out.NetworkInterface.NetworkInterfaceId
	w.later(func() {
		_, _ = w.sdk.DeleteNetworkInterface(w.ctx(), &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &id})
	})
	return id
}

// attach attaches an ENI to the node and waits until it is.
func (w *world) attach(eni string, device int32) string {
	w.t.Helper()
	id, err := w.tryAttach(w.node, eni, device)
	w.must(err)
	w.pass(time.Minute)
	if real() {
		w.later(func() {
			_, _ = w.sdk.DetachNetworkInterface(w.ctx(), &ec2.DetachNetworkInterfaceInput{AttachmentId: &id, Force: aws.Bool(true)})
			_ = ec2.NewNetworkInterfaceAvailableWaiter(w.sdk).Wait(w.ctx(), &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{eni}}, realWait)
		})
	}
	return id
}

func (w *world) tryAttach(instance, eni string, device int32) (string, error) {
	out, err := w.sdk.AttachNetworkInterface(w.ctx(), &ec2.AttachNetworkInterfaceInput{
		InstanceId: &instance, NetworkInterfaceId: &eni, DeviceIndex: &device, NetworkCardIndex: aws.Int32(0),
	})
	if err != nil {
		return "", err
	}
	return *out.AttachmentId, nil
}

func (w *world) describe(eni string) types.NetworkInterface {
	w.t.Helper()
	out, err := w.sdk.DescribeNetworkInterfaces(w.ctx(), &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{eni}})
	w.must(err)
	return out.NetworkInterfaces[0]
}

func (w *world) secondaries(eni string) []string {
	w.t.Helper()
	var out []string
	for _, a := range w.describe(eni).PrivateIpAddresses {
		if !*a.Primary {
			out = append(out, *a.PrivateIpAddress)
		}
	}
	return out
}

func (w *world) associate(branch, trunk string, vlan int32) string {
	w.t.Helper()
	id, err := w.tryAssociate(branch, trunk, vlan)
	w.must(err)
	return id
}

func (w *world) tryAssociate(branch, trunk string, vlan int32) (string, error) {
	out, err := w.sdk.AssociateTrunkInterface(w.ctx(), &ec2.AssociateTrunkInterfaceInput{BranchInterfaceId: &branch, TrunkInterfaceId: &trunk, VlanId: &vlan})
	if err != nil {
		return "", err
	}
	return *out.InterfaceAssociation.AssociationId, nil
}
