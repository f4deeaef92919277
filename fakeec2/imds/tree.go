package imds

import (
	"fmt"
	"maps"
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
func (s *Server) leaves(instance vpc.Instance, enis []vpc.ENI, now time.Time) leaves {
	l := leaves{}
	put := func(path, content string) { l["meta-data/"+path] = content }
	host := vpc.PrivateDNSName(s.model.Region(), instance.PrivateIP)
	for path, content := range map[string]string{
		"ami-id":                      instance.ImageID,
		"ami-launch-index":            "0",
		"hostname":                    host,
		"instance-id":                 instance.ID,
		"instance-life-cycle":         "on-demand",
		"instance-type":               instance.Type,
		"local-hostname":              host,
		"placement/availability-zone": instance.AZ,
		"placement/region":            s.model.Region(),
		"profile":                     "default-hvm",
		"services/domain":             "amazonaws.com",
		"services/partition":          "aws",
	} {
		put(path, content)
	}
	for key, content := range instance.Tags {
		if !strings.Contains(key, "/") { // EC2 refuses to show such tags at all
			put("tags/instance/"+key, content)
		}
	}
	for _, e := range enis {
		s.putENI(put, instance, e)
		if e.Attachment == nil || e.Attachment.Device != 0 || e.Attachment.Card != 0 {
			continue
		}
		put("mac", e.MAC)
		put("local-ipv4", e.Primary.String())
		put("security-groups", strings.Join(s.groupNames(e), "\n"))
		if e.Public.IsValid() {
			put("public-ipv4", e.Public.String())
		}
	}
	l["dynamic/instance-identity/document"] = s.identityDocument(instance)
	if instance.Role != "" {
		put("iam/info", s.profileInfo(instance))
		put("iam/security-credentials/"+instance.Role, credentials(instance, now))
	}
	return l
}

// putENI adds an ENI's leaves. Those that have nothing to say are absent (404), as on real instances.
func (s *Server) putENI(put func(path, content string), instance vpc.Instance, e vpc.ENI) {
	leaf := func(name, content string) { put("network/interfaces/macs/"+e.MAC+"/"+name, content) }
	leaf("interface-id", e.ID)
	leaf("mac", e.MAC)
	leaf("owner-id", s.model.Account())
	leaf("subnet-id", e.SubnetID)
	leaf("vpc-id", e.VPCID)
	leaf("local-hostname", vpc.PrivateDNSName(s.model.Region(), e.Primary))
	leaf("local-ipv4s", lines(e.Addresses()))
	leaf("security-group-ids", strings.Join(e.Groups, "\n"))
	leaf("security-groups", strings.Join(s.groupNames(e), "\n"))
	if e.Attachment != nil {
		leaf("device-number", strconv.Itoa(e.Attachment.Device))
		if len(instance.Limits.Cards) > 1 {
			// AWS documents network-card-index; real instances are reported to serve network-card, which is what CNIs read.
			leaf("network-card", strconv.Itoa(e.Attachment.Card))
			leaf("network-card-index", strconv.Itoa(e.Attachment.Card))
		}
	}
	if subnet, known := s.model.Subnet(e.SubnetID); known {
		leaf("subnet-ipv4-cidr-block", subnet.CIDR.String())
	}
	for _, n := range s.model.VPCs() {
		if n.ID == e.VPCID {
			leaf("vpc-ipv4-cidr-block", n.CIDRs[0].String())
			leaf("vpc-ipv4-cidr-blocks", lines(n.CIDRs))
		}
	}
	if e.Public.IsValid() {
		leaf("public-ipv4s", e.Public.String())
		leaf("ipv4-associations/"+e.Public.String(), e.Primary.String())
	}
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
