package ec2api

import (
	"net/http"
	"net/url"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// action is one EC2 action: it decodes the form, asks the model and gives what is to be rendered.
type action struct {
	run func(h *Handler, values url.Values) (response, error)
}

// dryRun is the part of a request that only asks whether it would be allowed.
type dryRun struct {
	DryRun bool `query:"DryRun"`
}

func (d dryRun) dry() bool { return d.DryRun }

// on makes an action of a handler for one kind of request. later names parameters that EC2 has and this fake does not yet.
func on[In any](do func(h *Handler, in In) (response, error), later ...string) action {
	return action{run: func(h *Handler, values url.Values) (response, error) {
		var in In
		if err := decodeForm(values, &in, later); err != nil {
			return nil, err
		}
		if d, ok := any(in).(interface{ dry() bool }); ok && d.dry() {
			return nil, &vpc.Error{
				Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set.", Status: http.StatusPreconditionFailed,
			}
		}
		return do(h, in)
	}}
}

// actions is everything that the endpoint can do.
func actions() map[string]action {
	return map[string]action{
		"DescribeInstances":         on(describeInstances),
		"DescribeInstanceTypes":     on(describeInstanceTypes, "IncludeUnsupportedInRegion"),
		"DescribeNetworkInterfaces": on(describeNetworkInterfaces),
		"DescribeSecurityGroups":    on(describeSecurityGroups, "GroupName"),
		"DescribeSubnets":           on(describeSubnets),
		"DescribeVpcs":              on(describeVpcs),

		"CreateNetworkInterface": on(createNetworkInterface,
			"ConnectionTrackingSpecification", "EnablePrimaryIpv6", "Ipv4Prefix", "Ipv4PrefixCount", "Ipv6AddressCount",
			"Ipv6Addresses", "Ipv6Prefix", "Ipv6PrefixCount", "Operator"),
		"AttachNetworkInterface": on(attachNetworkInterface, "EnaQueueCount", "EnaSrdSpecification"),
		"DetachNetworkInterface": on(detachNetworkInterface),
		"DeleteNetworkInterface": on(deleteNetworkInterface),
		"ModifyNetworkInterfaceAttribute": on(modifyNetworkInterfaceAttribute,
			"AssociatePublicIpAddress", "AssociatedSubnetId", "Attachment.DefaultEnaQueueCount", "Attachment.EnaQueueCount",
			"ConnectionTrackingSpecification", "EnablePrimaryIpv6", "EnaSrdSpecification"),
		"AssignPrivateIpAddresses":   on(assignPrivateIpAddresses, "Ipv4Prefix", "Ipv4PrefixCount"),
		"UnassignPrivateIpAddresses": on(unassignPrivateIpAddresses, "Ipv4Prefix"),
		"CreateTags":                 on(createTags),
	}
}
