package ec2api

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// CheckFault refuses a rule that can never hit a request to this endpoint, or hits it with an answer that EC2 never gives: a
// test of resilience would pass because nothing went wrong. The table itself checks the rest.
func (h *Handler) CheckFault(r fault.Rule) error {
	if _, known := h.actions[r.Action]; r.Action != "" && !known {
		return fmt.Errorf("fault %q: action %q: want one of %s", r.Name, clip(r.Action), strings.Join(slices.Sorted(maps.Keys(h.actions)), ", "))
	}
	if r.Kind == fault.Error && r.Code != "" && !slices.Contains(faultCodes[:], r.Code) {
		return fmt.Errorf("fault %q: code %q: want one of EC2's: %s", r.Name, clip(r.Code), strings.Join(faultCodes[:], ", "))
	}
	if r.Age > vpc.KeptHistory {
		return fmt.Errorf("fault %q: age %v: the world remembers %v", r.Name, r.Age, vpc.KeptHistory)
	}
	if r.Resource != "" && !h.mayName(r.Resource) {
		return fmt.Errorf("fault %q: resource %q: want the id of an instance, ENI, attachment, subnet, VPC or security group (eni- and 8 or 17 hexadecimal digits), an address, a prefix, or an instance type",
			r.Name, clip(r.Resource))
	}
	return nil
}

// mayName tells whether a request can name the resource.
func (h *Handler) mayName(resource string) bool {
	if vpc.IsID(resource) {
		return true
	}
	if _, err := netip.ParseAddr(resource); err == nil {
		return true
	}
	if _, err := netip.ParsePrefix(resource); err == nil {
		return true
	}
	return slices.ContainsFunc(h.vpc.InstanceTypes(), func(t vpc.InstanceType) bool { return t.Name == resource })
}

// faultCodes are the error codes that a fault may give: those that EC2 documents for every action, and those that the actions
// of this endpoint can meet. Source: EC2 API reference, "Error codes"; the throttling codes are those of the AWS SDKs.
var faultCodes = [...]string{
	"AccessDenied",
	"AccessDeniedException",
	"AttachmentLimitExceeded",
	"AuthFailure",
	"BandwidthLimitExceeded",
	"Blocked",
	"ConcurrentTagAccess",
	"DependencyViolation",
	"DryRunOperation",
	"EC2ThrottledException",
	"ExpiredToken",
	"FilterLimitExceeded",
	"Gateway.NotAttached",
	"IdempotentParameterMismatch",
	"IncompleteSignature",
	"IncorrectInstanceState",
	"IncorrectState",
	"InsufficientAddressCapacity",
	"InsufficientCapacity",
	"InsufficientCidrBlocks",
	"InsufficientFreeAddressesInSubnet",
	"InternalError",
	"InternalFailure",
	"InvalidAction",
	"InvalidAssociationID.Malformed",
	"InvalidAssociationID.NotFound",
	"InvalidAttachmentID.NotFound",
	"InvalidClientTokenId",
	"InvalidFilter",
	"InvalidGroup.Duplicate",
	"InvalidGroup.NotFound",
	"InvalidGroupId.Malformed",
	"InvalidID",
	"InvalidIPAddress.InUse",
	"InvalidInstanceID",
	"InvalidInstanceID.Malformed",
	"InvalidInstanceID.NotFound",
	"InvalidInstanceType",
	"InvalidInterface.IpAddressLimitExceeded",
	"InvalidInternetGatewayID.NotFound",
	"InvalidInternetGatewayId.Malformed",
	"InvalidNetworkInterface.InUse",
	"InvalidNetworkInterface.NotFound",
	"InvalidNetworkInterfaceAttachmentId.Malformed",
	"InvalidNetworkInterfaceID.NotFound",
	"InvalidNetworkInterfaceId.Malformed",
	"InvalidPaginationToken",
	"InvalidParameter",
	"InvalidParameterCombination",
	"InvalidParameterValue",
	"InvalidPermission.Duplicate",
	"InvalidPermission.NotFound",
	"InvalidQueryParameter",
	"InvalidRoute.NotFound",
	"InvalidRouteTableID.NotFound",
	"InvalidRouteTableId.Malformed",
	"InvalidSecurityGroupID.NotFound",
	"InvalidSubnet.Conflict",
	"InvalidSubnet.Range",
	"InvalidSubnetCidrReservationID.NotFound",
	"InvalidSubnetCidrReservationId.Malformed",
	"InvalidSubnetID.NotFound",
	"InvalidSubnetId.Malformed",
	"InvalidVpcID.NotFound",
	"InvalidVpcId.Malformed",
	"InvalidVpcRange",
	"LimitExceededException",
	"MalformedQueryString",
	"MissingAction",
	"MissingAuthenticationToken",
	"MissingParameter",
	"NetworkAddressUsageLimitExceeded",
	"NetworkAddressUsagePeeredLimitExceeded",
	"NetworkInterfaceLimitExceeded",
	"NoSuchVersion",
	"OperationNotPermitted",
	"OptInRequired",
	"PendingVerification",
	"PrivateIpAddressLimitExceeded",
	"RequestExpired",
	"RequestLimitExceeded",
	"RequestThrottled",
	"RequestThrottledException",
	"RequestTimeout",
	"Resource.AlreadyAssigned",
	"Resource.AlreadyAssociated",
	"ResourceCountExceeded",
	"RouteAlreadyExists",
	"RulesPerSecurityGroupLimitExceeded",
	"SecurityGroupsPerInterfaceLimitExceeded",
	"ServiceUnavailable",
	"SignatureDoesNotMatch",
	"SlowDown",
	"TagLimitExceeded",
	"TagPolicyViolation",
	"ThrottledException",
	"Throttling",
	"ThrottlingException",
	"TooManyRequestsException",
	"UnauthorizedOperation",
	"Unavailable",
	"UnknownParameter",
	"UnsupportedOperation",
	"UnsupportedProtocol",
}
