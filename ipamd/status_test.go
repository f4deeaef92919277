package ipamd

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
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
			{ENI: "eni-a", Condition: pool.InUse},
			{ENI: "eni-a", Condition: pool.Occupied},
			{ENI: "eni-a", Condition: pool.Free},
			{ENI: "eni-b", Condition: pool.Resting},
			{Condition: pool.InUse}, // a pod whose address EC2 took away
			{Condition: pool.Forgotten},
		},
	}
	want := introspect.Figures{
		ENIs: 2, MaxENIs: 4, MaxIPs: 56, IPs: 4, AssignedIPs: 3, Cooling: 1,
		AssignedPerENI: map[string]int{"eni-a": 2, "eni-b": 0},
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

func TestStatusTextTellsHowFarAPassIs(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	page := statusPage{
		Annotations: annotationPage{
			On: true, Keys: []string{"a.example/ip", "b.example/ips"}, Joined: []string{"b.example/ips"}, Owned: 110, Pending: 53, OldestWait: "5.2s", Overdue: 1,
			Pass: annotate.Progress{Total: 110, Visited: 57, Began: began},
		},
		Warnings: []string{"a rule of nm-cloud-setup"},
	}
	page.Errors.Save = "no room"
	want := `daemon:       not ready yet: the node's ENIs or its kernel have not been read
node:         unknown (unknown), 0 ENIs, 0 addresses: 0 in use, 0 resting
waiting pods: 0
annotations:  on, a.example/ip, b.example/ips (all addresses)
              owned on 110 pods, 53 pending (the oldest for 5.2s), 1 overdue
              pass over the node's pods: 57 of 110 visited since 2026-01-01T12:00:00Z
trouble:      no room
warning:      a rule of nm-cloud-setup
`
	if diff := cmp.Diff(want, page.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	page.Annotations.Pass.Visited, page.Annotations.Pass.Ended = 110, began.Add(11*time.Second)
	if text := page.String(); !strings.Contains(text, "last pass over the node's pods: all 110 visited, 2026-01-01T12:00:00Z to 2026-01-01T12:00:11Z") {
		t.Errorf("at the end:\n%s", text)
	}
}
