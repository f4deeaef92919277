package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// real tells whether the suite runs against an account of EC2.
func real() bool { return os.Getenv("CONFORMANCE") == "real" }

// options change what a fake world allows.
type options struct {
	vpc      vpc.Options
	endpoint ec2api.Options
}

// world is a region with one of everything, made through the API alone.
type world struct {
	t   *testing.T
	sdk *ec2.Client

	mu      sync.Mutex
	now     time.Time
	model   *vpc.VPC // nil with a real account
	handler *ec2api.Handler
	faults  *fault.Table
	buckets *fault.Buckets
	denied  bool
	url     string
	undo    []func()

	zone                                  string
	network, elsewhere                    string
	subnet, small, farSubnet, otherSubnet string // 10.0.1.0/24 with IPv6, 10.0.2.0/28, another zone's, another VPC's
	group, otherGroup                     string
	reservation, table                    string
	gateway, freeGateway                  string // of the network, with a route of ::/0, and of none
	node                                  string // m5.large: 3 ENIs of 10 addresses, a trunk with 9 branches
	primary, attached, free               string // ENIs: of the node at device 0 and 1, and of nobody
	attachment                            string // of attached
	secondary                             string // an address of attached
	trunk, branch, association            string // the trunk is nobody's
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ctx is the test's, but for a real account, where cleaning up outlives the test.
func (w *world) ctx() context.Context {
	if real() {
		return context.Background()
	}
	return w.t.Context()
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass lets time go by: on the fake at once, with EC2 by waiting until what the case needs is there.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// newWorld makes a world; change is for fakes only.
func newWorld(t *testing.T, change func(*options)) *world {
	t.Helper()
	w := &world{t: t, now: start, faults: &fault.Table{}, buckets: fault.NewBuckets(false)}
	if real() {
		loaded, err := config.LoadDefaultConfig(w.ctx())
		w.must(err)
		w.sdk = ec2.NewFromConfig(loaded)
		w.zone = loaded.Region + "a"
		t.Cleanup(w.cleanUp)
		w.build()
		return w
	}
	o := options{
		vpc: vpc.Options{Types: []vpc.InstanceType{{Name: "toy", ENIs: 2, IPv4: 3, Trunk: true, Branches: 1}}},
		endpoint: ec2api.Options{
			Faults: w.faults, Buckets: w.buckets, Now: w.clock,
			Denied: func(string, string) bool { return w.denied },
		},
	}
	if change != nil {
		change(&o)
	}
	w.model = vpc.New(o.vpc)
	o.endpoint.VPC = w.model
	w.handler = ec2api.New(o.endpoint)
	server := httptest.NewServer(w.checked(w.handler))
	t.Cleanup(server.Close)
	w.url, w.zone = server.URL, "us-west-2a"
	w.sdk = w.client(server.URL)
	w.build()
	return w
}

// checked proves the model's books after every request.
func (w *world) checked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(rw, r)
		if err := w.model.Check(); err != nil {
			w.t.Errorf("after a request: %v", err)
		}
	})
}

