package cloud

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdkimds "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// direct hands the SDK's requests to a handler, without a connection: time in a bubble does not wait for the network.
type direct struct{ handler http.Handler }

// Do implements the SDK's HTTPClient.
func (d direct) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	out := httptest.NewRecorder()
	d.handler.ServeHTTP(out, r)
	answer := out.Result()
	answer.Request = r
	return answer, r.Context().Err()
}

// crowd is an account with many nodes that start at one moment.
type crowd struct {
	*testing.T
	vpc     *vpc.VPC
	api     *ec2api.Handler
	imds    *imds.Server
	buckets *fault.Buckets
}

const wantedByEach = 3 // addresses

// node is the planner of one node and its cloud, until it has what it wants.
func (c *crowd) node(ctx context.Context, instance string) error {
	cloud, err := New(ctx, Options{})
	if err != nil {
		return err
	}
	cloud.config.HTTPClient = direct{c.api}
	cloud.imds = sdkimds.New(sdkimds.Options{HTTPClient: direct{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.imds.ServeHTTP(w, r.WithContext(imds.WithInstance(r.Context(), instance)))
	})}})
	p := pool.New(pool.Settings{WarmIP: wantedByEach})
	for ctx.Err() == nil {
		now := time.Now()
		if p.NeedObserve("", now) != "" {
			if seen, err := cloud.Observe(ctx); err != nil {
				p.ObserveFailed(err, time.Now())
			} else {
				p.FoldObservation(seen, time.Now())
			}
			continue
		}
		if actions := p.Plan(now); len(actions) > 0 {
			p.Begin(actions[0], now)
			if got, err := cloud.Do(ctx, actions[0]); err != nil {
				p.Failed(actions[0], err, time.Now())
			} else {
				p.Fold(actions[0], got, time.Now())
			}
			continue
		}
		if have := p.View(now); len(have.Addresses) >= wantedByEach {
			return nil
		}
		wake, ok := p.NextWake(now)
		if !ok {
			return fmt.Errorf("%s waits for nothing: %+v", instance, p.Decision())
		}
		select {
		case <-ctx.Done():
		case <-time.After(wake.Sub(now)):
		}
	}
	return ctx.Err()
}

// An account whose calls are for 20 nodes a second, and 150 nodes at once: all of them come through.
func TestB59HundredAndFiftyThrottledNodesComeThrough(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
	} {
		t.Setenv(name, value)
	}
	synctest.Test(t, func(t *testing.T) {
		const nodes = 150
		c := &crowd{T: t, vpc: vpc.New(vpc.Options{Seed: 1, Region: "eu-west-1"}), buckets: fault.NewBuckets(true)}
		c.buckets.Set("DescribeNetworkInterfaces", fault.Bucket{Size: 20, Refill: 20})
		c.buckets.Set("AssignPrivateIpAddresses", fault.Bucket{Size: 5, Refill: 5})
		c.api = ec2api.New(ec2api.Options{VPC: c.vpc, Buckets: c.buckets})
		c.imds = imds.New(c.vpc, imds.Options{})
		instances := c.launch(nodes)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // of the bubble: the time after which the report's first pod started
		defer cancel()
		began, ended := time.Now(), make(chan error, nodes)
		for _, id := range instances {
			go func() { ended <- c.node(ctx, id) }()
		}
		for range nodes {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		throttled, actions := 0, map[string]int{}
		for _, entry := range c.api.Journal(0) {
			actions[entry.Action]++
			if entry.Code == fault.ThrottleCode {
				throttled++
			}
		}
		for _, id := range instances {
			have := 0
			for _, eni := range c.vpc.InstanceENIs(id) { // where assigning is throttled, another ENI brings addresses
				have += len(eni.Secondary)
			}
			if have < wantedByEach {
				t.Errorf("%s has %d addresses", id, have)
			}
		}
		t.Logf("%v, %d of them throttled; all nodes are through after %s", actions, throttled, time.Since(began).Round(time.Second))
		if throttled == 0 {
			t.Error("nothing was throttled")
		}
	})
}

func (c *crowd) launch(nodes int) (ids []string) {
	c.Helper()
	network, err := c.vpc.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	if err != nil {
		c.Fatal(err)
	}
	subnet, err := c.vpc.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.0.0.0/20")})
	if err != nil {
		c.Fatal(err)
	}
	for range nodes {
		instance, err := c.vpc.Launch(time.Now(), vpc.LaunchInput{Type: "m5.xlarge", SubnetID: subnet.ID})
		if err != nil {
			c.Fatal(err)
		}
		ids = append(ids, instance.ID)
	}
	return ids
}

// EC2 tells an ENI's own address twice; where the mark in the list is late, it is still not one for pods.
func TestB22PrimaryWithoutItsMarkIsStillTheENIsOwn(t *testing.T) {
	address := func(text string, mark *bool) types.NetworkInterfacePrivateIpAddress {
		return types.NetworkInterfacePrivateIpAddress{PrivateIpAddress: aws.String(text), Primary: mark}
	}
	for _, mark := range []*bool{aws.Bool(true), aws.Bool(false), nil} {
		eni := (&Cloud{}).eni(&types.NetworkInterface{
			NetworkInterfaceId: aws.String("eni-1"), PrivateIpAddress: aws.String("10.0.1.4"),
			PrivateIpAddresses: []types.NetworkInterfacePrivateIpAddress{address("10.0.1.9", aws.Bool(false)), address("10.0.1.4", mark)},
		}, "i-1")
		if eni.Primary.String() != "10.0.1.4" || fmt.Sprint(eni.Secondary) != "[10.0.1.9]" {
			t.Errorf("own address %s, others %v", eni.Primary, eni.Secondary)
		}
	}
}
