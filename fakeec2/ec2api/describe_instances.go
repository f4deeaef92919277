package ec2api

import (
	"fmt"
	"strconv"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type describeInstancesInput struct {
	dryRun
	pageInput
	InstanceID     []string      `query:"InstanceId"`
	Filter         []filterInput `query:"Filter"`
	IncludeManaged bool          `query:"IncludeManagedResources"` // there are none: both answers are the same
}

type describeInstancesOutput struct {
	head
	Reservations set[reservationXML] `xml:"reservationSet"`
	NextToken    string              `xml:"nextToken,omitempty"`
}

// reservationXML holds the instances of one launch.
type reservationXML struct {
	ID        string           `xml:"reservationId"`
	OwnerID   string           `xml:"ownerId"`
	Groups    set[groupXML]    `xml:"groupSet"` // EC2-Classic's; empty in a VPC
	Instances set[instanceXML] `xml:"instancesSet"`
}

type instanceXML struct {
	ID                 string              `xml:"instanceId"`
	ImageID            string              `xml:"imageId"`
	State              stateXML            `xml:"instanceState"`
	PrivateDNS         string              `xml:"privateDnsName"`
	PublicDNS          string              `xml:"dnsName"`
	LaunchIndex        int                 `xml:"amiLaunchIndex"`
	Type               string              `xml:"instanceType"`
	LaunchTime         string              `xml:"launchTime"`
	Placement          placementXML        `xml:"placement"`
	Monitoring         string              `xml:"monitoring>state"`
	SubnetID           string              `xml:"subnetId,omitempty"`
	VPCID              string              `xml:"vpcId,omitempty"`
	PrivateIP          string              `xml:"privateIpAddress,omitempty"`
	PublicIP           string              `xml:"ipAddress,omitempty"`
	IPv6               string              `xml:"ipv6Address,omitempty"`
	SourceDestCheck    *bool               `xml:"sourceDestCheck"`
	Groups             set[groupXML]       `xml:"groupSet"`
	Architecture       string              `xml:"architecture"`
	RootDeviceType     string              `xml:"rootDeviceType"`
	RootDeviceName     string              `xml:"rootDeviceName"`
	VirtualizationType string              `xml:"virtualizationType"`
	Tags               set[tagXML]         `xml:"tagSet"`
	Hypervisor         string              `xml:"hypervisor"`
	NetworkInterfaces  set[instanceENIXML] `xml:"networkInterfaceSet"`
	Profile            *profileXML         `xml:"iamInstanceProfile"`
	ENASupport         bool                `xml:"enaSupport"`
	MetadataOptions    metadataXML         `xml:"metadataOptions"`
}

type stateXML struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type placementXML struct {
	AZ      string `xml:"availabilityZone"`
	AZID    string `xml:"availabilityZoneId"`
	Group   string `xml:"groupName"`
	Tenancy string `xml:"tenancy"`
}

type profileXML struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

type metadataXML struct {
	State        string `xml:"state"`
	Tokens       string `xml:"httpTokens"`
	HopLimit     int    `xml:"httpPutResponseHopLimit"`
	Endpoint     string `xml:"httpEndpoint"`
	IPv6         string `xml:"httpProtocolIpv6"`
	InstanceTags string `xml:"instanceMetadataTags"`
}

// machine is an instance with its ENIs, as filters and descriptions want it.
type machine struct {
	vpc.Instance
	enis []vpc.ENI
}

func describeInstances(c *call, in describeInstancesInput) (response, error) {
	if err := in.check(in.InstanceID, "instancesSet", maxPage); err != nil {
		return nil, err
	}
	match, err := instanceFilters(c.vpc.Region(), c.vpc.Account()).compile(in.Filter)
	if err != nil {
		return nil, err
	}
	instances := []vpc.Instance(nil)
	if len(in.InstanceID) > 0 {
		if instances, err = c.vpc.DescribeInstances(in.InstanceID); err != nil {
			return nil, err
		}
	} else {
		instances = c.vpc.Instances()
	}
	found := make([]machine, len(instances))
	for n, i := range instances {
		found[n] = machine{i, c.described().InstanceENIs(i.ID)}
	}
	found, next, err := page(keep(found, match), in.pageInput, filterDigest(in.Filter), func(m *machine) string { return m.ID })
	if err != nil {
		return nil, err
	}
	return &describeInstancesOutput{Reservations: c.painter().reservations(found), NextToken: next}, nil
}

// reservations groups machines that were launched together.
func (p *painter) reservations(machines []machine) set[reservationXML] {
	var out set[reservationXML]
	at := map[string]int{}
	for _, m := range machines {
		n, there := at[m.ReservationID]
		if !there {
			n = len(out.Items)
			at[m.ReservationID] = n
			out.Items = append(out.Items, reservationXML{ID: m.ReservationID, OwnerID: p.vpc.Account()})
		}
		list := &out.Items[n].Instances
		list.Items = append(list.Items, p.instance(m))
	}
	return out
}

func (p *painter) instance(m machine) instanceXML {
	x := instanceXML{
		ID: m.ID, ImageID: m.ImageID, State: stateXML{stateCode(m.State), m.State}, Type: m.Type, LaunchTime: stamp3339(m.LaunchTime),
		Placement:  placementXML{AZ: m.AZ, AZID: zoneID(p.vpc.Region(), m.AZ), Tenancy: "default"},
		Monitoring: "disabled", Architecture: "x86_64", RootDeviceType: "ebs", RootDeviceName: "/dev/xvda", VirtualizationType: "hvm",
		Tags: tagSet(m.Tags), Hypervisor: "xen", // EC2 says "xen" for Nitro instances too
		ENASupport:        m.Limits.Hypervisor != vpc.Xen,
		NetworkInterfaces: setOf(m.enis, p.instanceENI),
		MetadataOptions:   metadataElement(m.Instance),
	}
	if m.Role != "" {
		x.Profile = &profileXML{ARN: fmt.Sprintf("arn:aws:iam::%s:instance-profile/%s", p.vpc.Account(), m.Role), ID: "AIPA" + m.Role}
	}
	if len(m.enis) == 0 {
		return x // terminated: its network is gone from the description
	}
	primary := m.enis[0]
	x.SubnetID, x.VPCID, x.PrivateIP = m.SubnetID, m.VPCID, text(primary.Primary)
	x.IPv6 = firstIPv6(primary)
	x.PrivateDNS = p.dns(primary.Primary)
	x.SourceDestCheck = &primary.SourceDestCheck
	x.Groups = p.groupSet(primary.Groups)
	if primary.Public.IsValid() {
		x.PublicIP, x.PublicDNS = primary.Public.String(), publicDNS(p.vpc.Region(), primary.Public)
	}
	return x
}

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// stateCode is the number beside a state's name. Source: EC2 API reference, InstanceState.
func stateCode(state string) int {
	switch state {
	case vpc.Running:
		return 16
	case vpc.ShuttingDown:
		return 32
	case vpc.Terminated:
		return 48
	case stopping:
		return 64
	case vpc.Stopped:
		return 80
	}
	return 0 // pending
}

func instanceFilters(region, account string) filters[machine] {
	one := func(get func(*machine) string) func(*machine) []string {
		return func(m *machine) []string { return []string{get(m)} }
	}
	each := func(get func(*vpc.ENI) []string) func(*machine) []string {
		return func(m *machine) []string {
			var out []string
			for n := range m.enis {
				out = append(out, get(&m.enis[n])...)
			}
			return out
		}
	}
	f := filters[machine]{
		tags: func(m *machine) map[string]string { return m.Tags },
		names: map[string]func(*machine) []string{
			"instance-id":         one(func(m *machine) string { return m.ID }),
			"instance-type":       one(func(m *machine) string { return m.Type }),
			"instance-state-name": one(func(m *machine) string { return m.State }),
			"instance-state-code": one(func(m *machine) string { return strconv.Itoa(stateCode(m.State)) }),
			"image-id":            one(func(m *machine) string { return m.ImageID }),
			"availability-zone":   one(func(m *machine) string { return m.AZ }),
			"subnet-id":           one(func(m *machine) string { return m.SubnetID }),
			"vpc-id":              one(func(m *machine) string { return m.VPCID }),
			"owner-id":            one(func(*machine) string { return account }),
			"private-ip-address":  one(func(m *machine) string { return text(m.PrivateIP) }),
			"reservation-id":      one(func(m *machine) string { return m.ReservationID }),
			"private-dns-name":    one(func(m *machine) string { return vpc.PrivateDNSName(region, m.PrivateIP) }),
			"instance.group-id":   each(func(e *vpc.ENI) []string { return e.Groups }),
		},
	}
	enis := eniFilters(region, account).names
	for _, name := range []string{"network-interface-id", "subnet-id", "vpc-id", "status", "mac-address", "description", "availability-zone", "group-id",
		"addresses.private-ip-address", "attachment.attachment-id", "attachment.device-index", "attachment.status"} {
		f.names["network-interface."+name] = each(enis[name])
	}
	return f
}
