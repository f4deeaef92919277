package cloud

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// world is a fake AWS with one instance, and a Cloud for it.
type world struct {
	t        *testing.T
	vpc      *vpc.VPC
	api      *ec2api.Handler
	faults   *fault.Table
	subnet   vpc.Subnet
	instance vpc.Instance
	cloud    *Cloud

	mu    sync.Mutex
	now   time.Time
	calls []Call
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	w.now = w.now.Add(d)
	w.mu.Unlock()
	w.vpc.Advance(w.time())
}

func newWorld(t *testing.T, options Options) *world {
	t.Helper()
	w := &world{t: t, faults: &fault.Table{}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.vpc = vpc.New(vpc.Options{Seed: 1, Region: "eu-west-1"})
	network, err := w.vpc.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("100.64.0.0/16")}})
	if err != nil {
		t.Fatal(err)
	}
	w.subnet, err = w.vpc.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	w.instance, err = w.vpc.Launch(w.now, vpc.LaunchInput{Type: "m5.xlarge", SubnetID: w.subnet.ID, Name: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	w.api = ec2api.New(ec2api.Options{VPC: w.vpc, Faults: w.faults, Now: w.time})
	w.cloud = w.connect(options)
	return w
}

// connect makes a Cloud as a newly started daemon would.
func (w *world) connect(options Options) *Cloud {
	w.t.Helper()
	ec2 := httptest.NewServer(w.api)
	w.t.Cleanup(ec2.Close)
	metadata := httptest.NewServer(w.metadata())
	w.t.Cleanup(metadata.Close)
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.URL, "AWS_ENDPOINT_URL_EC2": ec2.URL,
		"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
	} {
		w.t.Setenv(name, value)
	}
	options.Now = w.time
	options.OnCall = func(call Call) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, call)
	}
	cloud, err := New(w.t.Context(), options)
	if err != nil {
		w.t.Fatal(err)
	}
	return cloud
}

