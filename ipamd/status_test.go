package ipamd

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
