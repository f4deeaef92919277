package api

import (
	"context"
	"errors"
	"fmt"
)

// Codes of the CNI specification that the daemon answers with. Source: CNI SPEC 1.1.0, "Error".
const (
	CodeInvalidEnv    uint = 4  // a CNI_* variable is missing or wrong
	CodeInvalidConfig uint = 7  // the network configuration is wrong
	CodeTryAgain      uint = 11 // a transient condition: the runtime should try again later
	CodeNotAvailable  uint = 50 // STATUS: the plugin cannot serve ADD
	CodeLimited       uint = 51 // STATUS: it cannot, and running containers may have limited connectivity
)

// Codes of this project. The specification leaves 100 and above to plugins.
const (
	CodeInternal    uint = 100 // the daemon failed in a way that it has no code for
	CodeMalformed   uint = 101 // a frame or its JSON could not be read; the connection is closed
	CodeVersion     uint = 102 // the message version is neither the server's nor the one before
	CodeDenied      uint = 103 // the peer's user may not speak to the daemon
	CodeNotAssigned uint = 104 // the daemon holds no assignment for the attachment
	CodeDiffers     uint = 105 // CHECK: the kernel differs from the recipe
)

// NewError makes a refusal: what could not be done, and why.
func NewError(code uint, msg, details string) *Error {
	return &Error{Code: code, Msg: msg, Details: details}
}

// wireError turns any error of an Allocator or Auditor into a refusal for the plugin.
func wireError(err error) *Error {
	var refusal *Error
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, context.DeadlineExceeded):
		return NewError(CodeTryAgain, "deadline of the request has passed", err.Error())
	case errors.Is(err, context.Canceled):
		return NewError(CodeTryAgain, "request was given up", err.Error())
	}
	return NewError(CodeInternal, "daemon failed", err.Error())
}

func malformed(format string, args ...any) *Error {
	return NewError(CodeMalformed, "malformed message", fmt.Sprintf(format, args...))
}
