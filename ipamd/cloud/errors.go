package cloud

import (
	"context"
	"errors"

	"github.com/aws/smithy-go"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// classes sorts EC2's error codes by what the planner can do about them. Source: the EC2 API reference's list of error
// codes and the field (see each group). A code that is not here is ClassInvalid if the fault is the client's, else
// ClassUnknown.
var classes = map[string]pool.CloudClass{
	// The account's token bucket for the action is empty. EC2 answers with the first; the others are the SDK's list of
	// throttle codes.
	"RequestLimitExceeded":      pool.ClassThrottled,
	"Throttling":                pool.ClassThrottled,
	"ThrottlingException":       pool.ClassThrottled,
	"ThrottledException":        pool.ClassThrottled,
	"RequestThrottled":          pool.ClassThrottled,
	"RequestThrottledException": pool.ClassThrottled,
	"TooManyRequestsException":  pool.ClassThrottled,
	"EC2ThrottledException":     pool.ClassThrottled,
	"BandwidthLimitExceeded":    pool.ClassThrottled,
	"LimitExceededException":    pool.ClassThrottled,
	"SlowDown":                  pool.ClassThrottled,
	"ConcurrentTagAccess":       pool.ClassThrottled, // someone else tags the same resource right now

	// No room: not now, and not soon.
	"InsufficientFreeAddressesInSubnet": pool.ClassSubnetFull,
	"InsufficientCidrBlocks":            pool.ClassSubnetFull,
	"InsufficientAddressCapacity":       pool.ClassSubnetFull,

	// The instance type's or the account's limit.
	"PrivateIpAddressLimitExceeded":          pool.ClassLimit,
	"AttachmentLimitExceeded":                pool.ClassLimit,
	"NetworkInterfaceLimitExceeded":          pool.ClassLimit,
	"NetworkAddressUsageLimitExceeded":       pool.ClassLimit,
	"NetworkAddressUsagePeeredLimitExceeded": pool.ClassLimit,

	// Not there (any more), or not there yet where EC2's copies lag.
	"InvalidNetworkInterfaceID.NotFound": pool.ClassGone,
	"InvalidAttachmentID.NotFound":       pool.ClassGone,
	"InvalidInstanceID.NotFound":         pool.ClassGone,
	"InvalidSubnetID.NotFound":           pool.ClassGone,
	"InvalidGroup.NotFound":              pool.ClassGone,
	"InvalidSecurityGroupID.NotFound":    pool.ClassGone,

	// In transition or held.
	"InvalidNetworkInterface.InUse": pool.ClassInUse,
	"IncorrectState":                pool.ClassInUse,
	"IncorrectInstanceState":        pool.ClassInUse,
	"InvalidIPAddress.InUse":        pool.ClassInUse,
	"Resource.AlreadyAssigned":      pool.ClassInUse,
	"DependencyViolation":           pool.ClassInUse,

	// Credentials and permissions.
	"UnauthorizedOperation":      pool.ClassDenied,
	"OperationNotPermitted":      pool.ClassDenied,
	"AccessDenied":               pool.ClassDenied,
	"AccessDeniedException":      pool.ClassDenied,
	"AuthFailure":                pool.ClassDenied,
	"Blocked":                    pool.ClassDenied,
	"PendingVerification":        pool.ClassDenied,
	"SignatureDoesNotMatch":      pool.ClassDenied,
	"IncompleteSignature":        pool.ClassDenied,
	"InvalidClientTokenId":       pool.ClassDenied,
	"MissingAuthenticationToken": pool.ClassDenied,
	"RequestExpired":             pool.ClassDenied,
	"ExpiredToken":               pool.ClassDenied,
	"OptInRequired":              pool.ClassDenied,

	// The server failed: the call may have been carried out.
	"InternalError":      pool.ClassUnknown,
	"InternalFailure":    pool.ClassUnknown,
	"Unavailable":        pool.ClassUnknown,
	"ServiceUnavailable": pool.ClassUnknown,
	"RequestTimeout":     pool.ClassUnknown,
}

// special sorts codes that mean something else for one action. DeleteNetworkInterface answers InvalidParameterValue (not
// InvalidNetworkInterface.InUse) for an ENI that is attached or detaching, and with nothing but an ENI id in the request
// there is no other parameter whose value could be wrong.
var special = map[[2]string]pool.CloudClass{
	{"DeleteNetworkInterface", "InvalidParameterValue"}: pool.ClassInUse,
}

// serverFault is where HTTP's server errors begin.
const serverFault = 500

// httpStatus is what the SDK's response errors can tell.
type httpStatus interface{ HTTPStatusCode() int }

// classify turns the SDK's error of an action into the planner's. An error without an answer from EC2 (no connection, no
// credentials, deadline) is ClassUnknown.
func classify(action string, err error) *pool.CloudError {
	var known *pool.CloudError
	if errors.As(err, &known) {
		return known
	}
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return &pool.CloudError{Class: pool.ClassUnknown, Message: unanswered(err), Err: err}
	}
	return &pool.CloudError{
		Class:   classOf(action, answer.ErrorCode(), err),
		Code:    answer.ErrorCode(),
		Message: answer.ErrorMessage(),
		Err:     err,
	}
}

func classOf(action, code string, err error) pool.CloudClass {
	if class, ok := special[[2]string{action, code}]; ok {
		return class
	}
	if class, ok := classes[code]; ok {
		return class
	}
	var response httpStatus
	if errors.As(err, &response) && response.HTTPStatusCode() >= serverFault {
		return pool.ClassUnknown
	}
	return pool.ClassInvalid
}

func unanswered(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return "no answer"
}

func isClass(err error, class pool.CloudClass) bool {
	var failed *pool.CloudError
	return errors.As(err, &failed) && failed.Class == class
}
