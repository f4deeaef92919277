package ec2api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// shownValue bounds what a message or the log repeats of a caller's value.
const shownValue = 80

func refuse(code, format string, args ...any) *vpc.Error {
	return &vpc.Error{Code: code, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

func missing(parameter string) *vpc.Error {
	return refuse("MissingParameter", "The request must contain the parameter %s", parameter)
}

func unknown(parameter string) *vpc.Error {
	return refuse("UnknownParameter", "The parameter %s is not recognized", clip(parameter))
}

func invalid(parameter, value, expecting string) *vpc.Error {
	return refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. %s", clip(value), parameter, expecting)
}

func combination(a, b string) *vpc.Error {
	return refuse("InvalidParameterCombination", "The parameter %s may not be used together with the parameter %s", a, b)
}

func clip(s string) string {
	if len(s) > shownValue {
		return strings.ToValidUTF8(s[:shownValue], "") + "..."
	}
	return s
}
