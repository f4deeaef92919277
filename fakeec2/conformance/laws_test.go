package conformance

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// row is one cell of the table: a request of an action that is refused with a code.
type row struct {
	action, code, name string
	fakeOnly           bool
	with               func(*options) // of a fake world
	send               func(w *world) error
}

// sending is a row's request: the good one, changed.
func sending(action string, change ...func(*ec2.Options)) func(*world) error {
	return func(w *world) error { return w.do(action, change...) }
}

// within is sending with parameters that are known only in the world.
func within(action string, pairs func(w *world) []string) func(*world) error {
	return func(w *world) error { return w.do(action, set(pairs(w)...)) }
}

// manyTags are parameters with so many tags.
func manyTags(prefix string, count int) []string {
	var out []string
	for n := range count {
		out = append(out, fmt.Sprintf("%s.%d.Key", prefix, n+1), fmt.Sprint("k", n), fmt.Sprintf("%s.%d.Value", prefix, n+1), "v")
	}
	return out
}

// laws are the rows that follow from EC2's laws, beyond ids and the wire.
func laws() []row {
	rows := append(eniLaws(), addressLaws()...)
	rows = append(rows, tagLaws()...)
	return append(rows, worldLaws()...)
}

func eniLaws() []row {
	const attach, modify, associate = "AttachNetworkInterface", "ModifyNetworkInterfaceAttribute", "AssociateTrunkInterface"
	noCheck := []string{"SourceDestCheck.Value", ""}
	attachment := func(id string) []string {
		return append(slices.Clone(noCheck), "Attachment.DeleteOnTermination", "true", "Attachment.AttachmentId", id)
	}
	return []row{
		{action: "DescribeNetworkInterfaces", code: "OperationNotPermitted", name: "unpaged in a big account", fakeOnly: true, with: func(o *options) { o.endpoint.MaxUnpaged = 3 },
			send: sending("DescribeNetworkInterfaces", set("NetworkInterfaceId.1", ""))},
		{action: "DescribeInstanceTypes", code: "InvalidInstanceType", send: sending("DescribeInstanceTypes", set("InstanceType.1", "x9.huge"))},

		{action: attach, code: "InvalidParameterValue", name: "device index is taken", send: sending(attach, set("DeviceIndex", "1"))},
		{action: attach, code: "InvalidParameterValue", name: "no such card", send: sending(attach, set("NetworkCardIndex", "3"))},
		{action: attach, code: "InvalidNetworkInterface.InUse", send: within(attach, func(w *world) []string { return []string{"NetworkInterfaceId", w.attached} })},
		{action: attach, code: "InvalidNetworkInterface.InUse", name: "a branch", fakeOnly: true, send: within(attach, func(w *world) []string { return []string{"NetworkInterfaceId", w.branch} })},
		{action: attach, code: "InvalidParameterCombination", name: "another zone", send: func(w *world) error {
			_, err := w.tryAttach(w.node, w.eni(ec2.CreateNetworkInterfaceInput{SubnetId: &w.farSubnet}), 2)
			return err
		}},
		{action: attach, code: "InvalidParameterCombination", name: "another VPC", send: func(w *world) error {
			_, err := w.tryAttach(w.node, w.eni(ec2.CreateNetworkInterfaceInput{SubnetId: &w.otherSubnet}), 2)
			return err
		}},
		{action: attach, code: "AttachmentLimitExceeded", send: func(w *world) error {
			w.attach(w.free, 2)
			_, err := w.tryAttach(w.node, w.eni(ec2.CreateNetworkInterfaceInput{}), 3)
			return err
		}},
		{action: attach, code: "PrivateIpAddressLimitExceeded", send: func(w *world) error {
			_, err := w.tryAttach(w.node, w.eni(ec2.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: aws.Int32(12)}), 2)
			return err
		}},
		{action: attach, code: "InvalidParameterCombination", name: "a trunk on a type without", send: func(w *world) error {
			_, err := w.tryAttach(w.run("t3.small"), w.trunk, 1)
			return err
		}},
		{action: attach, code: "InvalidParameterCombination", name: "a prefix on Xen", send: func(w *world) error {
			_, err := w.tryAttach(w.run("m4.large"), w.eni(ec2.CreateNetworkInterfaceInput{Ipv4PrefixCount: aws.Int32(1)}), 1)
			return err
		}},
		{action: attach, code: "IncorrectInstanceState", send: func(w *world) error {
			id := w.run("m5.large")
			_, err := w.sdk.TerminateInstances(w.ctx(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
			w.must(err)
			_, err = w.tryAttach(id, w.free, 1)
			return err
		}},

		{action: "DetachNetworkInterface", code: "OperationNotPermitted", name: "the primary", send: within("DetachNetworkInterface", func(w *world) []string {
			return []string{"AttachmentId", *w.describe(w.primary).Attachment.AttachmentId}
		})},
		{action: "DetachNetworkInterface", code: "OperationNotPermitted", name: "ela-attach", send: sending("DetachNetworkInterface", set("AttachmentId", "ela-attach-0123456789abcdef0"))},
		{action: "DetachNetworkInterface", code: "IncorrectState", send: func(w *world) error {
			w.must(w.do("DetachNetworkInterface"))
			return w.do("DetachNetworkInterface")
		}},
		{action: "DeleteNetworkInterface", code: "InvalidParameterValue", name: "attached", send: within("DeleteNetworkInterface", func(w *world) []string { return []string{"NetworkInterfaceId", w.attached} })},
		{action: "DeleteNetworkInterface", code: "InvalidParameterValue", name: "a trunk with branches", fakeOnly: true, send: within("DeleteNetworkInterface", func(w *world) []string { return []string{"NetworkInterfaceId", w.trunk} })},

		{action: modify, code: "InvalidParameterCombination", name: "two attributes", send: sending(modify, set("Description.Value", "x"))},
		{action: modify, code: "InvalidNetworkInterfaceAttachmentId.Malformed", send: sending(modify, set(attachment("attach-1")...))},
		{action: modify, code: "InvalidAttachmentID.NotFound", send: sending(modify, set(attachment("eni-attach-0123456789abcdef0")...))},
		{action: modify, code: "OperationNotPermitted", send: sending(modify, set(attachment("ela-attach-0123456789abcdef0")...))},
		{action: modify, code: "InvalidGroupId.Malformed", send: sending(modify, set(append(slices.Clone(noCheck), "SecurityGroupId.1", "sg-x")...))},
		{action: modify, code: "InvalidGroup.NotFound", send: sending(modify, set(append(slices.Clone(noCheck), "SecurityGroupId.1", "sg-0123456789abcdef0")...))},
		{action: modify, code: "SecurityGroupsPerInterfaceLimitExceeded", send: sending(modify, set(noCheck...), sixGroups("SecurityGroupId"))},

		{action: associate, code: "InvalidNetworkInterface.InUse", fakeOnly: true, send: within(associate, func(w *world) []string { return []string{"BranchInterfaceId", w.attached} })},
		{action: associate, code: "InvalidParameterCombination", fakeOnly: true, send: within(associate, func(w *world) []string {
			return []string{"BranchInterfaceId", w.eni(ec2.CreateNetworkInterfaceInput{SubnetId: &w.farSubnet})}
		})},
		{action: associate, code: "InvalidParameterValue", name: "the VLAN is taken", fakeOnly: true, send: sending(associate, set("VlanId", "7"))},
		{action: associate, code: "InvalidParameterValue", name: "not a trunk", fakeOnly: true, send: within(associate, func(w *world) []string { return []string{"TrunkInterfaceId", w.attached} })},
		{action: associate, code: "AttachmentLimitExceeded", fakeOnly: true, send: func(w *world) error {
			_, err := w.tryAttach(w.run("toy"), w.trunk, 1)
			w.must(err)
			return w.do(associate)
		}},
		{action: associate, code: "IdempotentParameterMismatch", fakeOnly: true, send: func(w *world) error {
			w.must(w.do(associate, set("ClientToken", "t")))
			return w.do(associate, set("ClientToken", "t", "VlanId", "9"))
		}},
		{action: "DisassociateTrunkInterface", code: "IdempotentParameterMismatch", fakeOnly: true, send: func(w *world) error {
			w.must(w.do("DisassociateTrunkInterface", set("ClientToken", "t")))
			return w.do("DisassociateTrunkInterface", set("ClientToken", "t", "AssociationId", "trunk-assoc-0123456789abcdef0"))
		}},
		{action: "CreateNetworkInterfacePermission", code: "InvalidPermission.Duplicate", send: func(w *world) error {
			w.must(w.do("CreateNetworkInterfacePermission"))
			return w.do("CreateNetworkInterfacePermission")
		}},
		{action: "CreateNetworkInterfacePermission", code: "InvalidParameterCombination", send: sending("CreateNetworkInterfacePermission", set("AwsService", "x.amazonaws.com"))},
	}
}

func sixGroups(parameter string) func(*ec2.Options) {
	return form(func(v url.Values) {
		for n := range 6 {
			v.Set(fmt.Sprint(parameter, ".", n+1), fmt.Sprintf("sg-0123456789abcde%02d", n))
		}
	})
}

func addressLaws() []row {
	const assign, assign6, create = "AssignPrivateIpAddresses", "AssignIpv6Addresses", "CreateNetworkInterface"
	count, count6 := "SecondaryPrivateIpAddressCount", "Ipv6AddressCount"
	nau := func(o *options) { o.vpc.NAULimit = 7 }
	peered := func(o *options) { o.vpc.PeeredNAU = 7 }
	// reserved keeps all of the subnet's IPv6 from being drawn.
	reserved := func(w *world) {
		out, err := w.sdk.DescribeSubnets(w.ctx(), &ec2.DescribeSubnetsInput{SubnetIds: []string{w.subnet}})
		w.must(err)
		_, err = w.sdk.CreateSubnetCidrReservation(w.ctx(), &ec2.CreateSubnetCidrReservationInput{
			SubnetId: &w.subnet, Cidr: out.Subnets[0].Ipv6CidrBlockAssociationSet[0].Ipv6CidrBlock, ReservationType: types.SubnetCidrReservationTypeExplicit,
		})
		w.must(err)
	}
	// fragmented has one address held in each block of the subnet.
	fragmented := func(w *world) {
		for block := 1; block < 15; block++ {
			_, err := w.sdk.CreateNetworkInterface(w.ctx(), &ec2.CreateNetworkInterfaceInput{SubnetId: &w.subnet, PrivateIpAddress: aws.String(fmt.Sprintf("10.0.1.%d", 16*block+1))})
			if code(err) != "InvalidIPAddress.InUse" {
				w.must(err)
			}
		}
	}
	full := func(action string, then ...func(*ec2.Options)) func(*world) error {
		return func(w *world) error {
			fragmented(w)
			return w.do(action, then...)
		}
	}
	peering := func(w *world) {
		if _, err := w.model.AddPeering(vpcPeering(w)); err != nil {
			w.t.Fatal(err)
		}
	}
	// crowded attaches an ENI whose creation took more than the VPC may have.
	crowded := func(w *world) error {
		_, err := w.tryAttach(w.node, w.eni(ec2.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: aws.Int32(8)}), 2)
		return err
	}
	small := func(w *world) []string {
		return []string{"NetworkInterfaceId", w.eni(ec2.CreateNetworkInterfaceInput{SubnetId: &w.small}), count, "11"}
	}
	return []row{
		{action: create, code: "PrivateIpAddressLimitExceeded", send: sending(create, set(count, "50"))},
		{action: create, code: "InsufficientFreeAddressesInSubnet", send: within(create, func(w *world) []string { return []string{"SubnetId", w.small, count, "11"} })},
		{action: create, code: "InsufficientCidrBlocks", send: full(create, set("Ipv4PrefixCount", "1"))},
		{action: create, code: "InvalidParameterValue", name: "fewer than 16 free", send: within(create, func(w *world) []string { return []string{"SubnetId", w.small, "Ipv4PrefixCount", "1"} })},
		{action: create, code: "InvalidIPAddress.InUse", send: within(create, func(w *world) []string { return []string{"PrivateIpAddress", w.secondary} })},
		{action: create, code: "InvalidParameterCombination", send: sending(create, set(count, "1", "Ipv4PrefixCount", "1"))},
		{action: create, code: "SecurityGroupsPerInterfaceLimitExceeded", send: sending(create, sixGroups("SecurityGroupId"))},
		{action: create, code: "InvalidParameterValue", name: "a group of another VPC", send: within(create, func(w *world) []string { return []string{"SecurityGroupId.1", w.otherGroup} })},
		{action: create, code: "NetworkInterfaceLimitExceeded", fakeOnly: true, with: func(o *options) { o.vpc.ENIQuota = 5 }, send: sending(create)},
		{action: create, code: "IdempotentParameterMismatch", send: func(w *world) error {
			w.must(w.do(create, set("ClientToken", "t")))
			return w.do(create, set("ClientToken", "t", count, "1"))
		}},

		{action: assign, code: "PrivateIpAddressLimitExceeded", send: sending(assign, set(count, "9"))},
		{action: assign, code: "InsufficientFreeAddressesInSubnet", send: within(assign, small)},
		{action: assign, code: "InsufficientCidrBlocks", send: full(assign, set(count, "", "Ipv4PrefixCount", "1"))},
		{action: assign, code: "InvalidParameterValue", name: "fewer than 16 free", send: within(assign, func(w *world) []string {
			return append(small(w)[:2], count, "", "Ipv4PrefixCount", "1")
		})},
		{action: assign, code: "InvalidIPAddress.InUse", name: "a primary address", send: within(assign, func(w *world) []string {
			return []string{count, "", "PrivateIpAddress.1", *w.describe(w.primary).PrivateIpAddress}
		})},
		{action: assign, code: "Resource.AlreadyAssigned", send: within(assign, func(w *world) []string {
			return []string{"NetworkInterfaceId", w.free, count, "", "PrivateIpAddress.1", w.secondary}
		})},
		{action: assign, code: "InvalidParameterCombination", send: sending(assign, set("PrivateIpAddress.1", "10.0.1.99"))},
		{action: assign, code: "InvalidParameterValue", name: "outside the subnet", send: sending(assign, set(count, "", "PrivateIpAddress.1", "10.0.2.9"))},
		{action: assign, code: "NetworkAddressUsageLimitExceeded", fakeOnly: true, with: nau, send: sending(assign, set(count, "3"))},
		{action: assign, code: "NetworkAddressUsagePeeredLimitExceeded", fakeOnly: true, with: peered, send: func(w *world) error {
			peering(w)
			return w.do(assign, set(count, "3"))
		}},
		{action: "AttachNetworkInterface", code: "NetworkAddressUsageLimitExceeded", fakeOnly: true, with: nau, send: crowded},
		{action: "AttachNetworkInterface", code: "NetworkAddressUsagePeeredLimitExceeded", fakeOnly: true, with: peered, send: func(w *world) error {
			peering(w)
			return crowded(w)
		}},
		{action: "UnassignPrivateIpAddresses", code: "InvalidParameterValue", name: "not there", send: sending("UnassignPrivateIpAddresses", set("PrivateIpAddress.1", "10.0.1.239"))},
		{action: "UnassignPrivateIpAddresses", code: "InvalidParameterValue", name: "the primary", send: within("UnassignPrivateIpAddresses", func(w *world) []string {
			return []string{"PrivateIpAddress.1", *w.describe(w.attached).PrivateIpAddress}
		})},
		{action: "UnassignPrivateIpAddresses", code: "InvalidParameterCombination", send: sending("UnassignPrivateIpAddresses", set("Ipv4Prefix.1", "10.0.1.32/28"))},

		{action: assign6, code: "PrivateIpAddressLimitExceeded", send: sending(assign6, set(count6, "11"))},
		{action: assign6, code: "InsufficientFreeAddressesInSubnet", fakeOnly: true, send: func(w *world) error {
			reserved(w)
			return w.do(assign6)
		}},
		{action: assign6, code: "InsufficientCidrBlocks", fakeOnly: true, send: func(w *world) error {
			reserved(w)
			return w.do(assign6, set(count6, "", "Ipv6PrefixCount", "1"))
		}},
		{action: assign6, code: "InvalidIPAddress.InUse", send: func(w *world) error {
			w.must(w.do(assign6))
			return w.do(assign6, set("NetworkInterfaceId", w.free, count6, "", "Ipv6Addresses.1", *w.describe(w.attached).Ipv6Addresses[0].Ipv6Address))
		}},
		{action: assign6, code: "InvalidParameterCombination", send: sending(assign6, set("Ipv6PrefixCount", "1"))},
		{action: assign6, code: "InvalidParameterValue", name: "a subnet without IPv6", send: within(assign6, func(w *world) []string {
			return []string{"NetworkInterfaceId", w.eni(ec2.CreateNetworkInterfaceInput{SubnetId: &w.small})}
		})},
		{action: assign6, code: "NetworkAddressUsageLimitExceeded", fakeOnly: true, with: nau, send: sending(assign6, set(count6, "3"))},
		{action: assign6, code: "NetworkAddressUsagePeeredLimitExceeded", fakeOnly: true, with: peered, send: func(w *world) error {
			peering(w)
			return w.do(assign6, set(count6, "3"))
		}},
		{action: "UnassignIpv6Addresses", code: "InvalidParameterValue", name: "not there", send: sending("UnassignIpv6Addresses")},
	}
}
