package dataplane_test

import (
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// routedPod6 makes a pod behind a routed hop of a node, with an address of the node's ENI.
func (l *lab) routedPod6(node *netlab.Namespace, addr netip.Addr) *netlab.Namespace {
	l.t.Helper()
	pod := must(netlab.New(filepath.Join(l.t.TempDir(), "pod")))(l.t)
	l.t.Cleanup(func() { l.check(pod.Close()) })
	host, inside := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	l.check(netlab.Veth(netlab.End{NS: node, Name: "veth0", MAC: host}, netlab.End{NS: pod, Name: "eth0", MAC: inside}))
	gateway := netip.MustParseAddr("fe80::1")
	l.check(node.SetSysctl("net.ipv6.conf.all.forwarding", "1"))
	l.check(netlab.AddAddr(pod, "eth0", netip.PrefixFrom(addr, 128)))
	l.check(netlab.Neigh(pod, "eth0", gateway, host))
	l.check(netlab.AddRoute(pod, netlab.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Via: gateway, Link: "eth0", Onlink: true}))
	l.check(netlab.Neigh(node, "veth0", addr, inside))
	l.check(netlab.AddRoute(node, netlab.Route{Dst: netip.PrefixFrom(addr, 128), Link: "veth0"}))
	return pod
}

// A token's hop limit counts at the IPv6 endpoint as at the IPv4 one.
func TestHopLimitOfIPv6Metadata(t *testing.T) {
	const endpoint = "[fd00:ec2::254]"
	l := newLab(t, dataplane.Options{})
	pod := netip.MustParseAddr("2600:1f14:1:2301::50")
	c := must(l.model.Launch(l.now, vpc.LaunchInput{
		Name: "node-c", Type: "m5.xlarge", SubnetID: l.a.SubnetID, MetadataIPv6: true, IPv6: []netip.Addr{netip.MustParseAddr("2600:1f14:1:2301::10"), pod},
	}))(t)
	l.replacePlane(dataplane.Options{Metadata: imds.New(l.model, imds.Options{})})
	n := l.routedPod6(l.ns("node-c"), pod)
	if got, err := metadata(n, endpoint, "instance-id"); err != nil || got != c.ID {
		t.Fatalf("the pod reads instance-id %q, %v: version 1 is not limited", got, err)
	}
	token := func(wait time.Duration) error {
		client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: wait}
		r := must(http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+endpoint+"/latest/api/token", strings.NewReader("")))(t)
		r.Header.Set("X-aws-ec2-metadata-token-ttl-seconds", "60")
		response, err := client.Do(r)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	if err := token(2 * silence); err == nil {
		t.Error("a routed pod gets a token with the hop limit 1")
	}
	must(l.model.ModifyInstanceMetadataOptions(l.now, c.ID, vpc.MetadataOptions{HopLimit: 2}))(t)
	if err := token(patience); err != nil {
		t.Errorf("with the hop limit 2: %v", err)
	}
}
