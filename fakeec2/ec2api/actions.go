package ec2api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// call is one request on its way through a handler.
type call struct {
	*Handler
	accessKey string
	stale     time.Duration // answer as of so long ago
}

// described is the region as EC2 describes it to this request.
func (c *call) described() vpc.Description { return c.vpc.Described(c.stale) }

// action is one EC2 action: it decodes the form, asks the model and gives what is to be rendered.
type action struct {
	run       func(c *call, name string, values url.Values) (response, error)
	parameter any      // the zero value of its input
	unserved  []string // parameters that EC2 has and this fake has not
	codes     []string // of its own laws: see Codes
}

// dryRun is the part of a request that only asks whether it would be allowed.
type dryRun struct {
	DryRun bool `query:"DryRun"`
}

func (d dryRun) dry() bool { return d.DryRun }

// on makes an action of a handler for one kind of request. unserved names parameters that EC2 has and this fake refuses; "*"
// stands for any number of a list.
func on[In any](do func(c *call, in In) (response, error), unserved ...string) action {
	var zero In
	return action{parameter: zero, unserved: unserved, run: func(c *call, name string, values url.Values) (response, error) {
		var in In
		if err := decodeForm(values, &in, unserved); err != nil {
			return nil, err
		}
		if c.denied != nil && c.denied(c.accessKey, name) {
			return nil, &vpc.Error{Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation.", Status: http.StatusForbidden}
		}
		if d, ok := any(in).(interface{ dry() bool }); ok && d.dry() {
			return nil, &vpc.Error{
				Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set.", Status: http.StatusPreconditionFailed,
			}
		}
		return do(c, in)
	}}
}

// may names the codes by which the action's own laws refuse.
func (a action) may(codes ...string) action {
	a.codes = codes
	return a
}

// Actions gives the names of all actions that are served, ascending.
func (h *Handler) Actions() []string { return slices.Sorted(maps.Keys(h.actions)) }

// Codes gives every error code by which an action may refuse, ascending: by its own laws, by what its parameters are, and those
// of the wire, which are the same for all actions. A refusal with another code is a fault of the fake (or of a fault rule).
func (h *Handler) Codes(name string) []string {
	act, known := h.actions[name]
	if !known {
		return nil
	}
	codes := slices.Concat(act.codes, parameterCodes(act), wireCodes())
	for n, code := range codes {
		codes[n] = h.inferred.named(code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// wireCodes are possible with every action.
func wireCodes() []string {
	return []string{
		"AuthFailure", "InvalidClientTokenId", "InvalidQueryParameter", "MalformedQueryString", "MissingParameter", "NoSuchVersion", "OptInRequired",
		"RequestExpired", "RequestLimitExceeded", "SignatureDoesNotMatch", "UnauthorizedOperation", "UnknownParameter",
	}
}

const (
	ingressRule = "IpPermissions.*."
	runENI      = "NetworkInterface.*."
)

// actions is everything that the endpoint can do.
func actions() map[string]action {
	all := map[string]action{}
	for _, group := range []map[string]action{describes(), eniActions(), worldActions(), gatewayActions()} {
		maps.Copy(all, group)
	}
	return all
}

func describes() map[string]action {
	return map[string]action{
		"DescribeInstances":         on(describeInstances).may(vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound),
		"DescribeInstanceTypes":     on(describeInstanceTypes, "IncludeUnsupportedInRegion").may("InvalidInstanceType"),
		"DescribeNetworkInterfaces": on(describeNetworkInterfaces).may(vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeNotPermitted),
		"DescribeInternetGateways":  on(describeInternetGateways).may(vpc.CodeGatewayMalformed, vpc.CodeGatewayNotFound),
		"DescribeRouteTables":       on(describeRouteTables).may(vpc.CodeRouteTableMalformed, vpc.CodeRouteTableNotFound),
		"DescribeSecurityGroups":    on(describeSecurityGroups, "GroupName").may(vpc.CodeGroupMalformed, vpc.CodeGroupNotFound),
		"DescribeSubnets":           on(describeSubnets).may(vpc.CodeSubnetMalformed, vpc.CodeSubnetNotFound),
		"DescribeTags":              on(describeTags),
		"DescribeTrunkInterfaceAssociations": on(describeTrunkInterfaceAssociations).
			may(vpc.CodeAssociationMalformed, vpc.CodeAssociationNotFound),
		"DescribeVpcs":              on(describeVpcs).may(vpc.CodeVPCMalformed, vpc.CodeVPCNotFound),
		"GetSubnetCidrReservations": on(getSubnetCidrReservations).may(vpc.CodeSubnetMalformed, vpc.CodeSubnetNotFound),
	}
}

func eniActions() map[string]action {
	return map[string]action{
		"CreateNetworkInterface": on(createNetworkInterface, "Operator").may(
			vpc.CodeSubnetMalformed, vpc.CodeSubnetNotFound, vpc.CodeGroupMalformed, vpc.CodeGroupNotFound, vpc.CodeGroupsPerInterface, vpc.CodeENILimit,
			vpc.CodePrivateIPLimit, vpc.CodeSubnetFull, vpc.CodeCIDRBlocks, vpc.CodeIPInUse, vpc.CodeTagLimit, vpc.CodeIdempotentMismatch,
			vpc.CodeParameterCombination),
		"AttachNetworkInterface": on(attachNetworkInterface, "EnaQueueCount", "EnaSrdSpecification").may(
			vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound, vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeENIInUse, vpc.CodeIncorrectInstanceState,
			vpc.CodeParameterCombination, vpc.CodeAttachmentLimit, vpc.CodePrivateIPLimit, vpc.CodeNAU, vpc.CodeNAUPeered),
		"DetachNetworkInterface": on(detachNetworkInterface).may(
			vpc.CodeAttachmentMalformed, vpc.CodeAttachmentNotFound, vpc.CodeNotPermitted, vpc.CodeIncorrectState),
		"DeleteNetworkInterface": on(deleteNetworkInterface).may(vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeParameterValue),
		"ModifyNetworkInterfaceAttribute": on(modifyNetworkInterfaceAttribute,
			"AssociatePublicIpAddress", "AssociatedSubnetId", "Attachment.DefaultEnaQueueCount", "Attachment.EnaQueueCount", "EnaSrdSpecification").may(
			vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeAttachmentMalformed, vpc.CodeAttachmentNotFound, vpc.CodeNotPermitted, vpc.CodeGroupMalformed,
			vpc.CodeGroupNotFound, vpc.CodeGroupsPerInterface, vpc.CodeParameterCombination),
		"AssignPrivateIpAddresses": on(assignPrivateIpAddresses).may(
			vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodePrivateIPLimit, vpc.CodeSubnetFull, vpc.CodeCIDRBlocks, vpc.CodeIPInUse,
			vpc.CodeAlreadyAssigned, vpc.CodeNAU, vpc.CodeNAUPeered, vpc.CodeParameterCombination),
		"UnassignPrivateIpAddresses": on(unassignPrivateIpAddresses).may(
			vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeParameterValue, vpc.CodeParameterCombination),
		"AssignIpv6Addresses": on(assignIpv6Addresses).may(
			vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodePrivateIPLimit, vpc.CodeSubnetFull, vpc.CodeCIDRBlocks, vpc.CodeIPInUse,
			vpc.CodeNAU, vpc.CodeNAUPeered, vpc.CodeParameterCombination),
		"UnassignIpv6Addresses": on(unassignIpv6Addresses).may(vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeParameterValue),
		"AssociateTrunkInterface": on(associateTrunkInterface, "GreKey").may(
			vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeENIInUse, vpc.CodeParameterCombination, vpc.CodeAttachmentLimit, vpc.CodeIdempotentMismatch),
		"DisassociateTrunkInterface": on(disassociateTrunkInterface).may(
			vpc.CodeAssociationMalformed, vpc.CodeAssociationNotFound, vpc.CodeIdempotentMismatch, vpc.CodeParameterValue),
		"CreateNetworkInterfacePermission": on(createNetworkInterfacePermission).may(
			vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeParameterValue, vpc.CodeParameterCombination, vpc.CodePermissionDuplicate),
		"CreateTags": on(createTags).may(tagCodes(vpc.CodeTagLimit)...),
		"DeleteTags": on(deleteTags).may(tagCodes()...),
	}
}

// tagCodes are those of finding whatever can be tagged.
func tagCodes(more ...string) []string {
	return append(more, vpc.CodeInvalidID, vpc.CodeConcurrentTag, vpc.CodeParameterValue, vpc.CodeENIMalformed, vpc.CodeENINotFound,
		vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound, vpc.CodeSubnetMalformed, vpc.CodeSubnetNotFound, vpc.CodeVPCNotFound, vpc.CodeVPCMalformed,
		vpc.CodeGroupNotFound, vpc.CodeGroupMalformed, vpc.CodeReservationMalformed, vpc.CodeReservationNotFound, vpc.CodeRouteTableMalformed,
		vpc.CodeRouteTableNotFound, vpc.CodeGatewayMalformed, vpc.CodeGatewayNotFound)
}

func worldActions() map[string]action {
	rules := []string{ingressRule + "PrefixListIds", ingressRule + "Groups.*.GroupName", ingressRule + "Groups.*.PeeringStatus", ingressRule + "Groups.*.VpcId",
		ingressRule + "Groups.*.VpcPeeringConnectionId", "GroupName", "CidrIp", "FromPort", "ToPort", "IpProtocol", "SourceSecurityGroupName",
		"SourceSecurityGroupOwnerId", "SecurityGroupRuleId", "TagSpecification"}
	ruleCodes := []string{vpc.CodeGroupMalformed, vpc.CodeGroupNotFound}
	return map[string]action{
		"CreateVpc": on(createVpc, "InstanceTenancy", "Ipv4IpamPoolId", "Ipv4NetmaskLength", "Ipv6CidrBlockNetworkBorderGroup", "Ipv6IpamPoolId",
			"Ipv6NetmaskLength", "Ipv6Pool", "VpcEncryptionControl").may(vpc.CodeVPCRange, vpc.CodeTagLimit, vpc.CodeParameterCombination),
		"CreateSubnet": on(createSubnet, "AvailabilityZoneId", "Ipv4IpamPoolId", "Ipv4NetmaskLength", "Ipv6IpamPoolId", "Ipv6NetmaskLength", "OutpostArn").may(
			vpc.CodeVPCMalformed, vpc.CodeVPCNotFound, vpc.CodeSubnetRange, vpc.CodeSubnetConflict, vpc.CodeTagLimit, vpc.CodeParameterCombination),
		"CreateSubnetCidrReservation": on(createSubnetCidrReservation).may(
			vpc.CodeSubnetMalformed, vpc.CodeSubnetNotFound, vpc.CodeTagLimit, vpc.CodeParameterValue),
		"DeleteSubnetCidrReservation": on(deleteSubnetCidrReservation).may(vpc.CodeReservationMalformed, vpc.CodeReservationNotFound),
		"CreateSecurityGroup": on(createSecurityGroup).may(
			vpc.CodeVPCMalformed, vpc.CodeVPCNotFound, vpc.CodeGroupDuplicate, vpc.CodeTagLimit, vpc.CodeParameterValue),
		"AuthorizeSecurityGroupIngress": on(authorizeIngress, rules...).may(append(ruleCodes, vpc.CodePermissionDuplicate, vpc.CodeRuleLimit)...),
		"AuthorizeSecurityGroupEgress":  on(authorizeEgress, rules...).may(append(ruleCodes, vpc.CodePermissionDuplicate, vpc.CodeRuleLimit)...),
		"RevokeSecurityGroupIngress":    on(revokeIngress, rules...).may(append(ruleCodes, vpc.CodePermissionNotFound)...),
		"RevokeSecurityGroupEgress":     on(revokeEgress, rules...).may(append(ruleCodes, vpc.CodePermissionNotFound)...),
		"RunInstances": on(runInstances,
			"AdditionalInfo", "BlockDeviceMapping", "CapacityReservationSpecification", "CpuOptions", "CreditSpecification", "DisableApiStop",
			"DisableApiTermination", "EbsOptimized", "ElasticGpuSpecification", "ElasticInferenceAccelerator", "EnablePrimaryIpv6", "EnclaveOptions",
			"HibernationOptions", "InstanceInitiatedShutdownBehavior", "InstanceMarketOptions", "KernelId", "KeyName", "LaunchTemplate",
			"LicenseSpecification", "MaintenanceOptions", "Monitoring", "NetworkPerformanceOptions", "Operator", "Placement", "PrivateDnsNameOptions",
			"RamdiskId", "SecondaryInterface", "SecurityGroup", "UserData", "IamInstanceProfile.Arn", runENI+"AssociateCarrierIpAddress", runENI+"EnaQueueCount",
			runENI+"EnaSrdSpecification").may(
			vpc.CodeSubnetMalformed, vpc.CodeSubnetNotFound, vpc.CodeGroupMalformed, vpc.CodeGroupNotFound, vpc.CodeGroupsPerInterface, vpc.CodeENILimit,
			vpc.CodePrivateIPLimit, vpc.CodeSubnetFull, vpc.CodeCIDRBlocks, vpc.CodeIPInUse, vpc.CodeTagLimit, vpc.CodeIdempotentMismatch,
			vpc.CodeParameterCombination, vpc.CodeENIMalformed, vpc.CodeENINotFound, vpc.CodeENIInUse, vpc.CodeAttachmentLimit, vpc.CodeNAU, vpc.CodeNAUPeered),
		"TerminateInstances": on(terminateInstances, "Force", "SkipOsShutdown").may(vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound),
		"StopInstances": on(stopInstances, "Force", "Hibernate", "SkipOsShutdown").may(
			vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound, vpc.CodeIncorrectInstanceState),
		"StartInstances": on(startInstances, "AdditionalInfo").may(
			vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound, vpc.CodeIncorrectInstanceState),
		"ModifyInstanceMetadataOptions": on(modifyInstanceMetadataOptions).may(
			vpc.CodeInstanceMalformed, vpc.CodeInstanceNotFound, vpc.CodeIncorrectInstanceState),
	}
}
