package ec2api

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// maxFilterValues per request. Source: EC2 user guide, "Filter limits": 200 values; filters are counted in with them.
const maxFilterValues = 200

// filterInput is one Filter.N of a request.
type filterInput struct {
	Name  string   `query:"Name,required"`
	Value []string `query:"Value"`
}

// filters says what may be filtered: for each name the values that a thing has for it.
type filters[T any] struct {
	names map[string]func(*T) []string
	tags  func(*T) map[string]string
}

// compile gives a test for all filters: values are OR-ed within a filter, filters AND-ed. "*" and "?" are wildcards, a
// backslash takes their meaning away, upper and lower case differ.
func (f filters[T]) compile(inputs []filterInput) (func(*T) bool, error) {
	var tests []func(*T) bool
	count := 0
	for n, in := range inputs {
		if count += max(1, len(in.Value)); count > maxFilterValues {
			return nil, refuse("FilterLimitExceeded", "The request has more than %d filter values", maxFilterValues)
		}
		if len(in.Value) == 0 {
			return nil, missing(fmt.Sprintf("Filter.%d.Value", n+1))
		}
		test, err := f.test(in.Name, func(value string) bool {
			return slices.ContainsFunc(in.Value, func(pattern string) bool { return wildcardMatch(pattern, value) })
		})
		if err != nil {
			return nil, err
		}
		tests = append(tests, test)
	}
	return func(thing *T) bool {
		for _, test := range tests {
			if !test(thing) {
				return false
			}
		}
		return true
	}, nil
}

// test tells whether a thing has a value for a name that will do.
func (f filters[T]) test(name string, will func(value string) bool) (func(*T) bool, error) {
	if get := f.names[name]; get != nil {
		return func(thing *T) bool { return slices.ContainsFunc(get(thing), will) }, nil
	}
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		return func(thing *T) bool {
			value, there := f.tags(thing)[key]
			return there && will(value)
		}, nil
	}
	if name == "tag-key" {
		return func(thing *T) bool {
			for key := range f.tags(thing) {
				if will(key) {
					return true
				}
			}
			return false
		}, nil
	}
	return nil, refuse("InvalidParameterValue", "The filter '%s' is invalid", clip(name))
}

// wildcardMatch is iterative: a pattern of many stars costs at most len(pattern) * len(value).
func wildcardMatch(pattern, value string) bool {
	p, v := 0, 0
	star, resume := -1, 0
	for v < len(value) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, v
			p++
			continue
		case p < len(pattern) && pattern[p] == '?':
			p, v = p+1, v+1
			continue
		case p+1 < len(pattern) && pattern[p] == '\\' && pattern[p+1] == value[v]:
			p, v = p+2, v+1
			continue
		case p < len(pattern) && pattern[p] != '\\' && pattern[p] == value[v]:
			p, v = p+1, v+1
			continue
		}
		if star < 0 {
			return false
		}
		resume++
		p, v = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// filterDigest ties a page token to the filters that it was given for.
func filterDigest(inputs []filterInput) uint64 {
	h := fnv.New64a()
	for _, in := range inputs {
		fmt.Fprintf(h, "%q %q\n", in.Name, in.Value)
	}
	return h.Sum64()
}
