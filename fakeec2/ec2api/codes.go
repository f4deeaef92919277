package ec2api

import (
	"cmp"
	"errors"
	"reflect"
	"slices"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// Codes of paging that EC2's lists have more than one name for: Inferred chooses.
const (
	codePageToken = "InvalidPaginationToken"
	codePageSize  = "InvalidMaxResults"
)

// named gives the code that this endpoint has chosen for a code.
func (i Inferred) named(code string) string {
	switch code {
	case codePageToken:
		return cmp.Or(i.PageToken, code)
	case codePageSize:
		return cmp.Or(i.PageSize, "InvalidParameterValue")
	case vpc.CodeGroupNotFound:
		return cmp.Or(i.GroupNotFound, code)
	}
	return code
}

// renamed is a refusal under the code that this endpoint has chosen.
func (i Inferred) renamed(err error) error {
	refusal, ok := errors.AsType[*vpc.Error](err)
	if !ok || i.named(refusal.Code) == refusal.Code {
		return err
	}
	other := *refusal
	other.Code = i.named(refusal.Code)
	return &other
}

// parameterCodes are the codes that follow from what an action's parameters are.
func parameterCodes(act action) []string {
	codes := []string{"InvalidParameterValue"}
	if len(act.unserved) > 0 {
		codes = append(codes, "UnsupportedOperation")
	}
	t := reflect.TypeOf(act.parameter)
	has := func(name string) bool {
		_, there := t.FieldByName(name)
		return there
	}
	if has("DryRun") {
		codes = append(codes, "DryRunOperation")
	}
	if has("Filter") {
		codes = append(codes, "FilterLimitExceeded")
	}
	if !has("MaxResults") {
		return codes
	}
	codes = append(codes, codePageToken, codePageSize)
	for i := range t.NumField() { // a list of ids, which excludes paging
		if f := t.Field(i); f.Type == reflect.TypeFor[[]string]() {
			codes = append(codes, "InvalidParameterCombination")
		}
	}
	return codes
}

// Unserved gives the parameters of an action that EC2 has and this endpoint refuses by name; "*" stands for any number of a list.
func (h *Handler) Unserved(name string) []string { return slices.Clone(h.actions[name].unserved) }
