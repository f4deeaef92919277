package ec2api

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// eniXML is a NetworkInterface; instanceENIXML is the same seen from an instance. Element names: EC2 API reference.
type eniXML struct {
	ID               string            `xml:"networkInterfaceId"`
	SubnetID         string            `xml:"subnetId"`
	VPCID            string            `xml:"vpcId"`
	AZ               string            `xml:"availabilityZone"`
	AZID             string            `xml:"availabilityZoneId"`
	Description      string            `xml:"description"`
	OwnerID          string            `xml:"ownerId"`
	RequesterManaged bool              `xml:"requesterManaged"`
	Status           string            `xml:"status"`
	MAC              string            `xml:"macAddress"`
	PrivateIP        string            `xml:"privateIpAddress,omitempty"`
	IPv6             string            `xml:"ipv6Address,omitempty"`
	PrivateDNS       string            `xml:"privateDnsName,omitempty"`
	SourceDestCheck  bool              `xml:"sourceDestCheck"`
	Groups           set[groupXML]     `xml:"groupSet"`
	Attachment       *attachmentXML    `xml:"attachment"`
	Association      *associationXML   `xml:"association"`
	Tags             set[tagXML]       `xml:"tagSet"`
	PrivateIPs       set[privateIPXML] `xml:"privateIpAddressesSet"`
	Prefixes         set[prefixXML]    `xml:"ipv4PrefixSet"`
	IPv6Addresses    set[ipv6XML]      `xml:"ipv6AddressesSet"`
	IPv6Prefixes     set[prefix6XML]   `xml:"ipv6PrefixSet"`
	Tracking         *trackingXML      `xml:"connectionTrackingConfiguration"`
	DenyIGW          bool              `xml:"denyAllIgwTraffic"`
	InterfaceType    string            `xml:"interfaceType"`
}

type instanceENIXML struct {
	ID              string            `xml:"networkInterfaceId"`
	SubnetID        string            `xml:"subnetId"`
	VPCID           string            `xml:"vpcId"`
	Description     string            `xml:"description"`
	OwnerID         string            `xml:"ownerId"`
	Status          string            `xml:"status"`
	MAC             string            `xml:"macAddress"`
	PrivateIP       string            `xml:"privateIpAddress,omitempty"`
	PrivateDNS      string            `xml:"privateDnsName,omitempty"`
	SourceDestCheck bool              `xml:"sourceDestCheck"`
	Groups          set[groupXML]     `xml:"groupSet"`
	Attachment      *attachmentXML    `xml:"attachment"`
	Association     *associationXML   `xml:"association"`
	PrivateIPs      set[privateIPXML] `xml:"privateIpAddressesSet"`
	Prefixes        set[prefixXML]    `xml:"ipv4PrefixSet"`
	IPv6Addresses   set[ipv6XML]      `xml:"ipv6AddressesSet"`
	IPv6Prefixes    set[prefix6XML]   `xml:"ipv6PrefixSet"`
	Tracking        *trackingXML      `xml:"connectionTrackingConfiguration"`
	InterfaceType   string            `xml:"interfaceType"`
}

type groupXML struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

