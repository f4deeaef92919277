package imds_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// get asks for a leaf as an instance does that has a token.
func (l *lab) get(instance, path string) (int, string) {
	l.t.Helper()
	status, body, _ := l.do(instance, "GET", "/latest/"+path, tokenHeader, l.token(instance))
	return status, body
}

// expect fails the test unless a leaf has the content; "404" is that there is none.
func (l *lab) expect(instance, path, want string) {
	l.t.Helper()
	status, body := l.get(instance, "meta-data/"+path)
	if status == 404 {
		body = "404"
	}
	if body != want {
		l.t.Errorf("%s: %d %q, want %q", path, status, body, want)
	}
}

func TestAnnouncements(t *testing.T) {
	l := newLab(t)
	at := l.now.Add(2 * time.Minute)
	l.check(l.model.Announce(l.now, l.a.ID, vpc.Notices{InterruptionAction: "terminate", InterruptionAt: at, RebalanceAt: l.now}))
	l.expect(l.a.ID, "spot/instance-action", `{"action":"terminate","time":"2026-01-02T03:07:05Z"}`)
	l.expect(l.a.ID, "spot/termination-time", "2026-01-02T03:07:05Z")
	l.expect(l.a.ID, "events/recommendations/rebalance", `{"noticeTime":"2026-01-02T03:05:05Z"}`)
	l.expect(l.b.ID, "spot/instance-action", "404")
	l.check(l.model.Announce(l.now, l.a.ID, vpc.Notices{InterruptionAction: "stop", InterruptionAt: at}))
	l.expect(l.a.ID, "spot/instance-action", `{"action":"stop","time":"2026-01-02T03:07:05Z"}`)
	l.expect(l.a.ID, "spot/termination-time", "404")
	l.expect(l.a.ID, "events/recommendations/rebalance", "404")
	l.check(l.model.Announce(l.now, l.a.ID, vpc.Notices{}))
	l.expect(l.a.ID, "spot/instance-action", "404")
}

func TestOptionsOfAnInstance(t *testing.T) {
	l := newLab(t)
	yes := true
	l.check(l.model.CreateTags(l.now, []string{l.b.ID}, map[string]string{"Name": "b", "a/b": "hidden"}))
	l.expect(l.b.ID, "tags/instance", "404")
	_, err := l.model.ModifyInstanceMetadataOptions(l.now, l.b.ID, vpc.MetadataOptions{Tags: &yes})
	l.check(err)
	l.expect(l.b.ID, "tags/instance", "Name")
	l.expect(l.b.ID, "tags/instance/Name", "b")
	_, err = l.model.ModifyInstanceMetadataOptions(l.now, l.b.ID, vpc.MetadataOptions{TokensRequired: &yes})
	l.check(err)
	if status, _, _ := l.do(l.b.ID, "GET", "/latest/meta-data/mac"); status != 401 {
		t.Errorf("without token where it is required by now: %d, want 401", status)
	}
	_, err = l.model.ModifyInstanceMetadataOptions(l.now, l.b.ID, vpc.MetadataOptions{Off: &yes})
	l.check(err)
	for _, method := range []string{"GET", "PUT"} {
		if status, _, _ := l.do(l.b.ID, method, "/latest/api/token", ttlHeader, "60"); status != 403 {
			t.Errorf("%s where metadata are off: %d, want 403", method, status)
		}
	}
}

func TestRequestsAreLimitedForEachInstance(t *testing.T) {
	l := newLab(t)
	l.server.SetLimit(imds.Limit{PerSecond: 2, Burst: 3})
	ask := func(instance string, want ...int) {
		t.Helper()
		for n, status := range want {
			if got, body, _ := l.do(instance, "GET", "/latest/meta-data/mac"); got != status {
				t.Errorf("request %d of %s: %d %s, want %d", n+1, instance, got, body, status)
			}
		}
	}
	ask(l.b.ID, 200, 200, 200, 503)
	ask(l.a.ID, 401) // has a bucket of its own
	l.now = l.now.Add(time.Second)
	ask(l.b.ID, 200, 200, 503)
	l.server.SetLimit(imds.Limit{})
	ask(l.b.ID, 200, 200, 200, 200, 200)
}

func TestIdentitySignaturesAreThere(t *testing.T) {
	l := newLab(t)
	if _, body := l.get(l.a.ID, "dynamic/instance-identity/"); body != "document\npkcs7\nrsa2048\nsignature" {
		t.Errorf("instance-identity lists %q", body)
	}
	if status, body := l.get(l.a.ID, "dynamic/instance-identity/pkcs7"); status != 200 || body == "" || strings.HasSuffix(body, "\n") {
		t.Errorf("pkcs7 is %d %q", status, body)
	}
}

