package ec2api

import (
	"net/netip"
	"strconv"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type describeENIsInput struct {
	dryRun
	pageInput
	NetworkInterfaceID []string      `query:"NetworkInterfaceId"`
	Filter             []filterInput `query:"Filter"`
	IncludeManaged     bool          `query:"IncludeManagedResources"` // there are none: both answers are the same
}

type describeENIsOutput struct {
	head
	NetworkInterfaces set[eniXML] `xml:"networkInterfaceSet"`
	NextToken         string      `xml:"nextToken,omitempty"`
}

func describeNetworkInterfaces(c *call, in describeENIsInput) (response, error) {
	if err := in.check(in.NetworkInterfaceID, "networkInterfaceIds", maxPage); err != nil {
		return nil, err
	}
	match, err := eniFilters(c.vpc.Region(), c.vpc.Account()).compile(in.Filter)
	if err != nil {
		return nil, err
	}
	if c.maxUnpaged > 0 && in.MaxResults == nil && len(in.NetworkInterfaceID)+len(in.Filter) == 0 && len(c.vpc.ENIs()) > c.maxUnpaged {
		return nil, refuse(vpc.CodeNotPermitted, "The account has too many network interfaces to describe them without pagination")
	}
	if len(in.NetworkInterfaceID) > 0 {
		found, err := c.described().ENIs(in.NetworkInterfaceID, match)
		if err != nil {
			return nil, err
		}
		return &describeENIsOutput{NetworkInterfaces: setOf(found, c.painter().eni)}, nil
	}
	digest := filterDigest(in.Filter)
	after, err := in.after(digest)
	if err != nil {
		return nil, err
	}
	found, more := c.described().ENIPage(match, after, in.limit())
	out := &describeENIsOutput{NetworkInterfaces: setOf(found, c.painter().eni)}
	if more {
		out.NextToken = makeToken(found[len(found)-1].ID, digest)
	}
	return out, nil
}

// eniFilters: what the model has no notion of (requesters) is empty for every ENI, which is true of it.
func eniFilters(region, account string) filters[vpc.ENI] {
	attachment := func(get func(*vpc.Attachment) string) func(*vpc.ENI) []string {
		return func(e *vpc.ENI) []string {
			if e.Attachment == nil {
				return nil
			}
			return []string{get(e.Attachment)}
		}
	}
	one := func(get func(*vpc.ENI) string) func(*vpc.ENI) []string {
		return func(e *vpc.ENI) []string { return []string{get(e)} }
	}
	none := func(*vpc.ENI) []string { return nil }
	return filters[vpc.ENI]{
		tags: func(e *vpc.ENI) map[string]string { return e.Tags },
		names: map[string]func(*vpc.ENI) []string{
			"network-interface-id":             one(func(e *vpc.ENI) string { return e.ID }),
			"status":                           one(func(e *vpc.ENI) string { return e.Status }),
			"vpc-id":                           one(func(e *vpc.ENI) string { return e.VPCID }),
			"subnet-id":                        one(func(e *vpc.ENI) string { return e.SubnetID }),
			"availability-zone":                one(func(e *vpc.ENI) string { return e.AZ }),
			"description":                      one(func(e *vpc.ENI) string { return e.Description }),
			"interface-type":                   one(func(e *vpc.ENI) string { return e.InterfaceType }),
			"mac-address":                      one(func(e *vpc.ENI) string { return e.MAC }),
			"private-ip-address":               one(func(e *vpc.ENI) string { return text(e.Primary) }),
			"private-dns-name":                 one(func(e *vpc.ENI) string { return vpc.PrivateDNSName(region, e.Primary) }),
			"source-dest-check":                one(func(e *vpc.ENI) string { return strconv.FormatBool(e.SourceDestCheck) }),
			"owner-id":                         one(func(*vpc.ENI) string { return account }),
			"requester-managed":                one(func(*vpc.ENI) string { return "false" }),
			"requester-id":                     none,
			"ipv6-addresses.ipv6-address":      func(e *vpc.ENI) []string { return texts(e.IPv6) },
			"association.public-ip":            one(func(e *vpc.ENI) string { return text(e.Public) }),
			"addresses.association.public-ip":  one(func(e *vpc.ENI) string { return text(e.Public) }),
			"group-id":                         func(e *vpc.ENI) []string { return e.Groups },
			"addresses.private-ip-address":     func(e *vpc.ENI) []string { return texts(e.Addresses()) },
			"addresses.primary":                primaries,
			"attachment.attachment-id":         attachment(func(a *vpc.Attachment) string { return a.ID }),
			"attachment.instance-id":           attachment(func(a *vpc.Attachment) string { return a.InstanceID }),
			"attachment.device-index":          attachment(func(a *vpc.Attachment) string { return strconv.Itoa(a.Device) }),
			"attachment.network-card-index":    attachment(func(a *vpc.Attachment) string { return strconv.Itoa(a.Card) }),
			"attachment.status":                attachment(func(a *vpc.Attachment) string { return a.Status }),
			"attachment.delete-on-termination": attachment(func(a *vpc.Attachment) string { return strconv.FormatBool(a.DeleteOnTermination) }),
			"attachment.instance-owner-id":     attachment(func(*vpc.Attachment) string { return account }),
		},
	}
}

func primaries(e *vpc.ENI) []string {
	if !e.Primary.IsValid() {
		return nil
	}
	if len(e.Secondary) > 0 {
		return []string{"true", "false"}
	}
	return []string{"true"}
}

func texts(addrs []netip.Addr) []string {
	out := make([]string, len(addrs))
	for n, a := range addrs {
		out[n] = a.String()
	}
	return out
}
