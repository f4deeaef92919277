package ec2api

import (
	"reflect"
	"slices"
)

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
	codes = append(codes, "InvalidPaginationToken")
	for i := range t.NumField() { // a list of ids, which excludes paging
		if f := t.Field(i); f.Type == reflect.TypeFor[[]string]() {
			codes = append(codes, "InvalidParameterCombination")
		}
	}
	return codes
}

// Unserved gives the parameters of an action that EC2 has and this endpoint refuses by name; "*" stands for any number of a list.
func (h *Handler) Unserved(name string) []string { return slices.Clone(h.actions[name].unserved) }
