package ec2api_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// crowdType takes 15 ENIs with 50 addresses each.
const crowdType = "m5.24xlarge"

// crowd is a region of so many ENIs with ten addresses each, 14 to an instance.
type crowd struct {
	model   *vpc.VPC
	handler *ec2api.Handler
	enis    []string
	subnet  string
	nodes   []string // instances with their primary ENI only
}

func newCrowd(enis int) *crowd {
	c := &crowd{model: vpc.New(vpc.Options{ENIQuota: 1 << 20, NAULimit: 1 << 20, Lags: &vpc.Lags{}, ReuseDelay: -1})}
	n := must(c.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}}))
	var subnets []string
	for i := range 3 {
		s := must(c.model.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16)}))
		subnets = append(subnets, s.ID)
	}
	c.subnet = subnets[2]
	for range 2 {
		c.nodes = append(c.nodes, must(c.model.Launch(start, vpc.LaunchInput{Type: crowdType, SubnetID: c.subnet})).ID)
	}
	var node vpc.Instance
	for i := range enis {
		subnet := subnets[i%2]
		if i%28 < 2 {
			node = must(c.model.Launch(start, vpc.LaunchInput{Type: crowdType, SubnetID: subnet}))
		}
		e := must(c.model.CreateNetworkInterface(start, vpc.CreateNetworkInterfaceInput{SubnetID: subnet, SecondaryCount: 9, Description: "aws-K8S-" + node.ID, Tags: map[string]string{"node": node.ID}}))
		if i%28 >= 2 && i%2 == 0 {
			must(c.model.AttachNetworkInterface(start, vpc.AttachNetworkInterfaceInput{InstanceID: node.ID, NetworkInterfaceID: e.ID, Device: i%28/2 + 1}))
		}
		c.enis = append(c.enis, e.ID)
	}
	c.handler = ec2api.New(ec2api.Options{VPC: c.model, Now: func() time.Time { return start }})
	return c
}

// post sends a form in-process and gives the answer's body.
func (c *crowd) post(b testing.TB, form string) string {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form+version))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	if c.handler.ServeHTTP(w, r); w.Code != http.StatusOK {
		b.Fatal(w.Body)
	}
	return w.Body.String()
}

// between gives what stands between two tags.
func between(text, element string) string {
	_, rest, _ := strings.Cut(text, "<"+element+">")
	value, _, _ := strings.Cut(rest, "</"+element+">")
	return value
}
