package ec2api_test

import (
	"errors"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// attempts is what the journal says of retries.
type attempts struct {
	Attempt, Max int
	Code         string
	Fault        string
}

func retries(entries []ec2api.Entry) []attempts {
	var out []attempts
	for _, e := range entries {
		out = append(out, attempts{e.Attempt, e.MaxAttempts, e.Code, e.Fault})
	}
	return out
}

// Every code that the model or the endpoint itself gives may be injected, and every action.
func TestCheckFault(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	for _, good := range []fault.Rule{
		{}, {Action: "DescribeInstances"}, {Action: "UnassignPrivateIpAddresses", Resource: e.node.ID}, {Resource: "eni-attach-0123456789abcdef0"},
		{Resource: "10.0.1.20"}, {Resource: "c6in.32xlarge"}, {Kind: fault.Error, Code: vpc.CodeENIInUse}, {Kind: fault.Error, Code: fault.ThrottleCode},
		{Kind: fault.Stale, Age: vpc.KeptHistory},
	} {
		if err := e.handler.CheckFault(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, action := range e.handler.Actions() {
		for _, code := range e.handler.Codes(action) {
			if err := e.handler.CheckFault(fault.Rule{Action: action, Kind: fault.Error, Code: code}); err != nil {
				t.Errorf("%s: %v", action, err)
			}
		}
	}
	for _, bad := range []fault.Rule{
		{Action: "DescribeInstancez"}, {Action: " DescribeInstances"}, {Action: "RebootInstances"}, {Resource: "eni-12"}, {Resource: "ENI-01234567"},
		{Resource: "10.0.1"}, {Resource: "m9.huge"}, {Kind: fault.Error, Code: "unauthorizedoperation"}, {Kind: fault.Error, Code: "InvalidNetworkInterfaceId.NotFound"},
		{Kind: fault.Stale, Age: vpc.KeptHistory + 1},
	} {
		if err := e.handler.CheckFault(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestDefaultRetryOnThrottle is the only test that lets the SDK wait as it does by default (up to about 3 s).
func TestDefaultRetryOnThrottle(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.fault(fault.Rule{Name: "busy", Action: "AssignPrivateIpAddresses", Kind: fault.Throttle, Times: 2})
	eni := e.create(0)
	client := e.client(func(*ec2.Options) {})
	if _, err := client.AssignPrivateIpAddresses(t.Context(), &ec2.AssignPrivateIpAddressesInput{
		NetworkInterfaceId: &eni.ID, SecondaryPrivateIpAddressCount: ptr(int32(1)),
	}); err != nil {
		t.Fatal(err)
	}
	journal := e.handler.Journal(0)
	want := []attempts{{1, 3, "RequestLimitExceeded", "busy"}, {2, 3, "RequestLimitExceeded", "busy"}, {3, 3, "", ""}}
	if diff := cmp.Diff(want, retries(journal)); diff != "" {
		t.Fatal(diff)
	}
	for _, entry := range journal {
		if entry.InvocationID == "" || entry.InvocationID != journal[0].InvocationID || entry.AccessKey != "AKIDNODE1" || entry.Region != "us-west-2" {
			t.Fatalf("%+v", entry)
		}
	}
	if journal[0].Status != 503 || journal[2].Params["SecondaryPrivateIpAddressCount"] != "1" || !journal[0].Time.Equal(start) {
		t.Fatalf("%+v", journal)
	}
	if got, _ := e.model.ENI(eni.ID); len(got.Secondary) != 1 {
		t.Fatalf("%d addresses assigned", len(got.Secondary))
	}
}

func TestInjectedErrorOfOneResource(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	hit, spared := e.create(0), e.create(0)
	e.fault(fault.Rule{Name: "denied", Resource: hit.ID, Kind: fault.Error, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation.", Status: 403})
	_, err := e.sdk.DeleteNetworkInterface(t.Context(), &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &hit.ID})
	var answer *awshttp.ResponseError
	if codeOf(err) != "UnauthorizedOperation" || !errors.As(err, &answer) || answer.HTTPStatusCode() != 403 {
		t.Fatal(err)
	}
	if _, there := e.model.ENI(hit.ID); !there {
		t.Fatal("executed all the same")
	}
	must(e.sdk.DeleteNetworkInterface(t.Context(), &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &spared.ID}))
	e.faults.Clear()
	must(e.sdk.DeleteNetworkInterface(t.Context(), &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &hit.ID}))
}

// TestLostResponse is the trap of EC2: what has no client token is done twice by the SDK's retry.
func TestLostResponse(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	client := e.client(eager)
	e.fault(fault.Rule{Name: "create", Action: "CreateNetworkInterface", Kind: fault.Lost, Times: 1})
	e.fault(fault.Rule{Name: "assign", Action: "AssignPrivateIpAddresses", Kind: fault.Lost, Times: 1})
	before := len(e.model.ENIs())
	created := must(client.CreateNetworkInterface(t.Context(), &ec2.CreateNetworkInterfaceInput{SubnetId: &e.subnet.ID})).NetworkInterface
	if got := len(e.model.ENIs()) - before; got != 1 {
		t.Fatalf("%d ENIs for one client token", got)
	}
	must(client.AssignPrivateIpAddresses(t.Context(), &ec2.AssignPrivateIpAddressesInput{
		NetworkInterfaceId: created.NetworkInterfaceId, SecondaryPrivateIpAddressCount: ptr(int32(2)),
	}))
	if got, _ := e.model.ENI(*created.NetworkInterfaceId); len(got.Secondary) != 4 {
		t.Fatalf("%d addresses after a lost answer and a retry", len(got.Secondary))
	}
	want := []attempts{{1, 3, "", "create"}, {2, 3, "", ""}, {1, 3, "", "assign"}, {2, 3, "", ""}}
	journal := e.handler.Journal(0)
	if diff := cmp.Diff(want, retries(journal)); diff != "" || !journal[0].Lost || journal[1].Lost {
		t.Fatal(diff)
	}
}

func TestDelayedRequest(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	const delay = 50 * time.Millisecond
	e.fault(fault.Rule{Name: "slow", Action: "DescribeVpcs", Kind: fault.Delay, Delay: delay})
	began := time.Now()
	must(e.sdk.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}))
	if took := time.Since(began); took < delay {
		t.Fatalf("answered after %s", took)
	}
	if got := e.handler.Journal(0)[0]; got.Fault != "slow" || got.Code != "" {
		t.Fatalf("%+v", got)
	}
}

// TestTimePassesBeforeARequest: a transition that is due is seen without anybody having called Advance.
func TestTimePassesBeforeARequest(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	eni := e.create(0)
	e.attach(eni, 1)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "attaching"}, {time.Second, "attached"}} {
		e.clock.pass(step.after)
		got := must(e.sdk.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{eni.ID}}))
		if status := string(got.NetworkInterfaces[0].Attachment.Status); status != step.want {
			t.Fatalf("after %s: %s", step.after, status)
		}
	}
}

func TestJournalSince(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	for range 3 {
		must(e.sdk.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}))
	}
	all := e.handler.Journal(0)
	if got := e.handler.Journal(all[1].Seq); len(all) != 3 || len(got) != 1 || got[0].Seq != 3 {
		t.Fatalf("%d entries, then %d", len(all), len(got))
	}
	all[0].Params["added"] = "by a caller"
	if _, there := e.handler.Journal(0)[0].Params["added"]; there {
		t.Fatal("a caller changed the journal")
	}
}