// A new ENI is listed before its leaves are there, and its device number is 0 for a while; a detached one stays listed bare.
func TestENIsArePropagatedPieceByPiece(t *testing.T) {
	l := newLab(t)
	lags := l.model.Lags()
	lags.MetadataMAC, lags.MetadataLeaves, lags.MetadataDevice, lags.MetadataAssign = vpc.Exactly(time.Second), vpc.Exactly(2*time.Second), vpc.Exactly(4*time.Second), vpc.Exactly(5*time.Second)
	lags.Detach, lags.MetadataGone, lags.MetadataBare = vpc.Exactly(0), vpc.Exactly(time.Second), vpc.Exactly(2*time.Second)
	l.model.SetLags(lags)
	e, err := l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: l.subnet.ID, SecondaryCount: 1})
	l.check(err)
	_, err = l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: l.b.ID, NetworkInterfaceID: e.ID, Device: 1, Card: 1})
	l.check(err)
	const primary = "02:00:00:00:00:0b/"
	both := primary + "\n" + e.MAC + "/"
	if e.MAC < primary {
		both = e.MAC + "/\n" + primary
	}
	dir := "network/interfaces/macs/" + e.MAC + "/"
	addrs := e.Addresses()
	for _, c := range []struct {
		after                     time.Duration
		list, leaf, device, addrs string
	}{
		{0, primary, "404", "404", "404"},
		{time.Second, both, "404", "404", "404"},
		{2 * time.Second, both, e.ID, "0", addrs[0].String()},
		{2 * time.Second, both, e.ID, "1", addrs[0].String() + "\n" + addrs[1].String()},
	} {
		l.now = l.now.Add(c.after)
		l.expect(l.b.ID, "network/interfaces/macs/", c.list)
		l.expect(l.b.ID, dir+"interface-id", c.leaf)
		l.expect(l.b.ID, dir+"device-number", c.device)
		l.expect(l.b.ID, dir+"local-ipv4s", c.addrs)
		if c.leaf == "404" {
			l.expect(l.b.ID, dir, "404")
		}
	}
	e, _ = l.model.ENI(e.ID)
	l.check(l.model.DetachNetworkInterface(l.now, vpc.DetachNetworkInterfaceInput{AttachmentID: e.Attachment.ID}))
	for _, c := range []struct {
		after      time.Duration
		list, leaf string
	}{{0, both, e.ID}, {time.Second, both, "404"}, {2 * time.Second, primary, "404"}} {
		l.now = l.now.Add(c.after)
		l.expect(l.b.ID, "network/interfaces/macs/", c.list)
		l.expect(l.b.ID, dir+"interface-id", c.leaf)
	}
}

func TestPrefixesAndIPv6(t *testing.T) {
	l := newLab(t)
	n, err := l.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}, IPv6CIDRs: []netip.Prefix{netip.MustParsePrefix("2600:1f14:1:2300::/56")}})
	l.check(err)
	s, err := l.model.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.5.1.0/24"), IPv6CIDR: netip.MustParsePrefix("2600:1f14:1:2301::/64")})
	l.check(err)
	six := netip.MustParseAddr("2600:1f14:1:2301::10")
	i, err := l.model.Launch(l.now, vpc.LaunchInput{Type: "m5.xlarge", SubnetID: s.ID, IPv6: []netip.Addr{six}})
	l.check(err)
	e := l.model.InstanceENIs(i.ID)[0]
	dir := "network/interfaces/macs/" + e.MAC + "/"
	l.expect(i.ID, dir+"ipv4-prefix", "404")
	four, err := l.model.AssignPrivate(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 2})
	l.check(err)
	block, err := l.model.AssignIpv6Addresses(l.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 1})
	l.check(err)
	l.now = l.now.Add(time.Minute)
	l.expect(i.ID, "ipv6", six.String())
	l.expect(i.ID, dir+"ipv6s", six.String())
	l.expect(i.ID, dir+"ipv4-prefix", four.Prefixes[0].String()+"\n"+four.Prefixes[1].String())
	l.expect(i.ID, dir+"ipv6-prefix", block.Prefixes[0].String())
	l.expect(i.ID, dir+"subnet-ipv6-cidr-blocks", "2600:1f14:1:2301::/64")
	l.expect(i.ID, dir+"vpc-ipv6-cidr-blocks", "2600:1f14:1:2300::/56")
	l.expect(i.ID, dir+"local-ipv4s", e.Primary.String())
}
