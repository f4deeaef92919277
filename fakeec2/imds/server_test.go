package imds_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// lab is a model with two nodes, of which the second allows version 1, and a metadata server at a settable time.
type lab struct {
	t      *testing.T
	now    time.Time
	model  *vpc.VPC
	server *imds.Server
	a, b   vpc.Instance
	subnet vpc.Subnet
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	l.model = vpc.New(vpc.Options{Seed: 1, AttachDelay: -1, LinkDelay: -1, IMDSLag: time.Second, Types: []vpc.InstanceType{
		{Name: "two.cards", ENIs: 4, IPv4: 4, Cards: []int{2, 2}},
	}})
	network, err := l.model.AddVPC(vpc.Network{ID: "vpc-00000001", DefaultGroup: "sg-00000001", CIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"),
	}})
	l.check(err)
	l.subnet, err = l.model.AddSubnet(vpc.Subnet{ID: "subnet-00000001", VPCID: network.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	l.check(err)
	l.a, err = l.model.Launch(l.now, vpc.LaunchInput{
		ID: "i-0000000a", Type: "m5.xlarge", SubnetID: l.subnet.ID, PrivateIP: netip.MustParseAddr("10.0.1.10"), TokensRequired: true,
		MAC: "02:00:00:00:00:0a", Public: netip.MustParseAddr("198.51.100.10"), Role: "node", ImageID: "ami-00000001",
	})
	l.check(err)
	l.b, err = l.model.Launch(l.now, vpc.LaunchInput{
		ID: "i-0000000b", Type: "two.cards", SubnetID: l.subnet.ID, PrivateIP: netip.MustParseAddr("10.0.1.11"), MAC: "02:00:00:00:00:0b",
	})
	l.check(err)
	l.server = imds.New(l.model, imds.Options{Now: func() time.Time { return l.now }})
	l.now = l.now.Add(time.Minute) // the metadata know the instances
	return l
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// do asks as an instance and gives status, body and headers.
func (l *lab) do(instance, method, path string, headers ...string) (int, string, http.Header) {
	l.t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r = r.WithContext(imds.WithInstance(l.t.Context(), instance))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	l.server.ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header()
}

const (
	tokenHeader = "X-aws-ec2-metadata-token"
	ttlHeader   = "X-aws-ec2-metadata-token-ttl-seconds"
)

func (l *lab) token(instance string) string {
	l.t.Helper()
	status, body, header := l.do(instance, "PUT", "/latest/api/token", ttlHeader, "60")
	if status != 200 || header.Get(ttlHeader) != "60" || len(body) != 56 {
		l.t.Fatalf("token: %d %q, TTL header %q", status, body, header.Get(ttlHeader))
	}
	return body
}

func TestTokenRules(t *testing.T) {
	l := newLab(t)
	good := l.token(l.a.ID)
	foreign := l.token(l.b.ID)
	for _, c := range []struct {
		name, instance, method, path string
		headers                      []string
		want                         int
	}{
		{"no TTL", l.a.ID, "PUT", "/latest/api/token", nil, 400},
		{"TTL zero", l.a.ID, "PUT", "/latest/api/token", []string{ttlHeader, "0"}, 400},
		{"TTL too long", l.a.ID, "PUT", "/latest/api/token", []string{ttlHeader, "21601"}, 400},
		{"TTL longest", l.a.ID, "PUT", "/latest/api/token", []string{ttlHeader, "21600"}, 200},
		{"TTL no number", l.a.ID, "PUT", "/latest/api/token", []string{ttlHeader, "1m"}, 400},
		{"forwarded", l.a.ID, "PUT", "/latest/api/token", []string{ttlHeader, "60", "X-Forwarded-For", "10.0.0.1"}, 403},
		{"token by GET", l.a.ID, "GET", "/latest/api/token", []string{ttlHeader, "60"}, 405},
		{"post", l.a.ID, "POST", "/latest/meta-data/mac", []string{tokenHeader, good}, 405},
		{"good", l.a.ID, "GET", "/latest/meta-data/mac", []string{tokenHeader, good}, 200},
		{"none where required", l.a.ID, "GET", "/latest/meta-data/mac", nil, 401},
		{"none for an unknown path", l.a.ID, "GET", "/latest/meta-data/nothing", nil, 401},
		{"bad", l.a.ID, "GET", "/latest/meta-data/mac", []string{tokenHeader, "x"}, 401},
		{"foreign", l.a.ID, "GET", "/latest/meta-data/mac", []string{tokenHeader, foreign}, 401},
		{"none where optional", l.b.ID, "GET", "/latest/meta-data/mac", nil, 200},
		{"bad where optional", l.b.ID, "GET", "/latest/meta-data/mac", []string{tokenHeader, "x"}, 401},
		{"unknown instance", "i-0000000c", "GET", "/latest/meta-data/mac", nil, 404},
	} {
		if got, body, _ := l.do(c.instance, c.method, c.path, c.headers...); got != c.want {
			t.Errorf("%s: status %d, want %d; %s", c.name, got, c.want, body)
		}
	}
	l.now = l.now.Add(time.Minute)
	if got, _, _ := l.do(l.a.ID, "GET", "/latest/meta-data/mac", tokenHeader, good); got != 401 {
		t.Errorf("expired token: status %d, want 401", got)
	}
}

func TestPaths(t *testing.T) {
	l := newLab(t)
	const a, b = "network/interfaces/macs/02:00:00:00:00:0a/", "network/interfaces/macs/02:00:00:00:00:0b/"
	for _, c := range []struct{ instance, path, want string }{
		{l.a.ID, "mac", "02:00:00:00:00:0a"},
		{l.a.ID, "instance-id", "i-0000000a"},
		{l.a.ID, "instance-type", "m5.xlarge"},
		{l.a.ID, "ami-id", "ami-00000001"},
		{l.a.ID, "placement/availability-zone", "us-west-2a"},
		{l.a.ID, "placement", "availability-zone\nregion"},
		{l.a.ID, "local-ipv4", "10.0.1.10"},
		{l.a.ID, "local-hostname", "ip-10-0-1-10.us-west-2.compute.internal"},
		{l.a.ID, "public-ipv4", "198.51.100.10"},
		{l.a.ID, "network/interfaces/macs/", "02:00:00:00:00:0a/"},
		{l.a.ID, a, "device-number\ninterface-id\nipv4-associations/\nlocal-hostname\nlocal-ipv4s\nmac\nowner-id\npublic-hostname\npublic-ipv4s\n" +
			"security-group-ids\nsecurity-groups\nsubnet-id\nsubnet-ipv4-cidr-block\nvpc-id\nvpc-ipv4-cidr-block\nvpc-ipv4-cidr-blocks"},
		{l.a.ID, a + "device-number", "0"},
		{l.a.ID, a + "subnet-id", "subnet-00000001"},
		{l.a.ID, a + "vpc-id", "vpc-00000001"},
		{l.a.ID, a + "local-ipv4s", "10.0.1.10"},
		{l.a.ID, a + "subnet-ipv4-cidr-block", "10.0.1.0/24"},
		{l.a.ID, a + "vpc-ipv4-cidr-block", "10.0.0.0/16"},
		{l.a.ID, a + "vpc-ipv4-cidr-blocks", "10.0.0.0/16\n10.1.0.0/16"},
		{l.a.ID, a + "security-group-ids", "sg-00000001"},
		{l.a.ID, a + "security-groups", "default"},
		{l.a.ID, a + "ipv4-associations/198.51.100.10", "10.0.1.10"},
		{l.a.ID, a + "public-hostname", "ec2-198-51-100-10.us-west-2.compute.amazonaws.com"},
		{l.a.ID, "public-hostname", "ec2-198-51-100-10.us-west-2.compute.amazonaws.com"},
		{l.a.ID, "services/partition", "aws"},
		{l.a.ID, "system", "nitro"},
		{l.a.ID, "block-device-mapping/", "ami\nroot"},
		{l.a.ID, "iam/security-credentials/", "node"},
		{l.b.ID, "mac", "02:00:00:00:00:0b"},
		{l.b.ID, b + "network-card", "0"},
		{l.b.ID, b + "network-card-index", "0"},
	} {
		status, body, header := l.do(c.instance, "GET", "/latest/meta-data/"+c.path, tokenHeader, l.token(c.instance))
		if status != 200 || body != c.want {
			t.Errorf("%s: %d %q, want %q", c.path, status, body, c.want)
		}
		if header.Get("Server") != "EC2ws" || header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: headers %v", c.path, header)
		}
	}
	for _, path := range []string{
		"/latest/meta-data/nothing", "/latest/meta-data/" + a + "network-card", "/latest/meta-data/" + a + "ipv4-prefix",
		"/latest/meta-data/" + a + "ipv6s", "/latest/meta-data/" + b + "mac", "/latest/meta-data/spot/instance-action",
		"/latest/meta-data/spot/termination-time", "/latest/meta-data/events/recommendations/rebalance", "/latest/meta-data/events/maintenance/scheduled",
		"/latest/meta-data/tags/instance", "/latest/meta-data/ipv6", "/latest/meta-data/" + a + "ipv6-prefix",
		"/latest/user-data", "/never/meta-data/mac",
	} {
		status, body, _ := l.do(l.a.ID, "GET", path, tokenHeader, l.token(l.a.ID))
		if status != 404 || !strings.Contains(body, "404 - Not Found") {
			t.Errorf("%s: %d %q, want the page of a 404", path, status, body)
		}
	}
	for path, want := range map[string]string{"/latest/": "dynamic/\nmeta-data/", "/2021-07-15/meta-data/mac": "02:00:00:00:00:0a"} {
		if _, body, _ := l.do(l.a.ID, "GET", path, tokenHeader, l.token(l.a.ID)); body != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}

func TestMetadataLagBehindTheModel(t *testing.T) {
	l := newLab(t)
	primary := l.model.InstanceENIs(l.b.ID)[0]
	added, err := l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: primary.ID, Count: 1})
	l.check(err)
	path := "/latest/meta-data/network/interfaces/macs/" + primary.MAC + "/local-ipv4s"
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "10.0.1.11"}, {900 * time.Millisecond, "10.0.1.11"}, {100 * time.Millisecond, "10.0.1.11\n" + added[0].String()}} {
		l.now = l.now.Add(c.after)
		if _, body, _ := l.do(l.b.ID, "GET", path); body != c.want {
			t.Errorf("after %v more: %q, want %q", c.after, body, c.want)
		}
	}
}

