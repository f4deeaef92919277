package cloud

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// pageSize is the largest page of DescribeNetworkInterfaces; very big accounts refuse calls without one.
const pageSize = 1000

// statusPending is a new ENI's first status. The SDK's list of statuses does not have it; EC2 answers it all the same.
const statusPending = "pending"

// identity is what does not change while the instance runs.
type identity struct {
	instance, kind, region, zone string
	mac, vpc, subnet             string // of the primary ENI
}

// Observe reads the instance, its ENIs and the VPC's CIDRs. Attached ENIs are read before available ones: an ENI that is
// between the two (detaching) is then seen at least once, and the later reading counts. Where the metadata service fails
// after it once answered, the last known CIDRs stand: EC2's own reading must not be lost for their sake.
func (c *Cloud) Observe(ctx context.Context) (pool.Observation, error) {
	id, err := c.readIdentity(ctx)
	if err != nil {
		return pool.Observation{}, err
	}
	before := c.glance(ctx) // what changes from here on shows at the next look
	cidrs, err := c.readVPCCIDRs(ctx, id)
	if err != nil {
		return pool.Observation{}, err
	}
	limits, err := c.readLimits(ctx, id.kind)
	if err != nil {
		return pool.Observation{}, err
	}
	enis, err := c.readENIs(ctx, id)
	if err != nil {
		return pool.Observation{}, err
	}
	if slices.ContainsFunc(enis, func(e pool.ENI) bool { return len(e.Prefixes) > 0 }) {
		before = "" // a glance does not show prefixes: such a node is read every time
	}
	c.remember(before)
	return pool.Observation{
		Instance: pool.Instance{ID: id.instance, Type: id.kind, VPC: id.vpc, Subnet: id.subnet, AZ: id.zone, Limits: limits},
		VPCCIDRs: cidrs,
		ENIs:     enis,
	}, nil
}

// readIdentity reads once what does not change, and makes the EC2 client. Every step begins with it.
func (c *Cloud) readIdentity(ctx context.Context) (identity, error) {
	c.mu.Lock()
	known := c.identity
	c.mu.Unlock()
	if known.subnet != "" {
		return known, nil
	}
	document, err := c.readDocument(ctx)
	if err != nil {
		return identity{}, err
	}
	id := identity{instance: document.InstanceID, kind: document.InstanceType, region: document.Region, zone: document.AvailabilityZone}
	for _, leaf := range []struct {
		path string
		into *string
	}{{"mac", &id.mac}, {"vpc-id", &id.vpc}, {"subnet-id", &id.subnet}} {
		path := leaf.path
		if id.mac != "" {
			path = macPath(id.mac, leaf.path)
		}
		if *leaf.into, err = c.metadata(ctx, path); err != nil {
			return identity{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity = id
	if c.ec2 == nil {
		c.makeClient(id.region)
	}
	return id, nil
}

func macPath(mac, leaf string) string { return "network/interfaces/macs/" + mac + "/" + leaf }

func (c *Cloud) readDocument(ctx context.Context) (*imds.GetInstanceIdentityDocumentOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	start := time.Now()
	var document *imds.GetInstanceIdentityDocumentOutput
	err := c.options.Around.do("imds document", func() (err error) {
		document, err = c.imds.GetInstanceIdentityDocument(ctx, nil)
		return err
	})
	if err == nil && (document.InstanceID == "" || document.Region == "") {
		err = fmt.Errorf("instance id %q, region %q: incomplete", document.InstanceID, document.Region)
	}
	if err := c.ended("dynamic/instance-identity/document", start, err); err != nil {
		return nil, err
	}
	return document, nil
}

// metadata reads one leaf below /latest/meta-data/. Lines come without the final newline.
func (c *Cloud) metadata(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	start := time.Now()
	var body []byte
	err := c.options.Around.do("imds "+lastPart(path), func() error {
		out, err := c.imds.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
		if err == nil {
			body, err = io.ReadAll(out.Content)
			_ = out.Content.Close() // read to its end already
		}
		return err
	})
	if err := c.ended(path, start, err); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(body)), nil
}

// ended tells the hook of a metadata request and gives its error the planner's form. The name of the hook's action leaves
// the MAC out, so that metrics stay few.
func (c *Cloud) ended(path string, start time.Time, err error) error {
	done := Call{Service: "imds", Action: lastPart(path), Took: time.Since(start), Status: statusOf(err)}
	if err == nil {
		c.options.OnCall(done)
		return nil
	}
	failed := &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("read instance metadata %s: %w", path, err)}
	done.Err = failed
	c.options.OnCall(done)
	return failed
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func (c *Cloud) readVPCCIDRs(ctx context.Context, id identity) ([]netip.Prefix, error) {
	path := macPath(id.mac, "vpc-ipv4-cidr-blocks")
	text, err := c.metadata(ctx, path)
	var cidrs []netip.Prefix
	for line := range strings.FieldsSeq(text) {
		prefix, bad := netip.ParsePrefix(line)
		if bad != nil {
			err = &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("read instance metadata %s: %w", path, bad)}
			break
		}
		cidrs = append(cidrs, prefix)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && len(cidrs) > 0 {
		slices.SortFunc(cidrs, netip.Prefix.Compare)
		c.vpcCIDRs = cidrs
	}
	if len(c.vpcCIDRs) == 0 {
		return nil, cmp.Or[error](err, &pool.CloudError{Class: pool.ClassUnknown, Message: "the instance metadata names no CIDR of the VPC"})
	}
	return slices.Clone(c.vpcCIDRs), nil
}

// readENIs gives this instance's ENIs: attached to it, or available with its tag.
func (c *Cloud) readENIs(ctx context.Context, id identity) ([]pool.ENI, error) {
	attached, err := c.describeENIs(ctx, filter("attachment.instance-id", id.instance))
	if err != nil {
		return nil, err
	}
	available, err := c.describeENIs(ctx, filter("tag:"+tagInstance, id.instance),
		filter("status", string(types.NetworkInterfaceStatusAvailable), statusPending))
	if err != nil {
		return nil, err
	}
	described := slices.Concat(attached, available)
	if err := c.learnSubnets(ctx, described); err != nil {
		return nil, err
	}
	latest := map[string]pool.ENI{}
	for i := range described {
		if onDefaultCard(&described[i]) {
			eni := c.eni(&described[i], id.instance)
			latest[eni.ID] = eni
		}
	}
	enis := make([]pool.ENI, 0, len(latest))
	for _, eni := range latest {
		enis = append(enis, eni)
	}
	slices.SortFunc(enis, func(a, b pool.ENI) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.ID, b.ID)) })
	return enis, nil
}

