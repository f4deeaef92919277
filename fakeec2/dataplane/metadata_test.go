package dataplane_test

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// metadata asks a metadata endpoint from a namespace, in version 1.
func metadata(n *netlab.Namespace, endpoint, path string) (string, error) {
	c := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: patience}
	response, err := c.Get("http://" + endpoint + "/latest/meta-data/" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// Instances are told by the link that asks: their source addresses are those of many.
func TestMetadataKnowTheLinkThatAsks(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	l.replacePlane(dataplane.Options{Metadata: imds.New(l.model, imds.Options{})})
	for name, want := range map[string]string{"node-a": l.a.ID, "node-b": l.b.ID} {
		if got, err := metadata(l.ns(name), "169.254.169.254", "instance-id"); err != nil || got != want {
			t.Errorf("%s reads instance-id %q, %v; want %s", name, got, err, want)
		}
	}
	// A pod's address is as good a source as the node's, and another ENI's is none.
	a, target := l.ns("node-a"), netip.MustParseAddr("169.254.169.254")
	l.answers(echo{from: a, src: l.assign(l.a, true), dst: target})
	l.check(netlab.AddAddr(a, "lo", netip.PrefixFrom(addrB, 32)))
	l.dropped(echo{from: a, src: addrB, dst: target}, dataplane.DropSource)
}

func TestIPv6EndpointOfMetadata(t *testing.T) {
	const endpoint = "[fd00:ec2::254]"
	l := newLab(t, dataplane.Options{})
	launch := func(name, six string) vpc.Instance {
		return must(l.model.Launch(l.now, vpc.LaunchInput{
			Name: name, Type: "m5.xlarge", SubnetID: l.a.SubnetID, MetadataIPv6: true, IPv6: []netip.Addr{netip.MustParseAddr(six)},
		}))(t)
	}
	c, d := launch("node-c", "2600:1f14:1:2301::10"), launch("node-d", "2600:1f14:1:2301::11")
	l.replacePlane(dataplane.Options{Metadata: imds.New(l.model, imds.Options{})})
	for _, i := range []vpc.Instance{c, d} {
		if got, err := metadata(l.ns(i.Name), endpoint, "ipv6"); err != nil || got != l.model.InstanceENIs(i.ID)[0].IPv6[0].String() {
			t.Errorf("%s reads ipv6 %q, %v", i.Name, got, err)
		}
	}
	set := func(on bool) {
		t.Helper()
		must(l.model.ModifyInstanceMetadataOptions(l.now, c.ID, vpc.MetadataOptions{IPv6: &on}))(t)
		l.sync()
	}
	set(false)
	if got, err := metadata(l.ns("node-c"), endpoint, "instance-id"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("with the endpoint turned off: %q, %v; want connection refused", got, err)
	}
	set(true)
	if got, err := metadata(l.ns("node-c"), endpoint, "instance-id"); err != nil || got != c.ID {
		t.Errorf("with the endpoint turned on again: %q, %v", got, err)
	}
	if got, err := metadata(l.ns("node-a"), endpoint, "instance-id"); err == nil {
		t.Errorf("a node without IPv6 reads %q", got)
	}
}
