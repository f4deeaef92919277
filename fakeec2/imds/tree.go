package imds

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// versions are what "/" lists; each serves the same tree. Source: EC2 user guide (an excerpt of its list).
func versions() []string {
	return []string{
		"1.0", "2007-01-19", "2009-04-04", "2014-02-25", "2016-09-02", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03",
		"2021-03-23", "2021-07-15", "2022-07-09", "2022-09-24", "2024-04-11", "latest",
	}
}

// leaves is the tree below a version: path without leading slash -> content. Directories follow from the paths.
type leaves map[string]string

// get gives what a request's path shows: a leaf's content, or a listing. Listings are the same with and without a slash at
// the end, their lines are sorted, and directories in them end with a slash.
func (l leaves) get(path string) (string, bool) {
	path = strings.Trim(path, "/")
	if path == "" {
		return strings.Join(versions(), "\n"), true
	}
	version, path, _ := strings.Cut(path, "/")
	if !slices.Contains(versions(), version) {
		return "", false
	}
	if content, isLeaf := l[path]; isLeaf {
		return content, true
	}
	prefix := path + "/"
	if path == "" {
		prefix = ""
	}
	children := map[string]bool{}
	for leaf := range l {
		rest, below := strings.CutPrefix(leaf, prefix)
		if !below {
			continue
		}
		name, _, isDirectory := strings.Cut(rest, "/")
		if name == "" {
			continue // a directory that is listed without leaves
		}
		if isDirectory {
			name += "/"
		}
		children[name] = true
	}
	if len(children) == 0 {
		return "", false
	}
	return strings.Join(slices.Sorted(maps.Keys(children)), "\n"), true
}

// leaves builds an instance's tree. It is built for each request: a few dozen strings, and never stale.
func (s *Server) leaves(instance vpc.Instance, enis []vpc.MetadataENI, now time.Time) leaves {
	l := leaves{}
	put := func(path, content string) { l["meta-data/"+path] = content }
	s.putInstance(put, instance)
	putNotices(put, instance.Notices)
	for _, e := range enis {
		if e.Bare {
			put(macs+e.MAC+"/", "") // listed, and nothing below: a leaf of this name cannot be asked for
			continue
		}
		s.putENI(put, instance, e)
		if e.Attachment != nil && e.Attachment.Device == 0 && e.Attachment.Card == 0 {
			s.putPrimary(put, e.ENI)
		}
	}
	l["dynamic/instance-identity/document"] = s.identityDocument(instance)
	for _, name := range []string{"signature", "pkcs7", "rsa2048"} {
		l["dynamic/instance-identity/"+name] = signature(name, instance.ID)
	}
	if instance.Role != "" {
		put("iam/info", s.profileInfo(instance))
		put("iam/security-credentials/"+instance.Role, credentials(instance, now))
	}
	return l
}

// macs is the directory of all ENIs.
const macs = "network/interfaces/macs/"

func (s *Server) putInstance(put func(path, content string), instance vpc.Instance) {
	for path, content := range map[string]string{
		"ami-id":                             instance.ImageID,
		"ami-launch-index":                   "0",
		"ami-manifest-path":                  "(unknown)",
		"autoscaling/target-lifecycle-state": "InService",
		"block-device-mapping/ami":           "/dev/xvda",
		"block-device-mapping/root":          "/dev/xvda",
		"instance-action":                    "none",
		"instance-id":                        instance.ID,
		"instance-life-cycle":                "on-demand",
		"instance-type":                      instance.Type,
		"placement/availability-zone":        instance.AZ,
		"placement/region":                   s.model.Region(),
		"profile":                            "default-hvm",
		"reservation-id":                     instance.ReservationID,
		"services/domain":                    "amazonaws.com",
		"services/partition":                 "aws",
	} {
		put(path, content)
	}
	if instance.Limits.Hypervisor != "" {
		put("system", instance.Limits.Hypervisor)
	}
	if instance.PrivateIP.IsValid() {
		host := vpc.PrivateDNSName(s.model.Region(), instance.PrivateIP)
		put("hostname", host)
		put("local-hostname", host)
	}
	if !instance.MetadataTags {
		return
	}
	for key, content := range instance.Tags {
		if !strings.Contains(key, "/") { // EC2 refuses to show such tags at all
			put("tags/instance/"+key, content)
		}
	}
}