func (w *world) client(url string) *ec2.Client {
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return ec2.New(ec2.Options{
		Region: "us-west-2", BaseEndpoint: aws.String(url), HTTPClient: &http.Client{Transport: transport}, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDCONFORMANCE", SecretAccessKey: "secret"}, nil
		}),
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// later is for a real account: what was made is deleted in the opposite order.
func (w *world) later(do func()) { w.undo = append(w.undo, do) }

func (w *world) cleanUp() {
	for n := len(w.undo) - 1; n >= 0; n-- {
		w.undo[n]()
	}
}

// build makes one of everything.
func (w *world) build() {
	w.network, w.elsewhere = w.makeVPC("10.0.0.0/16"), w.makeVPC("10.1.0.0/16")
	vpcs, err := w.sdk.DescribeVpcs(w.ctx(), &ec2.DescribeVpcsInput{VpcIds: []string{w.network}})
	w.must(err)
	six := strings.Replace(*vpcs.Vpcs[0].Ipv6CidrBlockAssociationSet[0].Ipv6CidrBlock, "/56", "/64", 1)
	w.subnet, w.small = w.makeSubnet(w.network, "10.0.1.0/24", six, w.zone), w.makeSubnet(w.network, "10.0.2.0/28", "", w.zone)
	w.farSubnet = w.makeSubnet(w.network, "10.0.3.0/24", "", w.zone[:len(w.zone)-1]+"b")
	w.otherSubnet = w.makeSubnet(w.elsewhere, "10.1.1.0/24", "", w.zone)
	w.group, w.otherGroup = w.makeGroup(w.network, "nodes"), w.makeGroup(w.elsewhere, "nodes")
	r, err := w.sdk.CreateSubnetCidrReservation(w.ctx(), &ec2.CreateSubnetCidrReservationInput{
		SubnetId: &w.subnet, Cidr: aws.String("10.0.1.240/28"), ReservationType: types.SubnetCidrReservationTypeExplicit,
	})
	w.must(err)
	w.reservation = *r.SubnetCidrReservation.SubnetCidrReservationId
	tables, err := w.sdk.DescribeRouteTables(w.ctx(), &ec2.DescribeRouteTablesInput{Filters: filter("vpc-id", w.network)})
	w.must(err)
	w.table = *tables.RouteTables[0].RouteTableId
	w.gateway, w.freeGateway = w.makeGateway(), w.makeGateway()
	w.must(w.do("AttachInternetGateway", set("InternetGatewayId", w.gateway, "VpcId", w.network)))
	w.later(func() { _ = w.do("DetachInternetGateway") })
	w.must(w.do("CreateRoute", set("DestinationCidrBlock", "", "DestinationIpv6CidrBlock", "::/0")))
	w.node = w.run("m5.large")
	node := w.instance(w.node)
	w.primary = *node.NetworkInterfaces[0].NetworkInterfaceId
	w.free, w.attached = w.eni(ec2.CreateNetworkInterfaceInput{}), w.eni(ec2.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: aws.Int32(1)})
	w.attachment = w.attach(w.attached, 1)
	w.secondary = w.secondaries(w.attached)[0]
	w.trunk, w.branch = w.eni(ec2.CreateNetworkInterfaceInput{InterfaceType: types.NetworkInterfaceCreationTypeTrunk}), w.eni(ec2.CreateNetworkInterfaceInput{})
	if !real() { // EC2 lets only its own controllers associate
		w.association = w.associate(w.branch, w.trunk, 7)
	}
}

// code is EC2's code of an error, "" for success.
func code(err error) string {
	var refusal smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return refusal.ErrorCode()
	}
	return "no API error: " + err.Error()
}

// form changes a request's parameters before it is signed.
func form(change func(url.Values)) func(*ec2.Options) {
	return body(func(text string) string {
		values, err := url.ParseQuery(text)
		if err != nil {
			return text
		}
		change(values)
		return values.Encode()
	})
}

// set gives parameters other values; "" takes one out.
func set(pairs ...string) func(*ec2.Options) {
	return form(func(v url.Values) {
		for n := 0; n < len(pairs); n += 2 {
			if v.Del(pairs[n]); pairs[n+1] != "" {
				v.Set(pairs[n], pairs[n+1])
			}
		}
	})
}

// body changes a request's text before it is signed.
func body(change func(string) string) func(*ec2.Options) {
	return func(o *ec2.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Build.Add(middleware.BuildMiddlewareFunc("change", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
				request, ok := in.Request.(*smithyhttp.Request)
				if !ok {
					return middleware.BuildOutput{}, middleware.Metadata{}, fmt.Errorf("change request: a %T", in.Request)
				}
				text, err := io.ReadAll(request.GetStream())
				if err != nil {
					return middleware.BuildOutput{}, middleware.Metadata{}, fmt.Errorf("change request: %w", err)
				}
				if request, err = request.SetStream(bytes.NewReader([]byte(change(string(text))))); err != nil {
					return middleware.BuildOutput{}, middleware.Metadata{}, fmt.Errorf("change request: %w", err)
				}
				in.Request = request
				return next.HandleBuild(ctx, in)
			}), middleware.Before)
		})
	}
}

func filter(name string, values ...string) []types.Filter {
	return []types.Filter{{Name: &name, Values: values}}
}
