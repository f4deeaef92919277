package cloud

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// usualLimits answers where DescribeInstanceTypes cannot (no permission for it, throttled at start). It holds common types
// only; others wait for the API. Source: EC2 DescribeInstanceTypes, the default network card's figures.
var usualLimits = map[string]pool.Limits{
	"t3.small":      {ENIs: 3, AddressesPerENI: 4},
	"t3.medium":     {ENIs: 3, AddressesPerENI: 6},
	"t4g.medium":    {ENIs: 3, AddressesPerENI: 6},
	"t3.large":      {ENIs: 3, AddressesPerENI: 12},
	"t3.xlarge":     {ENIs: 4, AddressesPerENI: 15},
	"m5.large":      {ENIs: 3, AddressesPerENI: 10},
	"m5.xlarge":     {ENIs: 4, AddressesPerENI: 15},
	"m5.2xlarge":    {ENIs: 4, AddressesPerENI: 15},
	"m5.4xlarge":    {ENIs: 8, AddressesPerENI: 30},
	"m5.24xlarge":   {ENIs: 15, AddressesPerENI: 50},
	"m6i.large":     {ENIs: 3, AddressesPerENI: 10},
	"m6g.large":     {ENIs: 3, AddressesPerENI: 10},
	"c5.large":      {ENIs: 3, AddressesPerENI: 10},
	"c5.4xlarge":    {ENIs: 8, AddressesPerENI: 30},
	"r5.large":      {ENIs: 3, AddressesPerENI: 10},
	"p4d.24xlarge":  {ENIs: 15, AddressesPerENI: 50},
	"c6in.32xlarge": {ENIs: 8, AddressesPerENI: 50},
}

// readLimits asks EC2 once; until it has answered, usualLimits stands in where it knows the type.
func (c *Cloud) readLimits(ctx context.Context, kind string) (pool.Limits, error) {
	c.mu.Lock()
	known := c.limits
	c.mu.Unlock()
	if known.ENIs > 0 {
		return known, nil
	}
	out, err := call(ctx, c, "DescribeInstanceTypes", func(ctx context.Context) (*ec2.DescribeInstanceTypesOutput, error) {
		return c.client().DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{types.InstanceType(kind)}})
	})
	if err != nil {
		usual, ok := usualLimits[kind]
		if !ok {
			return pool.Limits{}, err
		}
		if isClass(err, pool.ClassDenied) {
			c.learnLimits(usual) // nobody will be asked in vain once a minute
		}
		return usual, nil
	}
	for i := range out.InstanceTypes {
		if limits, ok := limitsOf(out.InstanceTypes[i].NetworkInfo); ok {
			c.learnLimits(limits)
			return limits, nil
		}
	}
	return pool.Limits{}, &pool.CloudError{Class: pool.ClassInvalid, Message: "EC2 describes no network limits of instance type " + kind}
}

func (c *Cloud) learnLimits(limits pool.Limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = limits
}

// limitsOf gives the figures of the default network card: MaximumNetworkInterfaces of the whole type counts every card's,
// and only the default card is used.
func limitsOf(info *types.NetworkInfo) (pool.Limits, bool) {
	if info == nil {
		return pool.Limits{}, false
	}
	limits := pool.Limits{
		ENIs:            int(aws.ToInt32(info.MaximumNetworkInterfaces)),
		AddressesPerENI: int(aws.ToInt32(info.Ipv4AddressesPerInterface)),
	}
	for i := range info.NetworkCards {
		card := info.NetworkCards[i]
		if aws.ToInt32(card.NetworkCardIndex) == aws.ToInt32(info.DefaultNetworkCardIndex) && card.MaximumNetworkInterfaces != nil {
			limits.ENIs = int(aws.ToInt32(card.MaximumNetworkInterfaces))
		}
	}
	return limits, limits.ENIs > 0 && limits.AddressesPerENI > 0
}
