package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// wire sends an action's good request, and then everything that is refused for reasons that its parameters or the wire have.
func (p *pairs) wire(t *testing.T, action string) {
	w := newWorld(t, nil)
	defer p.note(w)
	check := func(code, name string, err error) {
		t.Helper()
		p.check(w, row{action: action, code: code, name: name}, err)
	}
	plain := sending(action)

	check("UnknownParameter", "", w.do(action, set("Colour", "red")))
	check("MissingParameter", "no version", w.do(action, set("Version", "")))
	check("NoSuchVersion", "", w.do(action, set("Version", "2010-01-01")))
	check("MalformedQueryString", "", w.do(action, body(func(text string) string { return text + "&a=%zz" })))
	check("InvalidQueryParameter", "", w.do(action, body(func(text string) string { return text + "&Version=2016-11-15" })))
	check("InvalidParameterValue", "no such value", w.do(action, badValue(action)))
	w.checkParameters(action, check)
	w.checkIDs(action, check)
	if real() {
		return
	}
	w.denied = true
	check("UnauthorizedOperation", "", plain(w))
	w.denied = false
	w.buckets.Switch(true)
	w.buckets.Set(action, fault.Bucket{})
	check("RequestLimitExceeded", "", plain(w))
	w.buckets.Switch(false)
	w.checkSignatures(action, check)
	w.checkServerFaults(action)
	if err := w.good(action); err != nil {
		t.Errorf("the good request of %s: %v", action, err)
	}
}

// good sends the good request of an action to a world that is fit for it.
func (w *world) good(action string) error {
	switch action {
	case "StartInstances":
		w.must(w.do("StopInstances"))
	case "RevokeSecurityGroupIngress":
		w.must(w.do("AuthorizeSecurityGroupIngress"))
	case "UnassignIpv6Addresses":
		w.must(w.do("AssignIpv6Addresses"))
		return w.do(action, set("Ipv6Addresses.1", *w.describe(w.attached).Ipv6Addresses[0].Ipv6Address))
	}
	return w.do(action)
}

// badValue gives a parameter of the action a value that is none.
func badValue(action string) func(*ec2.Options) {
	switch action { // those without DryRun
	case "AssignPrivateIpAddresses":
		return set("SecondaryPrivateIpAddressCount", "some")
	case "AssignIpv6Addresses":
		return set("Ipv6AddressCount", "some")
	case "UnassignPrivateIpAddresses":
		return set("PrivateIpAddress.1", "some")
	case "UnassignIpv6Addresses":
		return set("Ipv6Addresses.1", "some")
	}
	return set("DryRun", "maybe")
}

func (w *world) checkParameters(action string, check func(code, name string, err error)) {
	owner := w.handler
	if owner == nil { // the account's codes are not known: those of the fake are what is asked for
		owner = ec2api.New(ec2api.Options{VPC: vpc.New(vpc.Options{})})
	}
	has := func(code string) bool { return slices.Contains(owner.Codes(action), code) }
	if w.handler != nil {
		for _, name := range w.handler.Unserved(action) {
			check("UnsupportedOperation", name, w.do(action, set(strings.ReplaceAll(name, "*", "1"), "x")))
		}
	}
	if has("DryRunOperation") {
		check("DryRunOperation", "", w.do(action, set("DryRun", "true")))
	}
	if has("FilterLimitExceeded") {
		check("FilterLimitExceeded", "", w.do(action, form(func(v url.Values) {
			v.Set("Filter.1.Name", "tag-key")
			for n := range 201 {
				v.Set(fmt.Sprint("Filter.1.Value.", n+1), fmt.Sprint("v", n))
			}
		})))
		check("InvalidParameterValue", "unknown filter", w.do(action, set("Filter.1.Name", "colour", "Filter.1.Value.1", "red")))
	}
	if has("InvalidPaginationToken") {
		list := idList(action)
		check("InvalidPaginationToken", "", w.do(action, set(list, "", "MaxResults", "5", "NextToken", "none")))
		check("InvalidParameterValue", "a page too small", w.do(action, set(list, "", "MaxResults", "4")))
		if strings.HasSuffix(list, ".1") {
			check("InvalidParameterCombination", "ids and a page", w.do(action, set("MaxResults", "5")))
		}
	}
}

