package ec2api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is the endpoint's time: it stands still until a test moves it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// endpoint is a small region behind a real HTTP server, with a real SDK client.
type endpoint struct {
	t       *testing.T
	clock   *clock
	model   *vpc.VPC
	faults  *fault.Table
	handler *ec2api.Handler
	url     string
	sdk     *ec2.Client

	network vpc.Network
	subnet  vpc.Subnet
	wide    vpc.Subnet // has IPv6
	group   vpc.SecurityGroup
	node    vpc.Instance
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{t: t, clock: &clock{now: start}, faults: &fault.Table{}}
	e.model = vpc.New(vpc.Options{Types: []vpc.InstanceType{{Name: "toy", ENIs: 2, IPv4: 3}}})
	e.network = must(e.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, IPv6CIDRs: []netip.Prefix{netip.MustParsePrefix("2600:1f14:0:100::/56")}}))
	e.wide = must(e.model.AddSubnet(vpc.Subnet{VPCID: e.network.ID, CIDR: netip.MustParsePrefix("10.0.3.0/24"), IPv6CIDR: netip.MustParsePrefix("2600:1f14:0:101::/64")}))
	e.subnet = must(e.model.AddSubnet(vpc.Subnet{VPCID: e.network.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24"), Tags: map[string]string{"role": "cni"}}))
	must(e.model.AddSubnet(vpc.Subnet{VPCID: e.network.ID, CIDR: netip.MustParsePrefix("10.0.2.0/28")}))
	e.group = must(e.model.AddSecurityGroup(vpc.SecurityGroup{VPCID: e.network.ID, Name: "pods"}))
	e.node = must(e.model.Launch(start, vpc.LaunchInput{
		Type: "m5.xlarge", SubnetID: e.subnet.ID, PrivateIP: netip.MustParseAddr("10.0.1.20"), Public: netip.MustParseAddr("198.51.100.7"),
		ImageID: "ami-0123456789abcdef0", Role: "node", HopLimit: 2, TokensRequired: true, Tags: map[string]string{"Name": "node-1"},
	}))
	e.handler = ec2api.New(ec2api.Options{VPC: e.model, Faults: e.faults, Now: e.clock.Now})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { // also where the handler drops the connection
			if err := e.model.Check(); err != nil {
				t.Errorf("after a request: %v", err)
			}
		}()
		e.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	e.sdk = e.client(func(o *ec2.Options) { o.Retryer = aws.NopRetryer{} })
	return e
}

// client makes an SDK client of the endpoint; without a change of options it retries as every SDK client does.
func (e *endpoint) client(change func(*ec2.Options)) *ec2.Client {
	transport := &http.Transport{}
	e.t.Cleanup(transport.CloseIdleConnections)
	return ec2.New(ec2.Options{
		Region: "us-west-2", BaseEndpoint: aws.String(e.url), HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDNODE1", SecretAccessKey: "secret"}, nil
		}),
	}, change)
}

// eager retries like the SDK, but without waiting.
func eager(o *ec2.Options) {
	o.Retryer = retry.NewStandard(func(s *retry.StandardOptions) {
		s.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

func (e *endpoint) fault(rule fault.Rule) {
	e.t.Helper()
	if err := e.faults.Add(rule); err != nil {
		e.t.Fatal(err)
	}
}

// create makes an ENI with secondary addresses behind the endpoint's back.
func (e *endpoint) create(secondary int) vpc.ENI {
	e.t.Helper()
	return must(e.model.CreateNetworkInterface(e.clock.Now(), vpc.CreateNetworkInterfaceInput{SubnetID: e.subnet.ID, SecondaryCount: secondary}))
}

func (e *endpoint) attach(eni vpc.ENI, device int) vpc.Attachment {
	e.t.Helper()
	return must(e.model.AttachNetworkInterface(e.clock.Now(), vpc.AttachNetworkInterfaceInput{
		InstanceID: e.node.ID, NetworkInterfaceID: eni.ID, Device: device,
	}))
}

// must is for steps that a test takes for granted.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// codeOf is the code that the SDK sees, or "" for success.
func codeOf(err error) string {
	var refusal smithy.APIError
	if errors.As(err, &refusal) {
		return refusal.ErrorCode()
	}
	if err != nil {
		return "no API error: " + err.Error()
	}
	return ""
}

func ptr[T any](v T) *T { return &v }
