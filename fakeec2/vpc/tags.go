package vpc

import (
	"cmp"
	"maps"
	"slices"
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
	return v.retag(now, resources, len(tags), func(have map[string]string) (map[string]string, error) {
		if err := checkTags(have, tags); err != nil {
			return nil, err
		}
		merged := map[string]string{}
		maps.Copy(merged, have)
		maps.Copy(merged, tags)
		return merged, nil
	})
}

// DeleteTags takes tags off resources: those with the keys, and where a value is given (not nil), only with that value. Tags that
// are not there are no error, as in EC2.
func (v *VPC) DeleteTags(now time.Time, resources []string, tags map[string]*string) error {
	return v.retag(now, resources, len(tags), func(have map[string]string) (map[string]string, error) {
		left := maps.Clone(have)
		for key, value := range tags {
			if strings.HasPrefix(strings.ToLower(key), awsPrefix) {
				return nil, reservedTag()
			}
			if value == nil || have[key] == *value {
				delete(left, key)
			}
		}
		return left, nil
	})
}

// retag changes the tags of resources, all or none.
func (v *VPC) retag(now time.Time, resources []string, count int, change func(map[string]string) (map[string]string, error)) error {
	v.begin(now)
	defer v.end()
	if len(resources) == 0 || count == 0 {
		return refuse(CodeMissingParameter, "The request must contain the parameters resourceIdSet and tagSet")
	}
	var sets []func()
	seen := map[string]bool{}
	for _, id := range resources {
		if seen[id] {
			continue
		}
		seen[id] = true
		have, set, err := v.tagsOf(id)
		if err != nil {
			return err
		}
		if at, lately := v.tagged[id]; lately && at.Add(v.opts.TagSettle).After(v.now) {
			return refuse(CodeConcurrentTag, "The tags of '%s' are being changed by another request", id)
		}
		now, err := change(have)
		if err != nil {
			return err
		}
		sets = append(sets, func() {
			set(now)
			v.emit(Event{Kind: Tagged, Detail: id})
		})
	}
	for _, set := range sets {
		set()
	}
	if v.opts.TagSettle > 0 {
		maps.DeleteFunc(v.tagged, func(_ string, at time.Time) bool { return !at.Add(v.opts.TagSettle).After(v.now) })
		for id := range seen {
			v.tagged[id] = v.now
		}
	}
	return nil
}

// Tag is one tag of one resource.
type Tag struct {
	Resource, Kind, Key, Value string // Kind as EC2 calls it: network-interface, instance, subnet, ...
}

// Tags gives every tag, ascending by resource, then key.
func (v *VPC) Tags() []Tag {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Tag
	add := func(kind, id string, tags map[string]string) {
		for _, key := range sortedKeys(tags) {
			out = append(out, Tag{id, kind, key, tags[key]})
		}
	}
	for id, e := range v.enis {
		add("network-interface", id, e.Tags)
	}
	for id, i := range v.instances {
		add("instance", id, i.Tags)
	}
	for id, s := range v.subnets {
		add("subnet", id, s.Tags)
	}
	for id, n := range v.networks {
		add("vpc", id, n.Tags)
	}
	for id, g := range v.groups {
		add("security-group", id, g.Tags)
	}
	for id, r := range v.reservations {
		add("subnet-cidr-reservation", id, r.Tags)
	}
	for id, t := range v.tables {
		add("route-table", id, t.Tags)
	}
	for id, g := range v.gateways {
		add("internet-gateway", id, g.Tags)
	}
	slices.SortFunc(out, func(a, b Tag) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Key, b.Key))
	})
	return out
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
		n, err := lookup(kindNetwork(), v.networks)(id)
		if err != nil {
			return nil, nil, err
		}
		return n.Tags, func(tags map[string]string) { n.Tags = tags }, nil
	case kindGroup().prefix:
		g, err := v.group(id)
		if err != nil {
			return nil, nil, err
		}
		return g.Tags, func(tags map[string]string) { g.Tags = tags }, nil
	case kindReservation().prefix:
		r, err := lookup(kindReservation(), v.reservations)(id)
		if err != nil {
			return nil, nil, err
		}
		return r.Tags, func(tags map[string]string) { r.Tags = tags }, nil
	case kindTable().prefix:
		t, err := lookup(kindTable(), v.tables)(id)
		if err != nil {
			return nil, nil, err
		}
		return t.Tags, func(tags map[string]string) { t.Tags = tags }, nil
	case kindGateway().prefix:
		g, err := lookup(kindGateway(), v.gateways)(id)
		if err != nil {
			return nil, nil, err
		}
		return g.Tags, func(tags map[string]string) { g.Tags = tags }, nil
	}
	return nil, nil, refuse(CodeInvalidID, "The ID '%s' is not valid", clip(id))
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
			return reservedTag()
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

func reservedTag() *Error {
	return refuse(CodeParameterValue, "Tag keys starting with 'aws:' are reserved for internal use")
}
