package vpc

import (
	"fmt"
	"net/http"
)

// Error is a refusal, in EC2's words.
type Error struct {
	Code, Message string
	Status        int // HTTP status
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// EC2's error codes that the model uses for what a CNI may ask; errors_world.go has the others. Source: EC2 API reference, "Error
// codes".
const (
	CodeAlreadyAssigned        = "Resource.AlreadyAssigned"
	CodeAttachmentLimit        = "AttachmentLimitExceeded"
	CodeAttachmentMalformed    = "InvalidNetworkInterfaceAttachmentId.Malformed"
	CodeAttachmentNotFound     = "InvalidAttachmentID.NotFound"
	CodeCIDRBlocks             = "InsufficientCidrBlocks"
	CodeConcurrentTag          = "ConcurrentTagAccess"
	CodeENIInUse               = "InvalidNetworkInterface.InUse"
	CodeENILimit               = "NetworkInterfaceLimitExceeded"
	CodeENIMalformed           = "InvalidNetworkInterfaceId.Malformed"
	CodeENINotFound            = "InvalidNetworkInterfaceID.NotFound"
	CodeGroupMalformed         = "InvalidGroupId.Malformed"
	CodeGroupNotFound          = "InvalidGroup.NotFound"
	CodeGroupsPerInterface     = "SecurityGroupsPerInterfaceLimitExceeded"
	CodeIdempotentMismatch     = "IdempotentParameterMismatch"
	CodeIncorrectInstanceState = "IncorrectInstanceState"
	CodeIncorrectState         = "IncorrectState"
	CodeInstanceMalformed      = "InvalidInstanceID.Malformed"
	CodeInstanceNotFound       = "InvalidInstanceID.NotFound"
	CodeIPInUse                = "InvalidIPAddress.InUse"
	CodeMissingParameter       = "MissingParameter"
	CodeNAU                    = "NetworkAddressUsageLimitExceeded"
	CodeNAUPeered              = "NetworkAddressUsagePeeredLimitExceeded"
	CodeNotPermitted           = "OperationNotPermitted"
	CodeParameterCombination   = "InvalidParameterCombination"
	CodeParameterValue         = "InvalidParameterValue"
	CodePrivateIPLimit         = "PrivateIpAddressLimitExceeded"
	CodeSubnetConflict         = "InvalidSubnet.Conflict"
	CodeSubnetFull             = "InsufficientFreeAddressesInSubnet"
	CodeSubnetMalformed        = "InvalidSubnetId.Malformed"
	CodeSubnetNotFound         = "InvalidSubnetID.NotFound"
	CodeSubnetRange            = "InvalidSubnet.Range"
	CodeTagLimit               = "TagLimitExceeded"
	CodeUnsupported            = "UnsupportedOperation"
	CodeVPCMalformed           = "InvalidVpcId.Malformed"
	CodeVPCNotFound            = "InvalidVpcID.NotFound"
	CodeVPCRange               = "InvalidVpcRange"
)

// refuse makes an Error with status 400, which is right for every law of the model.
func refuse(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

func together(a, b string) *Error {
	return refuse(CodeParameterCombination, "The parameters %s and %s may not be used together", a, b)
}

func badNumber(parameter string, n int) *Error {
	return refuse(CodeParameterValue, "invalid value for parameter %s: %d", parameter, n)
}
