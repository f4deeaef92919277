package vpc

import (
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of tags. Source: EC2 user guide, "Tag restrictions".
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
	awsPrefix   = "aws:"
)

// CreateTags adds tags to resources, all or none; equal keys are overwritten.
func (v *VPC) CreateTags(now time.Time, resources []string, tags map[string]string) error {
	v.begin(now)
	defer v.end()
	if len(resources) == 0 || len(tags) == 0 {
		return refuse(CodeMissingParameter, "The request must contain the parameters resourceIdSet and tagSet")
	}
	sets := make([]func(map[string]string), len(resources))
	for n, id := range resources {
		have, set, err := v.tagsOf(id)
		if err != nil {
			return err
		}
		if err := checkTags(have, tags); err != nil {
			return err
		}
		sets[n] = set
	}
	for n, set := range sets {
		have, _, _ := v.tagsOf(resources[n]) // again: a resource may be named twice
		merged := maps.Clone(have)
		if merged == nil {
			merged = map[string]string{}
		}
		maps.Copy(merged, tags)
		set(merged)
		v.emit(Event{Kind: Tagged, Detail: resources[n]})
	}
	return nil
}

// tagsOf finds a resource's tags and the way to replace them.
func (v *VPC) tagsOf(id string) (map[string]string, func(map[string]string), error) {
	switch k := kindOf(id); k.prefix {
	case kindENI().prefix:
		e, err := v.eni(id)
		if err != nil {
			return nil, nil, err
		}
		return e.Tags, func(tags map[string]string) {
			c := edit(v.enis[id])
			c.Tags = tags
			v.put(c)
		}, nil
	case kindInstance().prefix:
		i, err := v.instance(id)
		if err != nil {
			return nil, nil, err
		}
		return i.Tags, func(tags map[string]string) { i.Tags = tags }, nil
	case kindSubnet().prefix:
		s, err := v.subnet(id)
		if err != nil {
			return nil, nil, err
		}
		return s.Tags, func(tags map[string]string) { s.Tags = tags }, nil
	case kindNetwork().prefix:
		if n := v.networks[id]; n != nil {
			return n.Tags, func(tags map[string]string) { n.Tags = tags }, nil
		}
		return nil, nil, kindNetwork().missing(clip(id))
	case kindGroup().prefix:
		if g := v.groups[id]; g != nil {
			return g.Tags, func(tags map[string]string) { g.Tags = tags }, nil
		}
		return nil, nil, kindGroup().missing(clip(id))
	}
	return nil, nil, refuse("InvalidID", "The ID '%s' is not valid", clip(id))
}

func kindOf(id string) kind {
	for _, k := range resourceKinds() {
		if strings.HasPrefix(id, k.prefix) {
			return k
		}
	}
	return kind{}
}

// checkTags refuses tags that cannot be added to those that are there.
func checkTags(have, add map[string]string) error {
	count := len(have)
	for key, value := range add {
		if _, there := have[key]; !there {
			count++
		}
		switch {
		case strings.HasPrefix(strings.ToLower(key), awsPrefix):
			return refuse(CodeParameterValue, "Tag keys starting with 'aws:' are reserved for internal use")
		case key == "" || utf8.RuneCountInString(key) > maxTagKey:
			return refuse(CodeParameterValue, "Tag key must have between 1 and %d characters", maxTagKey)
		case utf8.RuneCountInString(value) > maxTagValue:
			return refuse(CodeParameterValue, "Tag value exceeds the maximum length of %d characters", maxTagValue)
		}
	}
	if count > maxTags {
		return refuse(CodeTagLimit, "The maximum number of tags for a resource has been reached: %d", maxTags)
	}
	return nil
}
