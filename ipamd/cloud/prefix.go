package cloud

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func (c *Cloud) assignPrefixes(ctx context.Context, a pool.AssignPrefixes) (pool.Outcome, error) {
	out, err := call(ctx, c, "AssignPrivateIpAddresses", func(ctx context.Context) (*ec2.AssignPrivateIpAddressesOutput, error) {
		return c.client().AssignPrivateIpAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{
			NetworkInterfaceId: aws.String(a.ENI),
			Ipv4PrefixCount:    aws.Int32(int32(a.Count)),
		}, once)
	})
	if err != nil {
		return pool.Outcome{}, err
	}
	var prefixes []netip.Prefix
	for i := range out.AssignedIpv4Prefixes {
		text := aws.ToString(out.AssignedIpv4Prefixes[i].Ipv4Prefix)
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return pool.Outcome{}, &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("read assigned prefix %q: %w", text, err)}
		}
		prefixes = append(prefixes, prefix)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return pool.Outcome{Prefixes: prefixes}, nil
}

func (c *Cloud) unassignPrefixes(ctx context.Context, a pool.UnassignPrefixes) error {
	_, err := call(ctx, c, "UnassignPrivateIpAddresses", func(ctx context.Context) (*ec2.UnassignPrivateIpAddressesOutput, error) {
		return c.client().UnassignPrivateIpAddresses(ctx, &ec2.UnassignPrivateIpAddressesInput{
			NetworkInterfaceId: aws.String(a.ENI),
			Ipv4Prefixes:       strings.Split(string(a.Prefixes), ","),
		}, once)
	})
	return err
}