func (w *world) observe() pool.Observation {
	w.t.Helper()
	observation, err := w.cloud.Observe(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return observation
}

func (w *world) do(action pool.Action) pool.Outcome {
	w.t.Helper()
	outcome, err := w.cloud.Do(w.t.Context(), action)
	if err != nil {
		w.t.Fatalf("%s: %v", action, err)
	}
	return outcome
}

func (w *world) spoil(rule fault.Rule) {
	w.t.Helper()
	if err := w.faults.Add(rule); err != nil {
		w.t.Fatal(err)
	}
}

// requests counts requests on the wire by action.
func (w *world) requests(action string) int {
	n := 0
	for _, entry := range w.api.Journal(0) {
		if entry.Action == action {
			n++
		}
	}
	return n
}

func TestObserve(t *testing.T) {
	w := newWorld(t, Options{})
	got := w.observe()
	primary := w.vpc.InstanceENIs(w.instance.ID)[0]
	want := pool.Observation{
		Instance: pool.Instance{
			ID: w.instance.ID, Type: "m5.xlarge", VPC: w.instance.VPCID, Subnet: w.subnet.ID, AZ: w.instance.AZ,
			Limits: pool.Limits{ENIs: 4, AddressesPerENI: 15},
		},
		VPCCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("100.64.0.0/16")},
		ENIs: []pool.ENI{{
			ID: primary.ID, MAC: primary.MAC, Subnet: w.subnet.ID, SubnetCIDR: netip.MustParsePrefix("10.0.1.0/24"),
			State: pool.Attached, AttachmentID: primary.Attachment.ID, DeleteOnTermination: true,
			Primary: primary.Primary, Groups: primary.Groups,
		}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("observation (-want +got):\n%s", diff)
	}
	for _, entry := range w.api.Journal(0) {
		if entry.Region != "eu-west-1" || entry.Code != "" {
			t.Errorf("%s: region %q, code %q", entry.Action, entry.Region, entry.Code)
		}
	}
	// What cannot change is asked once.
	w.observe()
	for action, want := range map[string]int{"DescribeInstanceTypes": 1, "DescribeSubnets": 1, "DescribeNetworkInterfaces": 4} {
		if got := w.requests(action); got != want {
			t.Errorf("%s: %d requests, want %d", action, got, want)
		}
	}
}

func TestTheRegionOfTheEnvironmentCounts(t *testing.T) {
	w := newWorld(t, Options{})
	t.Setenv("AWS_REGION", "us-east-2")
	cloud, err := New(t.Context(), Options{Now: w.time})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if entry := w.api.Journal(0)[0]; entry.Region != "us-east-2" {
		t.Errorf("region %q", entry.Region)
	}
}

// An ENI's whole life, seen through the planner's steps.
func TestStepsOfAnENIsLife(t *testing.T) {
	w := newWorld(t, Options{ClusterName: "c1", Tags: map[string]string{"team": "net"}})
	group := w.observe().ENIs[0].Groups[0]
	created := w.do(pool.CreateENI{Subnet: w.subnet.ID, Groups: group, Secondary: 3, Token: "token-1"}).ENI
	if created.State != pool.Available || !created.Owned || len(created.Secondary) != 3 || !created.SubnetCIDR.IsValid() ||
		!slices.Equal(created.Groups, []string{group}) || !created.CreatedAt.Equal(w.time()) || !slices.IsSortedFunc(created.Secondary, netip.Addr.Compare) {
		t.Errorf("created: %+v", created)
	}
	stored, _ := w.vpc.ENI(created.ID)
	wantTags := map[string]string{
		"node.k8s.amazonaws.com/instance_id": w.instance.ID, "node.k8s.amazonaws.com/createdAt": "2026-03-01T12:00:00Z",
		"cluster.k8s.amazonaws.com/name": "c1", "team": "net",
	}
	if diff := cmp.Diff(wantTags, stored.Tags); diff != "" || stored.Description != "aws-K8S-"+w.instance.ID {
		t.Errorf("description %q, tags (-want +got):\n%s", stored.Description, diff)
	}

	w.pass(time.Second)
	if again := w.do(pool.CreateENI{Subnet: w.subnet.ID, Groups: group, Secondary: 3, Token: "token-1"}).ENI; again.ID != created.ID {
		t.Errorf("the same token made another ENI: %s and %s", created.ID, again.ID)
	}
	if seen := w.eni(created.ID); seen.State != pool.Available || !seen.Owned {
		t.Errorf("available: %+v", seen)
	}

	attached := w.do(pool.AttachENI{ENI: created.ID, Device: 2}).ENI
	if attached.AttachmentID == "" || attached.Device != 2 || attached.State != pool.Attaching || !attached.DeleteOnTermination {
		t.Errorf("attached: %+v", attached)
	}
	w.pass(5 * time.Second)
	if seen := w.eni(created.ID); seen.State != pool.Attached || seen.Device != 2 || !seen.DeleteOnTermination || seen.AttachmentID != attached.AttachmentID {
		t.Errorf("after the attachment: %+v", seen)
	}

	assigned := w.do(pool.AssignAddresses{ENI: created.ID, Count: 2}).Addresses
	if len(assigned) != 2 || slices.Contains(created.Secondary, assigned[0]) || len(w.eni(created.ID).Secondary) != 5 {
		t.Errorf("assigned: %v, held before: %v", assigned, created.Secondary)
	}
	w.do(pool.UnassignAddresses{ENI: created.ID, Addresses: pool.NewAddrs(assigned)})
	if seen := w.eni(created.ID); !slices.Equal(seen.Secondary, created.Secondary) {
		t.Errorf("after unassignment: %v, want %v", seen.Secondary, created.Secondary)
	}

	w.do(pool.DetachENI{ENI: created.ID, AttachmentID: attached.AttachmentID})
	if seen := w.eni(created.ID); seen.State != pool.Detaching {
		t.Errorf("detaching: %+v", seen)
	}
	w.refused(pool.DeleteENI{ENI: created.ID}, pool.ClassInUse, "InvalidParameterValue")
	w.pass(10 * time.Second)
	w.do(pool.DeleteENI{ENI: created.ID})
	w.do(pool.DeleteENI{ENI: created.ID}) // gone is what was wanted
	if enis := w.observe().ENIs; len(enis) != 1 {
		t.Errorf("left: %+v", enis)
	}
}

func (w *world) eni(id string) pool.ENI {
	w.t.Helper()
	for _, eni := range w.observe().ENIs {
		if eni.ID == id {
			return eni
		}
	}
	w.t.Fatalf("%s is not observed", id)
	return pool.ENI{}
}

func (w *world) refused(action pool.Action, class pool.CloudClass, code string) {
	w.t.Helper()
	_, err := w.cloud.Do(w.t.Context(), action)
	var failed *pool.CloudError
	if !errors.As(err, &failed) || failed.Class != class || failed.Code != code {
		w.t.Errorf("%s: %v (%+v), want %s %s", action, err, failed, class, code)
	}
}

func TestRefusalsOfTheModelHaveTheirClass(t *testing.T) {
	w := newWorld(t, Options{})
	primary := w.observe().ENIs[0]
	spare := w.do(pool.CreateENI{Subnet: w.subnet.ID, Token: "a"}).ENI
	w.refused(pool.CreateENI{Subnet: "subnet-0123456789abcdef0", Token: "b"}, pool.ClassGone, "InvalidSubnetID.NotFound")
	w.refused(pool.AttachENI{ENI: "eni-0123456789abcdef0", Device: 1}, pool.ClassGone, "InvalidNetworkInterfaceID.NotFound")
	w.refused(pool.AttachENI{ENI: primary.ID, Device: 1}, pool.ClassInUse, "InvalidNetworkInterface.InUse")
	w.refused(pool.AttachENI{ENI: spare.ID, Device: 0}, pool.ClassInvalid, "InvalidParameterValue")
	w.refused(pool.AssignAddresses{ENI: primary.ID, Count: 15}, pool.ClassLimit, "PrivateIpAddressLimitExceeded")
	w.refused(pool.UnassignAddresses{ENI: primary.ID, Addresses: "10.0.1.200"}, pool.ClassInvalid, "InvalidParameterValue")
	w.refused(pool.DetachENI{ENI: primary.ID, AttachmentID: primary.AttachmentID}, pool.ClassDenied, "OperationNotPermitted")
	w.refused(pool.DetachENI{ENI: spare.ID, AttachmentID: "eni-attach-0123456789abcdef0"}, pool.ClassGone, "InvalidAttachmentID.NotFound")
	w.refused(pool.SetDeleteOnTermination{ENI: spare.ID, AttachmentID: "eni-attach-0123456789abcdef0"}, pool.ClassGone, "InvalidAttachmentID.NotFound")
	w.refused(pool.DeleteENI{ENI: primary.ID}, pool.ClassInUse, "InvalidParameterValue")
}

// A call without a ClientToken is sent once, whatever becomes of it: sent twice it could be carried out twice.
func TestALostAnswerIsUnknownAndNotRepeated(t *testing.T) {
	w := newWorld(t, Options{})
	primary := w.observe().ENIs[0]
	w.spoil(fault.Rule{Name: "lost", Action: "AssignPrivateIpAddresses", Kind: fault.Lost, Times: 1})
	w.refused(pool.AssignAddresses{ENI: primary.ID, Count: 2}, pool.ClassUnknown, "")
	if n := w.requests("AssignPrivateIpAddresses"); n != 1 {
		t.Errorf("%d requests", n)
	}
	if n := len(w.eni(primary.ID).Secondary); n != 2 {
		t.Errorf("%d addresses: the call was carried out once", n)
	}
}

func TestAThrottledStepIsNotRepeatedAndAReadingIs(t *testing.T) {
	w := newWorld(t, Options{})
	primary := w.observe().ENIs[0]
	w.spoil(fault.Rule{Name: "assign", Action: "AssignPrivateIpAddresses", Kind: fault.Throttle, Times: 1})
	w.refused(pool.AssignAddresses{ENI: primary.ID, Count: 1}, pool.ClassThrottled, fault.ThrottleCode)
	w.spoil(fault.Rule{Name: "describe", Action: "DescribeNetworkInterfaces", Kind: fault.Throttle, Times: 1})
	w.observe()
}

func TestAnAttachmentWhoseFlagFailsStands(t *testing.T) {
	w := newWorld(t, Options{})
	w.observe()
	eni := w.do(pool.CreateENI{Subnet: w.subnet.ID, Token: "a"}).ENI
	w.spoil(fault.Rule{Name: "modify", Action: "ModifyNetworkInterfaceAttribute", Kind: fault.Error, Code: "UnauthorizedOperation", Status: 403, Times: 1})
	attached := w.do(pool.AttachENI{ENI: eni.ID, Device: 1}).ENI
	if attached.AttachmentID == "" || attached.DeleteOnTermination {
		t.Errorf("attached: %+v", attached)
	}
	w.do(pool.SetDeleteOnTermination{ENI: eni.ID, AttachmentID: attached.AttachmentID})
	if !w.eni(eni.ID).DeleteOnTermination {
		t.Error("the flag is not repaired")
	}
}

func TestLimitsOfAKnownTypeWithoutPermissionToAsk(t *testing.T) {
	w := newWorld(t, Options{})
	w.spoil(fault.Rule{Name: "types", Action: "DescribeInstanceTypes", Kind: fault.Error, Code: "UnauthorizedOperation", Status: 403})
	if got := w.observe().Instance.Limits; got != (pool.Limits{ENIs: 4, AddressesPerENI: 15}) {
		t.Errorf("limits: %+v", got)
	}
	w.observe()
	if n := w.requests("DescribeInstanceTypes"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestForeignENIsAreNotOwned(t *testing.T) {
	w := newWorld(t, Options{})
	w.observe()
	create := func(tags map[string]string) string {
		eni, err := w.vpc.CreateNetworkInterface(w.time(), vpc.CreateNetworkInterfaceInput{SubnetID: w.subnet.ID, Tags: tags})
		if err != nil {
			t.Fatal(err)
		}
		return eni.ID
	}
	foreign := create(map[string]string{tagInstance: "i-0123456789abcdef0"})
	unmanaged := create(map[string]string{tagInstance: w.instance.ID, tagNoManage: "true"})
	untagged := create(nil)
	if _, err := w.vpc.AttachNetworkInterface(w.time(), vpc.AttachNetworkInterfaceInput{InstanceID: w.instance.ID, NetworkInterfaceID: untagged, Device: 3}); err != nil {
		t.Fatal(err)
	}
	w.pass(10 * time.Second)
	for _, eni := range w.observe().ENIs {
		if eni.ID == foreign {
			t.Errorf("another instance's ENI is observed: %+v", eni)
		}
		if eni.Owned {
			t.Errorf("owned: %+v", eni)
		}
	}
	if w.eni(unmanaged).Owned || w.eni(untagged).Device != 3 {
		t.Error("unmanaged or untagged ENI")
	}
}

func TestTheHookIsToldOfEveryCall(t *testing.T) {
	w := newWorld(t, Options{})
	w.observe()
	w.refused(pool.DeleteENI{ENI: w.observe().ENIs[0].ID}, pool.ClassInUse, "InvalidParameterValue")
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for _, call := range w.calls {
		count[call.Service+" "+call.Action]++
		if (call.Err != nil) != (call.Action == "DeleteNetworkInterface") || strings.Contains(call.Action, ":") {
			t.Errorf("call: %+v", call)
		}
	}
	want := map[string]int{
		"imds document": 1, "imds mac": 1, "imds vpc-id": 1, "imds subnet-id": 1, "imds vpc-ipv4-cidr-blocks": 4,
		"imds macs": 2, "imds local-ipv4s": 2,
		"ec2 DescribeInstanceTypes": 1, "ec2 DescribeSubnets": 1, "ec2 DescribeNetworkInterfaces": 4, "ec2 DeleteNetworkInterface": 1,
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// An outage of the metadata service after the first reading must not hide what EC2 says.
func TestMetadataOutage(t *testing.T) {
	w := newWorld(t, Options{})
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) }))
	defer broken.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", broken.URL)
	cloud, err := New(t.Context(), Options{Now: w.time})
	if err != nil {
		t.Fatal(err)
	}
	var failed *pool.CloudError
	if _, err := cloud.Observe(t.Context()); !errors.As(err, &failed) || failed.Class != pool.ClassUnknown {
		t.Errorf("first reading: %v", err)
	}
	first := w.observe()
	w.cloud.imds = cloud.imds
	if again := w.observe(); fmt.Sprint(again.VPCCIDRs) != fmt.Sprint(first.VPCCIDRs) {
		t.Errorf("CIDRs: %v", again.VPCCIDRs)
	}
}
