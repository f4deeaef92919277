package ec2api

import (
	"slices"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type tagsForType struct {
	ResourceType string     `query:"ResourceType,required"`
	Tag          []tagInput `query:"Tag"`
}

type tagInput struct {
	Key   string `query:"Key,required"`
	Value string `query:"Value"`
}

// tagsFor gives the tags by resource type, of which only those named can be given to what the action makes.
func tagsFor(specs []tagsForType, types ...string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for _, spec := range specs {
		if !slices.Contains(types, spec.ResourceType) {
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", clip(spec.ResourceType))
		}
		tags, err := tagMap(spec.Tag, out[spec.ResourceType])
		if err != nil {
			return nil, err
		}
		out[spec.ResourceType] = tags
	}
	return out, nil
}

// tagMap adds tags to those that were read before; a key may be given once.
func tagMap(list []tagInput, into map[string]string) (map[string]string, error) {
	for _, tag := range list {
		if into == nil {
			into = map[string]string{}
		}
		if _, twice := into[tag.Key]; twice {
			return nil, refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", clip(tag.Key))
		}
		into[tag.Key] = tag.Value
	}
	return into, nil
}

type tagsInput struct {
	dryRun
	ResourceID []string   `query:"ResourceId,required"`
	Tag        []tagInput `query:"Tag,required"`
}

func createTags(c *call, in tagsInput) (response, error) {
	tags, err := tagMap(in.Tag, nil)
	if err != nil {
		return nil, err
	}
	return &done{Return: true}, c.vpc.CreateTags(c.now(), in.ResourceID, tags)
}

type deleteTagsInput struct {
	dryRun
	ResourceID []string       `query:"ResourceId,required"`
	Tag        []goneTagInput `query:"Tag,required"`
}

type goneTagInput struct {
	Key   string  `query:"Key,required"`
	Value *string `query:"Value"`
}

func deleteTags(c *call, in deleteTagsInput) (response, error) {
	tags := map[string]*string{}
	for _, tag := range in.Tag {
		if _, twice := tags[tag.Key]; twice {
			return nil, refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", clip(tag.Key))
		}
		tags[tag.Key] = tag.Value
	}
	return &done{Return: true}, c.vpc.DeleteTags(c.now(), in.ResourceID, tags)
}

type describeTagsInput struct {
	dryRun
	pageInput
	Filter []filterInput `query:"Filter"`
}

type describeTagsOutput struct {
	head
	Tags      set[describedTagXML] `xml:"tagSet"`
	NextToken string               `xml:"nextToken,omitempty"`
}

type describedTagXML struct {
	ResourceID   string `xml:"resourceId"`
	ResourceType string `xml:"resourceType"`
	Key          string `xml:"key"`
	Value        string `xml:"value"`
}

func describeTags(c *call, in describeTagsInput) (response, error) {
	s := search[vpc.Tag]{
		all: c.vpc.Tags,
		id:  func(t *vpc.Tag) string { return t.Resource + " " + t.Key },
		filters: filters[vpc.Tag]{
			tags: func(t *vpc.Tag) map[string]string { return map[string]string{t.Key: t.Value} },
			names: map[string]func(*vpc.Tag) []string{
				"key":           func(t *vpc.Tag) []string { return []string{t.Key} },
				"resource-id":   func(t *vpc.Tag) []string { return []string{t.Resource} },
				"resource-type": func(t *vpc.Tag) []string { return []string{t.Kind} },
				"value":         func(t *vpc.Tag) []string { return []string{t.Value} },
			},
		},
	}
	found, next, err := s.run(in.Filter, in.pageInput)
	if err != nil {
		return nil, err
	}
	return &describeTagsOutput{NextToken: next, Tags: setOf(found, func(t vpc.Tag) describedTagXML {
		return describedTagXML{ResourceID: t.Resource, ResourceType: t.Kind, Key: t.Key, Value: t.Value}
	})}, nil
}
