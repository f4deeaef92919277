// Package cloud is EC2 and the instance's metadata as the daemon sees them: one complete reading, and one method that
// carries out the planner's steps.
//
// It is the only importer of the AWS SDK. It decides nothing: it holds no pool, plans nothing and repeats nothing that EC2
// could carry out twice. Errors of Observe and Do are *pool.CloudError. Start with New, then observe.go (reading) and
// act.go (steps); errors.go is the one place that knows EC2's error codes.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/logging"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	// callTimeout bounds one EC2 call with the SDK's own retries (three attempts and up to 4 s of back-off were measured).
	callTimeout = 35 * time.Second
	// attemptTimeout bounds one attempt; the incumbent's minimum.
	attemptTimeout = 10 * time.Second
	// metadataTimeout bounds one metadata request; the SDK itself gives up after 5 s.
	metadataTimeout = 6 * time.Second
	// onceOnly is the number of attempts of calls that have no ClientToken: after a lost response a second attempt would
	// assign twice. The loop observes and plans again instead.
	onceOnly = 1
)

// Options is what New needs beyond the SDK's own environment (AWS_REGION, AWS_ENDPOINT_URL_EC2, credentials,
// AWS_EC2_METADATA_SERVICE_ENDPOINT).
type Options struct {
	ClusterName string            // value of the cluster's tag on new ENIs; "" leaves it off
	Tags        map[string]string // further tags for new ENIs
	Endpoint    string            // URL of the EC2 API; "" is the SDK's choice
	Now         func() time.Time  // for the createdAt tag; nil: time.Now
	Log         *slog.Logger      // for what the SDK has to say; nil: silent
	OnCall      func(Call)        // told of every call, when it has ended; nil: nobody is
	Around      Around            // nil but in tests
}

// Around makes one call of EC2 or the metadata service by calling run, once or not at all, and passes on its error. Nil just
// calls it. Tests end the process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// Call is one finished call of EC2 or the metadata service.
type Call struct {
	Service string // "ec2" or "imds"
	Action  string // EC2's action, or the metadata path
	Took    time.Duration
	Status  int    // HTTP's; 0 where there was no answer
	Code    string // EC2's error code; "" on success or where there was no answer
	Err     error  // nil on success
}

// Cloud implements reconcile.Cloud. Its methods may be called from several goroutines.
type Cloud struct {
	imds    *imds.Client
	options Options
	config  aws.Config

	mu       sync.Mutex // guards what follows; never held across a call
	ec2      *ec2.Client
	identity identity
	vpcCIDRs []netip.Prefix
	limits   pool.Limits
	subnets  map[string]netip.Prefix
	created  creation
	seen     string // what the metadata showed before the last reading of EC2; "": it does not hold any more
}

// creation remembers the time that went with the last ClientToken: EC2 refuses the same token with other parameters.
type creation struct {
	token, stamp string
}

// New makes a client and calls nobody: the region (unless AWS_REGION says it) and everything else is read at the first
// Observe, so that a metadata service which is late does not keep the daemon from starting.
func New(ctx context.Context, options Options) (*Cloud, error) {
	if options.OnCall == nil {
		options.OnCall = func(Call) {}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	options.Tags = maps.Clone(options.Tags)
	transport := awshttp.NewBuildableClient().WithTimeout(attemptTimeout)
	config, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithHTTPClient(transport), awsconfig.WithLogger(sdkLogger(options.Log)))
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	return &Cloud{
		imds:    imds.NewFromConfig(withoutTransport(config)),
		options: options,
		config:  config,
		subnets: map[string]netip.Prefix{},
	}, nil
}

// client gives the EC2 client; readIdentity has made it before.
func (c *Cloud) client() *ec2.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ec2
}

// makeClient makes the EC2 client for the region of the environment, else the instance's. The mutex is held.
func (c *Cloud) makeClient(region string) {
	config := c.config.Copy()
	if config.Region == "" {
		config.Region = region
	}
	c.ec2 = ec2.NewFromConfig(config, func(o *ec2.Options) {
		if c.options.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.options.Endpoint)
		}
	})
}

// sdkLogger takes the SDK's remarks (IMDSv1 instead of v2, clock skew), which it would write to standard error.
func sdkLogger(log *slog.Logger) logging.Logger {
	if log == nil {
		return logging.Nop{}
	}
	return logging.LoggerFunc(func(_ logging.Classification, format string, args ...any) {
		log.Debug("remark of the AWS SDK", "remark", fmt.Sprintf(format, args...))
	})
}

// withoutTransport makes the metadata client use the SDK's own transport, whose timeouts (250 ms to dial, 500 ms to the
// first byte) suit a service on the link; the EC2 client's would let a silent one hang for seconds.
func withoutTransport(config aws.Config) aws.Config {
	config = config.Copy()
	config.HTTPClient = nil
	return config
}

// call runs one EC2 action under its deadline, tells the hook, and classifies the error.
func call[Out any](ctx context.Context, c *Cloud, action string,
	do func(context.Context) (*Out, error)) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	start := time.Now()
	var out *Out
	err := c.options.Around.do("ec2 "+action, func() (err error) {
		out, err = do(ctx)
		return err
	})
	done := Call{Service: "ec2", Action: action, Took: time.Since(start), Status: statusOf(err)}
	if err == nil {
		c.options.OnCall(done)
		return out, nil
	}
	failed := classify(action, err)
	done.Code, done.Err = failed.Code, failed
	c.options.OnCall(done)
	return nil, failed
}

// statusOf is the HTTP status of the answer, which the SDK's errors know; 0 where there was none.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	var answer httpStatus
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}
