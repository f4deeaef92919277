package cloud

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Do carries out one step of the planner. See pool.CloudError for what an error means; after ClassUnknown the step may
// have happened.
func (c *Cloud) Do(ctx context.Context, action pool.Action) (pool.Outcome, error) {
	id, err := c.readIdentity(ctx)
	if err != nil {
		return pool.Outcome{}, err
	}
	c.forget()
	switch a := action.(type) {
	case pool.CreateENI:
		return c.create(ctx, a, id.instance)
	case pool.AttachENI:
		return c.attach(ctx, a, id.instance)
	case pool.SetDeleteOnTermination:
		return pool.Outcome{}, c.setDeleteOnTermination(ctx, a.ENI, a.AttachmentID)
	case pool.AssignAddresses:
		return c.assign(ctx, a)
	case pool.UnassignAddresses:
		return pool.Outcome{}, c.unassign(ctx, a)
	case pool.AssignPrefixes:
		return c.assignPrefixes(ctx, a)
	case pool.UnassignPrefixes:
		return pool.Outcome{}, c.unassignPrefixes(ctx, a)
	case pool.DetachENI:
		return pool.Outcome{}, c.detach(ctx, a)
	case pool.DeleteENI:
		return pool.Outcome{}, c.delete(ctx, a)
	}
	return pool.Outcome{}, &pool.CloudError{Class: pool.ClassInvalid, Message: fmt.Sprintf("no such step: %T", action)}
}

func once(o *ec2.Options) { o.RetryMaxAttempts = onceOnly }

func (c *Cloud) create(ctx context.Context, a pool.CreateENI, instance string) (pool.Outcome, error) {
	in := &ec2.CreateNetworkInterfaceInput{
		SubnetId:          aws.String(a.Subnet),
		Description:       aws.String(descriptionPrefix + instance),
		ClientToken:       aws.String(a.Token),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeNetworkInterface, Tags: c.tags(instance, a.Token)}},
	}
	if a.Groups != "" {
		in.Groups = strings.Split(a.Groups, ",")
	}
	if a.Secondary > 0 {
		in.SecondaryPrivateIpAddressCount = aws.Int32(int32(a.Secondary))
	}
	out, err := call(ctx, c, "CreateNetworkInterface", func(ctx context.Context) (*ec2.CreateNetworkInterfaceOutput, error) {
		return c.client().CreateNetworkInterface(ctx, in)
	})
	if err != nil {
		return pool.Outcome{}, err
	}
	if out.NetworkInterface == nil {
		return pool.Outcome{}, &pool.CloudError{Class: pool.ClassUnknown, Message: "EC2 created an ENI and did not describe it"}
	}
	if err := c.learnSubnets(ctx, []types.NetworkInterface{*out.NetworkInterface}); err != nil {
		return pool.Outcome{}, &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("describe created ENI's subnet: %w", err)}
	}
	eni := c.eni(out.NetworkInterface, instance)
	eni.Owned = true // the tags went with the request; the answer may leave them out
	return pool.Outcome{ENI: eni}, nil
}