// putPrimary adds the leaves that say of the instance what is true of its primary ENI.
func (s *Server) putPrimary(put func(path, content string), e vpc.ENI) {
	put("mac", e.MAC)
	put("security-groups", strings.Join(s.groupNames(e), "\n"))
	if e.Primary.IsValid() {
		put("local-ipv4", e.Primary.String())
	}
	if len(e.IPv6) > 0 {
		put("ipv6", e.IPv6[0].String())
	}
	if e.Public.IsValid() {
		put("public-ipv4", e.Public.String())
		put("public-hostname", publicName(s.model.Region(), e.Public))
	}
}

// putENI adds an ENI's leaves. Those that have nothing to say are absent (404), as on real instances.
func (s *Server) putENI(put func(path, content string), instance vpc.Instance, e vpc.MetadataENI) {
	leaf := func(name, content string) {
		if content != "" {
			put(macs+e.MAC+"/"+name, content)
		}
	}
	leaf("interface-id", e.ID)
	leaf("mac", e.MAC)
	leaf("owner-id", s.model.Account())
	leaf("subnet-id", e.SubnetID)
	leaf("vpc-id", e.VPCID)
	leaf("local-ipv4s", lines(e.Addresses()))
	leaf("ipv4-prefix", lines(e.Prefixes))
	leaf("ipv6s", lines(e.IPv6))
	leaf("ipv6-prefix", lines(e.IPv6Prefixes))
	leaf("security-group-ids", strings.Join(e.Groups, "\n"))
	leaf("security-groups", strings.Join(s.groupNames(e.ENI), "\n"))
	if e.Primary.IsValid() {
		leaf("local-hostname", vpc.PrivateDNSName(s.model.Region(), e.Primary))
	}
	if e.Attachment != nil {
		device := e.Attachment.Device
		if e.DeviceUnknown {
			device = 0 // not propagated yet
		}
		leaf("device-number", strconv.Itoa(device))
		if len(instance.Limits.Cards) > 1 {
			// AWS documents network-card-index; real instances are reported to serve network-card, which is what CNIs read.
			leaf("network-card", strconv.Itoa(e.Attachment.Card))
			leaf("network-card-index", strconv.Itoa(e.Attachment.Card))
		}
	}
	if subnet, known := s.model.Subnet(e.SubnetID); known {
		if subnet.CIDR.IsValid() {
			leaf("subnet-ipv4-cidr-block", subnet.CIDR.String())
		}
		if subnet.IPv6CIDR.IsValid() {
			leaf("subnet-ipv6-cidr-blocks", subnet.IPv6CIDR.String())
		}
	}
	for _, n := range s.model.VPCs() {
		if n.ID == e.VPCID {
			leaf("vpc-ipv4-cidr-block", n.CIDRs[0].String())
			leaf("vpc-ipv4-cidr-blocks", lines(n.CIDRs))
			leaf("vpc-ipv6-cidr-blocks", lines(n.IPv6CIDRs))
		}
	}
	if e.Public.IsValid() {
		leaf("public-ipv4s", e.Public.String())
		leaf("public-hostname", publicName(s.model.Region(), e.Public))
		leaf("ipv4-associations/"+e.Public.String(), e.Primary.String())
	}
}

// publicName is the name that EC2 gives a public address in a region.
func publicName(region string, addr netip.Addr) string {
	zone := region + ".compute.amazonaws.com"
	if region == "us-east-1" { // the oldest region kept its first zone
		zone = "compute-1.amazonaws.com"
	}
	return "ec2-" + strings.ReplaceAll(addr.String(), ".", "-") + "." + zone
}

// groupNames are the names of an ENI's security groups, in the order of their ids.
func (s *Server) groupNames(e vpc.ENI) []string {
	var names []string
	for _, g := range s.model.SecurityGroups() {
		if slices.Contains(e.Groups, g.ID) {
			names = append(names, g.Name)
		}
	}
	return names
}

// lines prints one value a line.
func lines[T fmt.Stringer](values []T) string {
	printed := make([]string, len(values))
	for i, v := range values {
		printed[i] = v.String()
	}
	return strings.Join(printed, "\n")
}
