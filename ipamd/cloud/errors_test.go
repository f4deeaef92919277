package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func refusal(status int, code string) error {
	return fmt.Errorf("operation error EC2: %w", &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
		Err:      &smithy.GenericAPIError{Code: code, Message: "because"},
	})
}

func TestClassify(t *testing.T) {
	tests := []struct {
		action string
		err    error
		class  pool.CloudClass
		text   string
	}{
		{"Any", refusal(503, "RequestLimitExceeded"), pool.ClassThrottled, "RequestLimitExceeded: because"},
		{"Any", refusal(400, "InsufficientFreeAddressesInSubnet"), pool.ClassSubnetFull, "InsufficientFreeAddressesInSubnet: because"},
		{"Any", refusal(400, "PrivateIpAddressLimitExceeded"), pool.ClassLimit, "PrivateIpAddressLimitExceeded: because"},
		{"Any", refusal(400, "InvalidNetworkInterfaceID.NotFound"), pool.ClassGone, "InvalidNetworkInterfaceID.NotFound: because"},
		{"Any", refusal(400, "InvalidNetworkInterface.InUse"), pool.ClassInUse, "InvalidNetworkInterface.InUse: because"},
		{"Any", refusal(403, "UnauthorizedOperation"), pool.ClassDenied, "UnauthorizedOperation: because"},
		{"Any", refusal(400, "MissingParameter"), pool.ClassInvalid, "MissingParameter: because"},
		{"AttachNetworkInterface", refusal(400, "InvalidParameterValue"), pool.ClassInvalid, "InvalidParameterValue: because"},
		{"DeleteNetworkInterface", refusal(400, "InvalidParameterValue"), pool.ClassInUse, "InvalidParameterValue: because"},
		{"Any", refusal(500, "InternalError"), pool.ClassUnknown, "InternalError: because"},
		{"Any", refusal(500, "NeverHeardOf"), pool.ClassUnknown, "NeverHeardOf: because"},
		{"Any", refusal(400, "NeverHeardOf"), pool.ClassInvalid, "NeverHeardOf: because"},
		{"Any", errors.New("connection refused"), pool.ClassUnknown, "connection refused"},
		{"Any", fmt.Errorf("read: %w", context.DeadlineExceeded), pool.ClassUnknown, "read: context deadline exceeded"},
		// A message that quotes another code must not be taken for that code.
		{"Any", refusalSaying("UnauthorizedOperation", "not InvalidNetworkInterfaceID.NotFound"), pool.ClassDenied, "UnauthorizedOperation: not InvalidNetworkInterfaceID.NotFound"},
	}
	for _, test := range tests {
		got := classify(test.action, test.err)
		if got.Class != test.class || got.Error() != test.text {
			t.Errorf("%s, %v: %s %q", test.action, test.err, got.Class, got.Error())
		}
		if !errors.Is(got, test.err) {
			t.Errorf("%v: the cause is lost", test.err)
		}
		if again := classify(test.action, fmt.Errorf("once more: %w", got)); again != got {
			t.Errorf("%v: classified twice", test.err)
		}
	}
}

func refusalSaying(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}