// tags are a new ENI's, by key. The same token gets the same createdAt: EC2 refuses a token with other parameters.
func (c *Cloud) tags(instance, token string) []types.Tag {
	c.mu.Lock()
	if c.created.token != token {
		c.created = creation{token: token, stamp: c.options.Now().UTC().Format(time.RFC3339)}
	}
	stamp := c.created.stamp
	c.mu.Unlock()
	tags := maps.Clone(c.options.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[tagInstance], tags[tagCreatedAt] = instance, stamp
	if c.options.ClusterName != "" {
		tags[tagCluster] = c.options.ClusterName
	}
	list := make([]types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return list
}

// attach attaches and sets DeleteOnTermination. Where only the second fails the outcome says so (the flag is false) and
// the planner repairs it: the attachment stands.
func (c *Cloud) attach(ctx context.Context, a pool.AttachENI, instance string) (pool.Outcome, error) {
	in := &ec2.AttachNetworkInterfaceInput{
		InstanceId:         aws.String(instance),
		NetworkInterfaceId: aws.String(a.ENI),
		DeviceIndex:        aws.Int32(int32(a.Device)),
		NetworkCardIndex:   aws.Int32(0), // left out, EC2 checks the device index across all cards of multi-card types
	}
	out, err := call(ctx, c, "AttachNetworkInterface", func(ctx context.Context) (*ec2.AttachNetworkInterfaceOutput, error) {
		return c.client().AttachNetworkInterface(ctx, in, once)
	})
	if err != nil {
		return pool.Outcome{}, err
	}
	eni := pool.ENI{ID: a.ENI, AttachmentID: aws.ToString(out.AttachmentId), Device: a.Device, State: pool.Attaching, Owned: true}
	eni.DeleteOnTermination = c.setDeleteOnTermination(ctx, a.ENI, eni.AttachmentID) == nil
	return pool.Outcome{ENI: eni}, nil
}

// setDeleteOnTermination may be repeated by the SDK: doing it twice is doing it once.
func (c *Cloud) setDeleteOnTermination(ctx context.Context, eni, attachment string) error {
	_, err := call(ctx, c, "ModifyNetworkInterfaceAttribute", func(ctx context.Context) (*ec2.ModifyNetworkInterfaceAttributeOutput, error) {
		return c.client().ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: aws.String(eni),
			Attachment: &types.NetworkInterfaceAttachmentChanges{
				AttachmentId: aws.String(attachment), DeleteOnTermination: aws.Bool(true),
			},
		})
	})
	return err
}

func (c *Cloud) assign(ctx context.Context, a pool.AssignAddresses) (pool.Outcome, error) {
	out, err := call(ctx, c, "AssignPrivateIpAddresses", func(ctx context.Context) (*ec2.AssignPrivateIpAddressesOutput, error) {
		return c.client().AssignPrivateIpAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{
			NetworkInterfaceId:             aws.String(a.ENI),
			SecondaryPrivateIpAddressCount: aws.Int32(int32(a.Count)),
		}, once)
	})
	if err != nil {
		return pool.Outcome{}, err
	}
	var addresses []netip.Addr
	for i := range out.AssignedPrivateIpAddresses {
		text := aws.ToString(out.AssignedPrivateIpAddresses[i].PrivateIpAddress)
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return pool.Outcome{}, &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("read assigned address %q: %w", text, err)}
		}
		addresses = append(addresses, addr)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return pool.Outcome{Addresses: addresses}, nil
}

func (c *Cloud) unassign(ctx context.Context, a pool.UnassignAddresses) error {
	_, err := call(ctx, c, "UnassignPrivateIpAddresses", func(ctx context.Context) (*ec2.UnassignPrivateIpAddressesOutput, error) {
		return c.client().UnassignPrivateIpAddresses(ctx, &ec2.UnassignPrivateIpAddressesInput{
			NetworkInterfaceId: aws.String(a.ENI),
			PrivateIpAddresses: strings.Split(string(a.Addresses), ","),
		}, once)
	})
	return err
}

func (c *Cloud) detach(ctx context.Context, a pool.DetachENI) error {
	_, err := call(ctx, c, "DetachNetworkInterface", func(ctx context.Context) (*ec2.DetachNetworkInterfaceOutput, error) {
		return c.client().DetachNetworkInterface(ctx, &ec2.DetachNetworkInterfaceInput{AttachmentId: aws.String(a.AttachmentID)}, once)
	})
	return err
}

// delete takes "not there" for success: that is what was wanted.
func (c *Cloud) delete(ctx context.Context, a pool.DeleteENI) error {
	_, err := call(ctx, c, "DeleteNetworkInterface", func(ctx context.Context) (*ec2.DeleteNetworkInterfaceOutput, error) {
		return c.client().DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: aws.String(a.ENI)}, once)
	})
	if isClass(err, pool.ClassGone) {
		return nil
	}
	return err
}
