package ec2api_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// churn is one node of the virtual hour.
type churn struct {
	id, eni, extra, attachment string
	held                       string // the address that is given back next
}

// hour is a world of 100 nodes and its virtual clock.
type hour struct {
	*crowd
	now      time.Time
	nodes    []*churn
	requests int
}

func newHour(b testing.TB) *hour {
	b.Helper()
	h := &hour{crowd: &crowd{}, now: start}
	h.model = vpc.New(vpc.Options{})
	n := must(h.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}))
	h.subnet = must(h.model.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.0.0/18")})).ID
	h.handler = ec2api.New(ec2api.Options{VPC: h.model, Now: func() time.Time { return h.now }})
	for range 100 {
		i := must(h.model.Launch(start, vpc.LaunchInput{Type: "m5.xlarge", SubnetID: h.subnet}))
		h.nodes = append(h.nodes, &churn{id: i.ID, eni: h.model.InstanceENIs(i.ID)[0].ID})
	}
	return h
}

func (h *hour) send(b testing.TB, form string) string {
	h.requests++
	return h.post(b, form)
}

// second is what happens in one: a tenth of the nodes swap an address, some add or give up an ENI, some look at themselves.
func (h *hour) second(b testing.TB, s int) {
	for n, node := range h.nodes {
		switch at := s + 7*n; {
		case at%120 == 0:
			node.extra = between(h.send(b, "Action=CreateNetworkInterface&SecondaryPrivateIpAddressCount=5&SubnetId="+h.subnet), "networkInterfaceId")
			node.attachment = between(h.send(b, "Action=AttachNetworkInterface&DeviceIndex=1&NetworkCardIndex=0&InstanceId="+node.id+"&NetworkInterfaceId="+node.extra), "attachmentId")
		case at%120 == 60 && node.attachment != "":
			h.send(b, "Action=DetachNetworkInterface&AttachmentId="+node.attachment)
		case at%120 == 90 && node.extra != "":
			h.send(b, "Action=DeleteNetworkInterface&NetworkInterfaceId="+node.extra)
			node.extra, node.attachment = "", ""
		case at%60 == 30:
			h.send(b, "Action=DescribeInstances&InstanceId.1="+node.id)
			h.send(b, "Action=DescribeNetworkInterfaces&NetworkInterfaceId.1="+node.eni)
			if _, enis, ok := h.model.MetadataENIs(node.id); !ok || len(enis) == 0 {
				b.Fatal("no metadata")
			}
		case at%10 == 5:
			if node.held != "" {
				h.send(b, "Action=UnassignPrivateIpAddresses&NetworkInterfaceId="+node.eni+"&PrivateIpAddress.1="+node.held)
			}
			node.held = between(h.send(b, "Action=AssignPrivateIpAddresses&SecondaryPrivateIpAddressCount=1&NetworkInterfaceId="+node.eni), "privateIpAddress")
		}
	}
	if s%60 == 0 { // somebody looks for leaked ENIs
		h.send(b, "Action=DescribeNetworkInterfaces&MaxResults=1000&Filter.1.Name=status&Filter.1.Value.1=available")
	}
	h.now = h.now.Add(time.Second)
}

// virtualHour is an hour of 100 nodes: each swaps an address every ten seconds, adds and gives up an ENI every two minutes, and
// describes itself every minute.
func virtualHour(b *testing.B) (requests int) {
	h := newHour(b)
	for s := range 3600 {
		h.second(b, s)
	}
	if err := h.model.Check(); err != nil {
		b.Fatal(err)
	}
	return h.requests
}

// TestVirtualMinutes is the beginning of that hour, with the books proven after every second.
func TestVirtualMinutes(t *testing.T) {
	t.Parallel()
	h := newHour(t)
	for s := range 180 {
		h.second(t, s)
		if err := h.model.Check(); err != nil {
			t.Fatalf("second %d: %v", s, err)
		}
	}
	if h.requests < 3000 {
		t.Fatalf("%d requests", h.requests)
	}
}
