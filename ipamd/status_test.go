package ipamd

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

func TestCount(t *testing.T) {
	view := pool.View{
		Instance: pool.Instance{Limits: pool.Limits{ENIs: 4, AddressesPerENI: 15}},
		ENIs: []pool.ENIView{
			{ENI: pool.ENI{ID: "eni-a", State: pool.Attached}},
			{ENI: pool.ENI{ID: "eni-b", State: pool.Detaching}},
			{ENI: pool.ENI{ID: "eni-c", State: pool.Available}},
		},
		Addresses: []pool.AddressView{
			{Addr: netip.MustParseAddr("10.0.0.5"), ENI: "eni-a", Condition: pool.InUse},
			{Addr: netip.MustParseAddr("10.0.0.6"), ENI: "eni-a", Condition: pool.Occupied},
			{Addr: netip.MustParseAddr("10.0.0.7"), ENI: "eni-a", Condition: pool.Free},
			{Addr: netip.MustParseAddr("10.0.0.8"), ENI: "eni-b", Condition: pool.Resting},
			{Condition: pool.InUse}, // a pod whose address EC2 took away
			{Condition: pool.Forgotten},
		},
	}
	want := introspect.Figures{
		ENIs: 2, MaxENIs: 4, MaxIPs: 56, IPs: 4, AssignedIPs: 3, Cooling: 1,
		AssignedPerENI:  map[string]int{"eni-a": 2, "eni-b": 0},
		AssignedPerCIDR: map[string]int{"10.0.0.5/32": 1, "10.0.0.6/32": 1, "10.0.0.7/32": 0, "10.0.0.8/32": 0},
		InProgress:      map[string]bool{},
	}
	if diff := cmp.Diff(want, count(view, -1)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	want.MaxENIs, want.MaxIPs = 3, 42
	if diff := cmp.Diff(want, count(view, 3)); diff != "" {
		t.Errorf("with MAX_ENI=3 (-want +got):\n%s", diff)
	}
	if got := count(pool.View{}, -1); got.MaxIPs != 0 {
		t.Errorf("before the first reading: %+v", got)
	}
}

func written(t *testing.T, page Page) string {
	t.Helper()
	var out bytes.Buffer
	if err := page.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestStatusTextTellsHowFarAPassIs(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	page := statusPage{
		Annotations: annotationPage{
			On: true, Keys: []string{"a.example/ip", "b.example/ips"}, Joined: []string{"b.example/ips"}, Owned: 110, Pending: 53, OldestWait: "5.2s", Overdue: 1,
			Pass: annotate.Progress{Total: 110, Visited: 57, Began: began},
		},
		Warnings: []string{"a rule of nm-cloud-setup"},
		Targets:  targets{WarmENI: 1, MaxENI: -1, Cooldown: 30 * time.Second},
	}
	page.Errors.Save = "no room"
	want := `daemon:       not ready yet: the node's ENIs or its kernel have not been read
node:         unknown (unknown), 0 ENIs, 0 addresses: 0 in use, 0 resting
targets:      WARM_ENI_TARGET=1, MAX_ENI=-1, cooldown 30s
waiting pods: 0
annotations:  on, a.example/ip, b.example/ips (all addresses)
              owned on 110 pods, 53 pending (the oldest for 5.2s), 1 overdue
              pass over the node's pods: 57 of 110 visited since 2026-01-01T12:00:00Z
trouble:      no room
warning:      a rule of nm-cloud-setup
`
	if diff := cmp.Diff(want, written(t, page)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	page.Annotations.Pass.Visited, page.Annotations.Pass.Ended = 110, began.Add(11*time.Second)
	if text := written(t, page); !strings.Contains(text, "last pass over the node's pods: all 110 visited, 2026-01-01T12:00:00Z to 2026-01-01T12:00:11Z") {
		t.Errorf("at the end:\n%s", text)
	}
}

// busyNode is a node of two ENIs with one pod, one that is connected, one address that rests and one pod that waits.
func busyNode() (reconcile.Status, time.Time) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	addr := netip.MustParseAddr
	held := func(name string, done bool, ago time.Duration) *pool.Assignment {
		return &pool.Assignment{Key: pool.Key{Sandbox: name + "-0123456789abcdef"}, Pod: pool.Pod{Namespace: "default", Name: name}, Done: done, Since: now.Add(-ago)}
	}
	return reconcile.Status{
		Ready: true, NoAddress: "no free address among 3 (2 in use, 1 cooling down); all 2 ENIs that are allowed (instance type toy, MAX_ENI) are full",
		Busy: []string{reconcile.KindCloud}, NextWake: now.Add(4200 * time.Millisecond),
		Waiting: []reconcile.WaitingADD{{Key: pool.Key{Sandbox: "ccc"}, Pod: pool.Pod{Namespace: "default", Name: "late"}, Since: now.Add(-3 * time.Second)}},
		Pool: pool.View{
			Instance: pool.Instance{ID: "i-1", Type: "toy"},
			ENIs: []pool.ENIView{
				{ENI: pool.ENI{ID: "eni-1", State: pool.Attached, Subnet: "subnet-1", Primary: addr("10.0.1.10"), Secondary: []netip.Addr{addr("10.0.1.11"), addr("10.0.1.12")}}, Managed: true, Reported: true},
				{ENI: pool.ENI{ID: "eni-2", State: pool.Attaching, Device: 1, Subnet: "subnet-1", Primary: addr("10.0.1.20"), Secondary: []netip.Addr{addr("10.0.1.21")}}, Managed: true},
				{ENI: pool.ENI{ID: "eni-3", State: pool.Attached, Device: 2, Subnet: "subnet-2", Primary: addr("10.0.2.20")}, Reported: true},
			},
			Addresses: []pool.AddressView{
				{Addr: addr("10.0.1.11"), ENI: "eni-1", Condition: pool.InUse, Assignment: held("web", true, time.Minute)},
				{Addr: addr("10.0.1.12"), ENI: "eni-1", Condition: pool.InUse, Assignment: held("job", false, 200*time.Millisecond)},
				{Addr: addr("10.0.1.21"), ENI: "eni-2", Condition: pool.Resting, Until: now.Add(12 * time.Second)},
			},
			Decision: pool.Decision{
				At: now, Reason: "2 addresses are missing", Actions: []string{"assign 2 addresses to eni-2"}, Short: 2,
				Tally: pool.Tally{InUse: 2, Cooling: 1, Total: 3, ENIs: 2}, Blocked: []string{"EC2 is throttling (next try in 3.2s)"},
			},
		},
	}, now
}

func TestStatusTextHasTablesOfENIsAddressesAndWaitingPods(t *testing.T) {
	status, now := busyNode()
	page := statusPage{At: now, Status: status, Targets: targets{WarmIP: 2, MaxENI: -1, Cooldown: 30 * time.Second}, Annotations: annotationPage{}}
	want := `daemon:       ready
node:         i-1 (toy), 3 ENIs, 3 addresses: 2 in use, 1 resting
targets:      WARM_IP_TARGET=2, MINIMUM_IP_TARGET=0, MAX_ENI=-1, cooldown 30s
decision:     2026-01-01T12:00:00Z: 2 addresses are missing. do: assign 2 addresses to eni-2. wait: EC2 is throttling (next try in 3.2s)
waiting pods: 1, no free address among 3 (2 in use, 1 cooling down); all 2 ENIs that are allowed (instance type toy, MAX_ENI) are full
annotations:  off
              owned on 0 pods, 0 pending, 0 overdue

ENI    DEVICE  STATE      SUBNET    PRIMARY    ADDRESSES  IN USE  FREE  REMARK
eni-1  0       attached   subnet-1  10.0.1.10  2          2       0     -
eni-2  1       attaching  subnet-1  10.0.1.20  1          0       0     not confirmed by the kernel
eni-3  2       attached   subnet-2  10.0.2.20  0          0       0     not managed

ADDRESS    ENI    STATE    POD          SANDBOX        TIME
10.0.1.11  eni-1  in-use   default/web  web-012345678  for 1m0s
10.0.1.12  eni-1  in-use   default/job  job-012345678  for 200ms, being connected
10.0.1.21  eni-2  cooling  -            -              for 12s more

WAITING POD   SANDBOX  TIME
default/late  ccc      for 3s
`
	if diff := cmp.Diff(want, written(t, page)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestExplainTextSaysWhatAndWhy(t *testing.T) {
	status, now := busyNode()
	page := explainPage{
		At: now, Targets: targets{WarmIP: 2, MaxENI: -1, Cooldown: 30 * time.Second}, Decision: status.Pool.Decision, Busy: status.Busy,
		Waiting: status.Waiting, NoAddress: status.NoAddress, NextWake: status.NextWake, Errors: reconcile.LastErrors{Cloud: "throttled"},
	}
	want := `targets:      WARM_IP_TARGET=2, MINIMUM_IP_TARGET=0, MAX_ENI=-1, cooldown 30s
planner:      2 addresses are missing (2026-01-01T12:00:00Z)
counted:      3 addresses on 2 ENIs: 0 free, 2 in use, 0 of unknown pods, 1 cooling, 0 still named by an annotation, 0 not confirmed by the kernel yet
balance:      2 missing, 0 too many
would do:     assign 2 addresses to eni-2
waits for:    EC2 is throttling (next try in 3.2s)
running:      a call of EC2; the next decision follows its answer
looks again:  in 4.2s at the latest
a new pod:    no free address among 3 (2 in use, 1 cooling down); all 2 ENIs that are allowed (instance type toy, MAX_ENI) are full
trouble:      throttled

WAITING POD   SANDBOX  TIME
default/late  ccc      for 3s
`
	if diff := cmp.Diff(want, written(t, page)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if text := written(t, explainPage{}); !strings.Contains(text, "nothing is planned yet") {
		t.Errorf("before the first plan:\n%s", text)
	}
}

func TestAdviceTellsTroublesApart(t *testing.T) {
	for err, want := range map[error]string{
		fs.ErrNotExist: "Is the daemon running, and", syscall.ECONNREFUSED: "has ended", syscall.EACCES: "run this as root",
		context.DeadlineExceeded: "does not answer in time",
	} {
		if got := Advice(fmt.Errorf("ask: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