func (c *Cloud) describeENIs(ctx context.Context, filters ...types.Filter) ([]types.NetworkInterface, error) {
	pages := ec2.NewDescribeNetworkInterfacesPaginator(c.client(), &ec2.DescribeNetworkInterfacesInput{
		Filters: filters, MaxResults: aws.Int32(pageSize),
	})
	var enis []types.NetworkInterface
	for pages.HasMorePages() {
		page, err := call(ctx, c, "DescribeNetworkInterfaces", func(ctx context.Context) (*ec2.DescribeNetworkInterfacesOutput, error) {
			return pages.NextPage(ctx)
		})
		if err != nil {
			return nil, err
		}
		enis = append(enis, page.NetworkInterfaces...)
	}
	return enis, nil
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

// learnSubnets reads the CIDRs of subnets that are not known yet. A subnet's CIDR never changes.
func (c *Cloud) learnSubnets(ctx context.Context, enis []types.NetworkInterface) error {
	var wanted []string
	c.mu.Lock()
	for i := range enis {
		id := aws.ToString(enis[i].SubnetId)
		if _, known := c.subnets[id]; !known && !slices.Contains(wanted, id) {
			wanted = append(wanted, id)
		}
	}
	c.mu.Unlock()
	if len(wanted) == 0 {
		return nil
	}
	slices.Sort(wanted)
	out, err := call(ctx, c, "DescribeSubnets", func(ctx context.Context) (*ec2.DescribeSubnetsOutput, error) {
		return c.client().DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: wanted})
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range out.Subnets {
		cidr, err := netip.ParsePrefix(aws.ToString(out.Subnets[i].CidrBlock))
		if err != nil {
			return &pool.CloudError{Class: pool.ClassUnknown, Err: fmt.Errorf("read CIDR of subnet %s: %w", aws.ToString(out.Subnets[i].SubnetId), err)}
		}
		c.subnets[aws.ToString(out.Subnets[i].SubnetId)] = cidr
	}
	return nil
}