// idList is the parameter that names what is described.
func idList(action string) string {
	if action == "DescribeInstanceTypes" {
		return "InstanceType.1"
	}
	for _, parameter := range idParameters()[action] {
		if strings.HasSuffix(parameter, ".1") {
			return parameter
		}
	}
	return "None"
}

// checkIDs asks with ids that have not their form, and with such that do not exist.
func (w *world) checkIDs(action string, check func(code, name string, err error)) {
	for prefix, parameter := range idParameters()[action] {
		codes := idCodes()[prefix]
		change := []string{}
		if action == "RunInstances" && prefix == "eni-" {
			change = existing("")
		}
		check(codes[0], "", w.do(action, set(append(change, parameter, prefix+"xyz")...)))
		check(codes[1], "", w.do(action, set(append(change, parameter, prefix+"0123456789abcdef0")...)))
	}
}

// forge is a transport that changes a request after it was signed.
type forge func(*http.Request)

func (f forge) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	f(r)
	return http.DefaultTransport.RoundTrip(r)
}

// checkSignatures asks an endpoint of the same model that looks at signatures.
func (w *world) checkSignatures(action string, check func(code, name string, err error)) {
	key, skew := ec2api.Key{Secret: "secret", OptedIn: true}, time.Duration(0)
	guard := ec2api.New(ec2api.Options{
		VPC: w.model, Now: func() time.Time { return time.Now().Add(skew) }, // the SDK signs with the machine's time
		Keys: func(accessKey string) (ec2api.Key, bool) { return key, accessKey == "AKIDCONFORMANCE" },
	})
	server := httptest.NewServer(guard)
	defer server.Close()
	open := w.sdk
	defer func() { w.sdk = open }()
	w.sdk = w.client(server.URL)
	with := func(change forge) func(*ec2.Options) {
		return func(o *ec2.Options) { o.HTTPClient = &http.Client{Transport: change} }
	}
	if got := code(w.do(action, badValue(action))); got != "InvalidParameterValue" {
		check("InvalidParameterValue", "signed well", fmt.Errorf("signed well: %s", got))
	}
	check("AuthFailure", "not signed", w.do(action, with(func(r *http.Request) { r.Header.Del("Authorization") })))
	check("AuthFailure", "another key", w.do(action, func(o *ec2.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDOTHER", SecretAccessKey: "secret"}, nil
		})
	}))
	check("SignatureDoesNotMatch", "a forged body", w.do(action, with(func(r *http.Request) {
		text, err := io.ReadAll(r.Body)
		w.must(err)
		text = append(text, "&Z=1"...)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	})))
	skew = time.Hour
	check("RequestExpired", "", w.do(action))
	skew, key.Token = 0, "session"
	check("InvalidClientTokenId", "no session token", w.do(action))
	key.Token, key.OptedIn = "", false
	check("OptInRequired", "", w.do(action))
}

// serverFaults are the codes with which EC2 itself may fail, by HTTP status; the SDK retries all but the last two.
func serverFaults() []fault.Rule {
	return []fault.Rule{
		{Code: "InternalError", Status: 500}, {Code: "InternalFailure", Status: 500}, {Code: "InsufficientAddressCapacity", Status: 500},
		{Code: "Unavailable", Status: 503}, {Code: "ServiceUnavailable", Status: 503}, {Code: fault.ThrottleCode, Status: 503},
		{Code: "UnauthorizedOperation", Status: 403}, {Code: "OptInRequired", Status: 403},
	}
}

// checkServerFaults injects them, with a client that retries as the SDK does, but without waiting.
func (w *world) checkServerFaults(action string) {
	w.t.Helper()
	for _, rule := range serverFaults() {
		rule.Name, rule.Kind, rule.Action = rule.Code, fault.Error, action
		w.must(w.faults.Add(rule))
		attempts := 3
		if rule.Status == 403 {
			attempts = 1
		}
		if err := w.do(action, eager); code(err) != rule.Code || w.faults.States()[0].Hits != attempts {
			w.t.Errorf("%s: %d attempts, then %v; want %d, then %s", action, w.faults.States()[0].Hits, err, attempts, rule.Code)
		}
		w.faults.Clear()
	}
}

// TestWhatIsNoAction: what is refused before an action is known.
func TestWhatIsNoAction(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		want   string
		change func(*ec2.Options)
	}{
		{"InvalidAction", set("Action", "Explode")}, {"MissingAction", set("Action", "")},
	} {
		if err := w.do("DescribeVpcs", c.change); code(err) != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
