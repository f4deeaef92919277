package conformance

import (
	"maps"
	"slices"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// others are the other names of what EC2's lists have more than one code for.
func others() ec2api.Inferred {
	return ec2api.Inferred{AuthFailureStatus: 403, GroupNotFound: "InvalidSecurityGroupID.NotFound", PageToken: "InvalidNextToken", PageSize: "InvalidMaxResults"}
}

// TestEveryCodeIsServed: the codes that EC2's networking calls are known to answer with are all among those that some action
// owns up to, or that the table injects. TestConformance then demands a test for each pair.
func TestEveryCodeIsServed(t *testing.T) {
	served := map[string]bool{"InvalidAction": true, "MissingAction": true} // TestWhatIsNoAction
	for _, inferred := range []ec2api.Inferred{{}, others()} {
		h := ec2api.New(ec2api.Options{VPC: vpc.New(vpc.Options{}), Inferred: inferred})
		for _, action := range h.Actions() {
			for _, code := range h.Codes(action) {
				served[code] = true
			}
		}
	}
	for _, rule := range serverFaults() {
		served[rule.Code] = true
	}
	for _, code := range []string{
		"PrivateIpAddressLimitExceeded", "AttachmentLimitExceeded", "NetworkInterfaceLimitExceeded", "InsufficientFreeAddressesInSubnet",
		"InsufficientCidrBlocks", "InvalidParameterValue", "InvalidParameterCombination", "MissingParameter", "UnknownParameter",
		"InvalidNetworkInterfaceID.NotFound", "InvalidNetworkInterfaceId.Malformed", "InvalidNetworkInterface.InUse",
		"InvalidAttachmentID.NotFound", "InvalidNetworkInterfaceAttachmentId.Malformed", "OperationNotPermitted", "IncorrectState",
		"IncorrectInstanceState", "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidSubnetID.NotFound",
		"InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound", "SecurityGroupsPerInterfaceLimitExceeded", "InvalidIPAddress.InUse",
		"Resource.AlreadyAssigned", "NetworkAddressUsageLimitExceeded", "NetworkAddressUsagePeeredLimitExceeded", "TagLimitExceeded",
		"ConcurrentTagAccess", "IdempotentParameterMismatch", "InvalidNextToken", "InvalidPaginationToken", "InvalidMaxResults",
		"FilterLimitExceeded", "InvalidAssociationID.NotFound", "DryRunOperation", "UnauthorizedOperation", "AuthFailure",
		"SignatureDoesNotMatch", "InvalidClientTokenId", "RequestExpired", "OptInRequired", "RequestLimitExceeded", "InternalError",
		"InternalFailure", "Unavailable", "ServiceUnavailable", "InsufficientAddressCapacity", "InvalidAction", "NoSuchVersion",
	} {
		if !served[code] {
			t.Errorf("no action can answer with %s; served are %v", code, slices.Sorted(maps.Keys(served)))
		}
	}
}

// TestCodesThatAreChosen: what EC2's lists have two names for goes by the one that the endpoint was told.
func TestCodesThatAreChosen(t *testing.T) {
	if real() {
		t.Skip("a real account has one name for each code: there is nothing to choose")
	}
	w := newWorld(t, func(o *options) { o.endpoint.Inferred = others() })
	for _, c := range []struct {
		action, want string
		change       []string
	}{
		{"CreateNetworkInterface", "InvalidSecurityGroupID.NotFound", []string{"SecurityGroupId.1", "sg-0123456789abcdef0"}},
		{"DescribeSecurityGroups", "InvalidSecurityGroupID.NotFound", []string{"GroupId.1", "sg-0123456789abcdef0"}},
		{"DescribeNetworkInterfaces", "InvalidNextToken", []string{"NetworkInterfaceId.1", "", "MaxResults", "5", "NextToken", "none"}},
		{"DescribeSubnets", "InvalidMaxResults", []string{"SubnetId.1", "", "MaxResults", "4"}},
	} {
		if err := w.do(c.action, set(c.change...)); code(err) != c.want || !slices.Contains(w.handler.Codes(c.action), c.want) {
			t.Errorf("%s: %v, want %s", c.action, err, c.want)
		}
	}
}