// sdkClient serves an instance on a loopback listener and gives the real SDK's client for it.
func (l *lab) sdkClient(instance string) *sdk.Client {
	l.t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(l.t.Context(), "tcp", "127.0.0.1:0")
	l.check(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.server.Serve(ctx, instance, listener) }()
	l.t.Cleanup(func() {
		stop()
		if err := <-ended; err != context.Canceled {
			l.t.Errorf("Serve ended with %v, want context canceled", err)
		}
	})
	return sdk.New(sdk.Options{Endpoint: "http://" + listener.Addr().String()})
}

func TestRealClientReadsIdentityAndRole(t *testing.T) {
	l := newLab(t)
	client := l.sdkClient(l.a.ID)
	document, err := client.GetInstanceIdentityDocument(t.Context(), nil)
	l.check(err)
	got := []string{document.InstanceID, document.Region, document.AccountID, document.AvailabilityZone, document.PrivateIP, document.ImageID}
	want := []string{"i-0000000a", "us-west-2", "123456789012", "us-west-2a", "10.0.1.10", "ami-00000001"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity document (-want +got):\n%s", diff)
	}
	info, err := client.GetIAMInfo(t.Context(), nil)
	l.check(err)
	if info.Code != "Success" || info.InstanceProfileArn != "arn:aws:iam::123456789012:instance-profile/node" {
		t.Errorf("IAM info is %+v", info.IAMInfo)
	}
	region, err := client.GetRegion(t.Context(), nil)
	l.check(err)
	if region.Region != "us-west-2" {
		t.Errorf("region is %s", region.Region)
	}
	out, err := client.GetMetadata(t.Context(), &sdk.GetMetadataInput{Path: "network/interfaces/macs/"})
	l.check(err)
	macs, err := io.ReadAll(out.Content)
	l.check(err)
	if string(macs) != "02:00:00:00:00:0a/" {
		t.Errorf("macs are %q", macs)
	}
}