type tagXML struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type attachmentXML struct {
	ID                  string `xml:"attachmentId"`
	InstanceID          string `xml:"instanceId,omitempty"`
	InstanceOwnerID     string `xml:"instanceOwnerId,omitempty"`
	DeviceIndex         int    `xml:"deviceIndex"`
	NetworkCardIndex    int    `xml:"networkCardIndex"`
	Status              string `xml:"status"`
	AttachTime          string `xml:"attachTime"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
}

type associationXML struct {
	PublicIP  string `xml:"publicIp"`
	PublicDNS string `xml:"publicDnsName"`
	IPOwnerID string `xml:"ipOwnerId"`
}

type privateIPXML struct {
	Address     string          `xml:"privateIpAddress"`
	DNS         string          `xml:"privateDnsName"`
	Primary     bool            `xml:"primary"`
	Association *associationXML `xml:"association"`
}

type prefixXML struct {
	Prefix string `xml:"ipv4Prefix"`
}

type prefix6XML struct {
	Prefix string `xml:"ipv6Prefix"`
}

type ipv6XML struct {
	Address string `xml:"ipv6Address"`
	Primary bool   `xml:"isPrimaryIpv6"`
}

type trackingXML struct {
	TCPEstablished int `xml:"tcpEstablishedTimeout,omitempty"`
	UDPStream      int `xml:"udpStreamTimeout,omitempty"`
	UDP            int `xml:"udpTimeout,omitempty"`
}

// painter turns the model's words into elements; it remembers group names for one response.
type painter struct {
	vpc    *vpc.VPC
	groups map[string]string
}

func (h *Handler) painter() *painter { return &painter{vpc: h.vpc, groups: map[string]string{}} }

func (p *painter) eni(e vpc.ENI) eniXML {
	return eniXML{
		ID: e.ID, SubnetID: e.SubnetID, VPCID: e.VPCID, AZ: e.AZ, AZID: zoneID(p.vpc.Region(), e.AZ),
		Description: e.Description, OwnerID: p.vpc.Account(), Status: e.Status, MAC: e.MAC,
		PrivateIP: text(e.Primary), IPv6: firstIPv6(e), PrivateDNS: p.dns(e.Primary), SourceDestCheck: e.SourceDestCheck,
		Groups: p.groupSet(e.Groups), Attachment: p.attachment(e, true), Association: p.association(e), Tags: tagSet(e.Tags),
		PrivateIPs: p.addresses(e), InterfaceType: e.InterfaceType,
		Prefixes: prefixSet(e.Prefixes), IPv6Addresses: ipv6Set(e), IPv6Prefixes: prefix6Set(e.IPv6Prefixes), Tracking: tracking(e),
	}
}

func (p *painter) instanceENI(e vpc.ENI) instanceENIXML {
	return instanceENIXML{
		ID: e.ID, SubnetID: e.SubnetID, VPCID: e.VPCID, Description: e.Description, OwnerID: p.vpc.Account(), Status: e.Status,
		MAC: e.MAC, PrivateIP: text(e.Primary), PrivateDNS: p.dns(e.Primary), SourceDestCheck: e.SourceDestCheck,
		Groups: p.groupSet(e.Groups), Attachment: p.attachment(e, false), Association: p.association(e),
		PrivateIPs: p.addresses(e), InterfaceType: e.InterfaceType,
		Prefixes: prefixSet(e.Prefixes), IPv6Addresses: ipv6Set(e), IPv6Prefixes: prefix6Set(e.IPv6Prefixes), Tracking: tracking(e),
	}
}

func prefixSet(list []netip.Prefix) set[prefixXML] {
	return setOf(list, func(p netip.Prefix) prefixXML { return prefixXML{p.String()} })
}

func prefix6Set(list []netip.Prefix) set[prefix6XML] {
	return setOf(list, func(p netip.Prefix) prefix6XML { return prefix6XML{p.String()} })
}

func ipv6Set(e vpc.ENI) set[ipv6XML] {
	return setOf(e.IPv6, func(a netip.Addr) ipv6XML { return ipv6XML{a.String(), a == e.PrimaryIPv6} })
}

// firstIPv6 is the address that EC2 shows beside the list.
func firstIPv6(e vpc.ENI) string {
	switch {
	case e.PrimaryIPv6.IsValid():
		return e.PrimaryIPv6.String()
	case len(e.IPv6) > 0:
		return e.IPv6[0].String()
	}
	return ""
}

func tracking(e vpc.ENI) *trackingXML {
	if e.Tracking == (vpc.ConnectionTracking{}) {
		return nil
	}
	return &trackingXML{e.Tracking.TCPEstablished, e.Tracking.UDPStream, e.Tracking.UDP}
}

// text is an address, or nothing for none.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// attachment leaves the instance out where the element lies inside that instance.
func (p *painter) attachment(e vpc.ENI, withInstance bool) *attachmentXML {
	a := e.Attachment
	if a == nil {
		return nil
	}
	x := &attachmentXML{
		ID: a.ID, DeviceIndex: a.Device, NetworkCardIndex: a.Card, Status: a.Status,
		AttachTime: stamp3339(a.AttachTime), DeleteOnTermination: a.DeleteOnTermination,
	}
	if withInstance {
		x.InstanceID, x.InstanceOwnerID = a.InstanceID, p.vpc.Account()
	}
	return x
}

func (p *painter) association(e vpc.ENI) *associationXML {
	if !e.Public.IsValid() {
		return nil
	}
	return &associationXML{PublicIP: e.Public.String(), PublicDNS: publicDNS(p.vpc.Region(), e.Public), IPOwnerID: "amazon"}
}

func (p *painter) addresses(e vpc.ENI) set[privateIPXML] {
	list := setOf(e.Addresses(), func(a netip.Addr) privateIPXML { return privateIPXML{Address: a.String(), DNS: p.dns(a)} })
	if e.Primary.IsValid() {
		list.Items[0].Primary = true
		list.Items[0].Association = p.association(e)
	}
	return list
}

func (p *painter) groupSet(ids []string) set[groupXML] {
	return setOf(ids, func(id string) groupXML {
		name, known := p.groups[id]
		if !known {
			if found, err := p.vpc.DescribeSecurityGroups([]string{id}); err == nil {
				name = found[0].Name
			}
			p.groups[id] = name
		}
		return groupXML{ID: id, Name: name}
	})
}

func (p *painter) dns(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return vpc.PrivateDNSName(p.vpc.Region(), a)
}

func publicDNS(region string, a netip.Addr) string {
	zone := "." + region + ".compute.amazonaws.com"
	if region == "us-east-1" {
		zone = ".compute-1.amazonaws.com"
	}
	return "ec2-" + strings.ReplaceAll(a.String(), ".", "-") + zone
}

func tagSet(tags map[string]string) set[tagXML] {
	return setOf(slices.Sorted(maps.Keys(tags)), func(key string) tagXML { return tagXML{key, tags[key]} })
}

// zoneID is the id of an availability zone, "usw2-az1" for us-west-2a. EC2 shuffles the number per account; here a is 1.
func zoneID(region, zone string) string {
	parts := strings.Split(region, "-")
	letter := strings.TrimPrefix(zone, region)
	if len(parts) != 3 || len(letter) != 1 || letter[0] < 'a' || letter[0] > 'i' {
		return zone // a zone of the scenario's own naming
	}
	direction := parts[1][:1]
	for _, second := range []string{"east", "west"} {
		if rest, found := strings.CutSuffix(parts[1], second); found && rest != "" {
			direction = rest[:1] + second[:1] // "northeast" is "ne"
		}
	}
	return parts[0] + direction + parts[2] + "-az" + string('1'+letter[0]-'a')
}
