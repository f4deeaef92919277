package ec2api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
)

// TestSlowClientGetsAnErrorAndNoHang: a client that never sends the rest of its body does not hold the endpoint.
func TestSlowClientGetsAnErrorAndNoHang(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	slow := httptest.NewServer(ec2api.New(ec2api.Options{VPC: e.model, ReadTimeout: 50 * time.Millisecond}))
	defer slow.Close()
	conn := must(net.Dial("tcp", slow.Listener.Addr().String()))
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: ec2\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nAction=Des")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Fatal(answer.Status)
	}
}

func TestHungRequestEndsWithItsClientOrItsFault(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.fault(fault.Rule{Name: "stuck", Action: "CreateNetworkInterface", Kind: fault.Hang})
	before := len(e.model.ENIs())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.sdk.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{SubnetId: &e.subnet.ID}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the client gave up: %v", err)
	}
	ended := make(chan error)
	go func() {
		_, err := e.sdk.CreateNetworkInterface(t.Context(), &ec2.CreateNetworkInterfaceInput{SubnetId: &e.subnet.ID})
		ended <- err
	}()
	for e.faults.States()[0].Hits < 2 { // until the request hangs
		select {
		case err := <-ended:
			t.Fatalf("did not hang: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	e.faults.Clear()
	if err := <-ended; err == nil || !strings.Contains(codeOf(err), "no API error") {
		t.Fatalf("lifted: %v", err)
	}
	if got := len(e.model.ENIs()); got != before {
		t.Fatalf("%d ENIs were made by requests that hang", got-before)
	}
}

func TestStaleRead(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.clock.pass(time.Minute)
	eni := e.create(0)
	e.clock.pass(5 * time.Second)
	e.fault(fault.Rule{Name: "old", Kind: fault.Stale, Age: 10 * time.Second, First: 2, Times: 2})
	in := &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{eni.ID}}
	var got []string
	for range 4 {
		_, err := e.sdk.DescribeNetworkInterfaces(t.Context(), in)
		got = append(got, codeOf(err))
	}
	if strings.Join(got, ",") != ",InvalidNetworkInterfaceID.NotFound,InvalidNetworkInterfaceID.NotFound," {
		t.Fatalf("%q", got)
	}
}

// TestSignedQueryString: what a presigned URL says is verified like a header.
func TestSignedQueryString(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	guard := httptest.NewServer(ec2api.New(ec2api.Options{
		VPC: e.model, Keys: func(string) (ec2api.Key, bool) {
			return ec2api.Key{Secret: "secret", Token: "session token", OptedIn: true}, true
		},
	}))
	defer guard.Close()
	request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, guard.URL+"/?Action=DescribeVpcs&Version=2016-11-15&Filter.1.Name=tag:a+b&Filter.1.Value.1=*%20%2f", http.NoBody))
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "session token"}, request, empty, "ec2", "us-west-2", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{signed: http.StatusOK, strings.Replace(signed, "DescribeVpcs", "DescribeTags", 1): http.StatusForbidden} {
		answer := must(http.DefaultClient.Do(must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))))
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%d, want %d: %s", answer.StatusCode, want, url)
		}
	}
}

// TestHugeValuesOfEveryParameter gives each parameter of each action a megabyte, and each describe 10,000 filters: a short EC2
// error (or an answer), and no more.
func TestHugeValuesOfEveryParameter(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	dir := strings.TrimSpace(string(must(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/ec2").Output())))
	huge := strings.Repeat("x", 1<<20)
	numbers := regexp.MustCompile(`\.\d+`)
	sent := 0
	send := func(action string, values url.Values) {
		t.Helper()
		began := time.Now()
		status, got := post(t, e.handler, values.Encode())
		if sent++; status >= 500 || len(got.Message) > 400 || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %d %s in %s: %.100s", action, status, got.Code, time.Since(began), got.Message)
		}
	}
	for _, action := range e.handler.Actions() {
		good := must(url.ParseQuery(snapshot(t, dir, action)))
		for _, name := range e.handler.Unserved(action) {
			for key := range good {
				if strings.HasPrefix(numbers.ReplaceAllString(key, ".*")+".", name+".") {
					delete(good, key)
				}
			}
		}
		good.Del("DryRun")
		for key := range good {
			if strings.Contains(key, ".2") || key == "Action" || key == "Version" {
				continue
			}
			values := maps.Clone(good)
			values[key] = []string{huge}
			send(action, values)
		}
		if !good.Has("Filter.1.Name") {
			continue
		}
		for n := range 10_000 {
			good.Set(fmt.Sprintf("Filter.%d.Name", n+1), "tag-key")
			good.Set(fmt.Sprintf("Filter.%d.Value.1", n+1), "x")
		}
		send(action, good)
	}
	if sent < 200 {
		t.Fatalf("%d requests", sent)
	}
	if err := e.model.Check(); err != nil {
		t.Fatal(err)
	}
}
