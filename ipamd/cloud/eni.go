package cloud

import (
	"net/netip"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Tags and the description of ENIs, the same as the incumbent's, so that a node can change over with its ENIs.
const (
	tagInstance       = "node.k8s.amazonaws.com/instance_id"
	tagCreatedAt      = "node.k8s.amazonaws.com/createdAt" // RFC 3339
	tagCluster        = "cluster.k8s.amazonaws.com/name"
	tagNoManage       = "node.k8s.amazonaws.com/no_manage" // "true" takes an ENI out of the daemon's hands
	descriptionPrefix = "aws-K8S-"
)

// onDefaultCard tells whether an ENI is on network card 0 or on none. Other cards' ENIs have device indexes and limits of
// their own, and no pod uses them.
func onDefaultCard(described *types.NetworkInterface) bool {
	return described.Attachment == nil || aws.ToInt32(described.Attachment.NetworkCardIndex) == 0
}

// eni translates EC2's description. A missing attachment (EC2 leaves it out at times) reads as available, which is what
// its status then says too.
func (c *Cloud) eni(described *types.NetworkInterface, instance string) pool.ENI {
	c.mu.Lock()
	cidr := c.subnets[aws.ToString(described.SubnetId)]
	c.mu.Unlock()
	eni := pool.ENI{
		ID:         aws.ToString(described.NetworkInterfaceId),
		MAC:        aws.ToString(described.MacAddress),
		Subnet:     aws.ToString(described.SubnetId),
		SubnetCIDR: cidr,
		State:      pool.Available,
	}
	if attachment := described.Attachment; attachment != nil && attachment.Status != types.AttachmentStatusDetached {
		eni.State = string(attachment.Status)
		eni.AttachmentID = aws.ToString(attachment.AttachmentId)
		eni.Device = int(aws.ToInt32(attachment.DeviceIndex))
		eni.DeleteOnTermination = aws.ToBool(attachment.DeleteOnTermination)
	}
	for i := range described.PrivateIpAddresses {
		text := aws.ToString(described.PrivateIpAddresses[i].PrivateIpAddress)
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil: // EC2 sends addresses; what is none cannot be given to a pod
		case aws.ToBool(described.PrivateIpAddresses[i].Primary), text == aws.ToString(described.PrivateIpAddress): // told twice: one is enough
			eni.Primary = addr
		default:
			eni.Secondary = append(eni.Secondary, addr)
		}
	}
	slices.SortFunc(eni.Secondary, netip.Addr.Compare)
	for i := range described.Ipv4Prefixes {
		// EC2 sends prefixes; what is none has no addresses for pods.
		if prefix, err := netip.ParsePrefix(aws.ToString(described.Ipv4Prefixes[i].Ipv4Prefix)); err == nil {
			eni.Prefixes = append(eni.Prefixes, prefix)
		}
	}
	slices.SortFunc(eni.Prefixes, netip.Prefix.Compare)
	for i := range described.Groups {
		eni.Groups = append(eni.Groups, aws.ToString(described.Groups[i].GroupId))
	}
	slices.Sort(eni.Groups)
	readTags(&eni, described.TagSet, instance)
	return eni
}

func readTags(eni *pool.ENI, tags []types.Tag, instance string) {
	released := false
	for i := range tags {
		switch aws.ToString(tags[i].Key) {
		case tagInstance:
			eni.Owned = aws.ToString(tags[i].Value) == instance
		case tagNoManage:
			released = aws.ToString(tags[i].Value) == "true"
		case tagCreatedAt:
			if at, err := time.Parse(time.RFC3339, aws.ToString(tags[i].Value)); err == nil {
				eni.CreatedAt = at
			}
		}
	}
	eni.Owned = eni.Owned && !released
}
