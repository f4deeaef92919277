package conformance

import (
	"fmt"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

func vpcPeering(w *world) vpc.Peering { return vpc.Peering{A: w.network, B: w.elsewhere} }

func tagLaws() []row {
	settle := func(o *options) { o.vpc.TagSettle = time.Second }
	rows := []row{{action: "CreateTags", code: "TagLimitExceeded", send: sending("CreateTags", set(manyTags("Tag", 51)...))}}
	for _, action := range []string{"CreateTags", "DeleteTags"} {
		rows = append(rows,
			row{action: action, code: "InvalidID", send: sending(action, set("ResourceId.1", "x-1"))},
			row{action: action, code: "InvalidParameterValue", name: "aws:", send: sending(action, set("Tag.1.Key", "aws:x"))},
			row{action: action, code: "ConcurrentTagAccess", fakeOnly: true, with: settle, send: func(w *world) error {
				w.must(w.do("CreateTags"))
				return w.do(action)
			}},
		)
	}
	for action, kind := range map[string]string{
		"CreateNetworkInterface": "network-interface", "CreateVpc": "vpc", "CreateSubnet": "subnet", "CreateSecurityGroup": "security-group",
		"CreateSubnetCidrReservation": "subnet-cidr-reservation", "RunInstances": "instance", "CreateInternetGateway": "internet-gateway",
	} {
		rows = append(rows,
			row{action: action, code: "TagLimitExceeded", send: sending(action, set("TagSpecification.1.ResourceType", kind), set(manyTags("TagSpecification.1.Tag", 51)...))},
			row{action: action, code: "InvalidParameterValue", name: "tags of another kind", send: sending(action, set("TagSpecification.1.ResourceType", "volume"))},
		)
	}
	return rows
}

func worldLaws() []row {
	const run, subnet, first = "RunInstances", "CreateSubnet", "NetworkInterface.1."
	count := first + "SecondaryPrivateIpAddressCount"
	rows := []row{
		{action: "CreateVpc", code: "InvalidVpcRange", send: sending("CreateVpc", set("CidrBlock", "10.0.0.0/8"))},
		{action: "CreateVpc", code: "InvalidParameterCombination", send: sending("CreateVpc", set("AmazonProvidedIpv6CidrBlock", "true", "Ipv6CidrBlock", "2600:1f14:aaaa::/56"))},
		{action: subnet, code: "InvalidSubnet.Range", send: sending(subnet, set("CidrBlock", "10.9.9.0/24"))},
		{action: subnet, code: "InvalidSubnet.Conflict", send: sending(subnet, set("CidrBlock", "10.0.1.128/25"))},
		{action: subnet, code: "InvalidParameterCombination", send: sending(subnet, set("Ipv6Native", "true"))},
		{action: "CreateSubnetCidrReservation", code: "InvalidParameterValue", name: "outside", send: sending("CreateSubnetCidrReservation", set("Cidr", "10.0.2.0/28"))},
		{action: "CreateSubnetCidrReservation", code: "InvalidParameterValue", name: "overlapping", send: sending("CreateSubnetCidrReservation", set("Cidr", "10.0.1.240/28"))},
		{action: "CreateSecurityGroup", code: "InvalidGroup.Duplicate", send: sending("CreateSecurityGroup", set("GroupName", "nodes"))},

		{action: run, code: "InvalidParameterValue", name: "unknown type", send: sending(run, set("InstanceType", "x9.huge"))},
		{action: run, code: "InvalidParameterCombination", name: "an address for two", send: sending(run, set("MaxCount", "2", first+"PrivateIpAddress", "10.0.1.77"))},
		{action: run, code: "InvalidParameterCombination", name: "two subnets", send: within(run, func(w *world) []string { return []string{"SubnetId", w.subnet} })},
		{action: run, code: "InvalidNetworkInterface.InUse", send: within(run, func(w *world) []string { return existing(w.attached) })},
		{action: run, code: "SecurityGroupsPerInterfaceLimitExceeded", send: sending(run, sixGroups(first+"SecurityGroupId"))},
		{action: run, code: "PrivateIpAddressLimitExceeded", send: sending(run, set(count, "10"))},
		{action: run, code: "InsufficientFreeAddressesInSubnet", send: within(run, func(w *world) []string {
			return []string{first + "SubnetId", w.small, "InstanceType", "c5.18xlarge", count, "12"}
		})},
		{action: run, code: "InsufficientCidrBlocks", send: sending(run, set("MinCount", "15", "MaxCount", "15", first+"Ipv4PrefixCount", "1"))},
		{action: run, code: "InvalidIPAddress.InUse", send: within(run, func(w *world) []string { return []string{first + "PrivateIpAddress", w.secondary} })},
		{action: run, code: "AttachmentLimitExceeded", send: func(w *world) error {
			var more []string
			for n := 2; n < 5; n++ {
				more = append(more, fmt.Sprintf("NetworkInterface.%d.DeviceIndex", n), fmt.Sprint(n), fmt.Sprintf("NetworkInterface.%d.SubnetId", n), w.subnet)
			}
			return w.do(run, set(more...))
		}},
		{action: run, code: "NetworkInterfaceLimitExceeded", fakeOnly: true, with: func(o *options) { o.vpc.ENIQuota = 5 }, send: sending(run)},
		{action: run, code: "NetworkAddressUsageLimitExceeded", fakeOnly: true, with: func(o *options) { o.vpc.NAULimit = 7 }, send: sending(run, set(count, "3"))},
		{action: run, code: "NetworkAddressUsagePeeredLimitExceeded", fakeOnly: true, with: func(o *options) { o.vpc.PeeredNAU = 7 }, send: func(w *world) error {
			if _, err := w.model.AddPeering(vpcPeering(w)); err != nil {
				w.t.Fatal(err)
			}
			return w.do(run, set(count, "3"))
		}},
		{action: run, code: "IdempotentParameterMismatch", send: func(w *world) error {
			w.must(w.do(run, set("ClientToken", "t")))
			return w.do(run, set("ClientToken", "t", "MetadataOptions.HttpPutResponseHopLimit", "2"))
		}},
	}
	for _, action := range []string{"StopInstances", "StartInstances", "ModifyInstanceMetadataOptions"} {
		rows = append(rows, row{action: action, code: "IncorrectInstanceState", send: func(w *world) error {
			w.must(w.do("TerminateInstances"))
			return w.do(action)
		}})
	}
	rows = append(rows, gatewayLaws()...)
	return append(rows, ruleLaws()...)
}

// existing are the parameters of RunInstances with an ENI that is there.
func existing(eni string) []string {
	const first = "NetworkInterface.1."
	return []string{first + "SubnetId", "", first + "SecurityGroupId.1", "", first + "NetworkInterfaceId", eni}
}

func gatewayLaws() []row {
	const attach, detach, remove, route, unroute = "AttachInternetGateway", "DetachInternetGateway", "DeleteInternetGateway", "CreateRoute", "DeleteRoute"
	both := []string{"DestinationIpv6CidrBlock", "::/0", "DestinationCidrBlock", "0.0.0.0/0"}
	return []row{
		{action: attach, code: "Resource.AlreadyAssociated", send: within(attach, func(w *world) []string { return []string{"InternetGatewayId", w.gateway} })},
		{action: attach, code: "InvalidParameterValue", name: "a second one", send: within(attach, func(w *world) []string { return []string{"VpcId", w.network} })},
		{action: detach, code: "Gateway.NotAttached", send: within(detach, func(w *world) []string { return []string{"InternetGatewayId", w.freeGateway} })},
		{action: detach, code: "DependencyViolation", send: func(w *world) error {
			w.must(w.do("RunInstances", set("NetworkInterface.1.AssociatePublicIpAddress", "true")))
			return w.do(detach)
		}},
		{action: remove, code: "DependencyViolation", send: within(remove, func(w *world) []string { return []string{"InternetGatewayId", w.gateway} })},
		{action: route, code: "RouteAlreadyExists", send: func(w *world) error {
			w.must(w.do(route))
			return w.do(route)
		}},
		{action: route, code: "InvalidParameterValue", name: "a gateway of another VPC", send: within(route, func(w *world) []string { return []string{"GatewayId", w.freeGateway} })},
		{action: route, code: "InvalidParameterCombination", send: sending(route, set(both...))},
		{action: unroute, code: "InvalidRoute.NotFound", send: sending(unroute, set("DestinationIpv6CidrBlock", "", "DestinationCidrBlock", "0.0.0.0/0"))},
		{action: unroute, code: "InvalidParameterCombination", send: sending(unroute, set(both...))},
	}
}

func ruleLaws() []row {
	var rows []row
	for _, direction := range []string{"Ingress", "Egress"} {
		authorize, revoke := "AuthorizeSecurityGroup"+direction, "RevokeSecurityGroup"+direction
		rows = append(rows,
			row{action: authorize, code: "InvalidPermission.Duplicate", send: func(w *world) error {
				w.must(w.do(authorize))
				return w.do(authorize)
			}},
			row{action: authorize, code: "RulesPerSecurityGroupLimitExceeded", send: func(w *world) error {
				var many []string
				for n := range 61 {
					many = append(many, fmt.Sprintf("IpPermissions.1.IpRanges.%d.CidrIp", n+1), fmt.Sprintf("10.%d.0.0/16", n))
				}
				return w.do(authorize, set(many...))
			}},
			row{action: revoke, code: "InvalidPermission.NotFound", send: func(w *world) error {
				return w.do(revoke, set("IpPermissions.1.IpRanges.1.CidrIp", "10.99.0.0/16"))
			}},
		)
		for _, action := range []string{authorize, revoke} {
			rows = append(rows, row{action: action, code: "InvalidParameterValue", name: "no protocol", send: sending(action, set("IpPermissions.1.IpProtocol", "smtp"))})
		}
	}
	return rows
}
