package cloud

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Prefixes over the wire: assigned, described, given back, and refused where the ENI's places are all taken.
func TestPrefixes(t *testing.T) {
	w := newWorld(t, Options{})
	eni := w.observe().ENIs[0].ID
	got := w.do(pool.AssignPrefixes{ENI: eni, Count: 2}).Prefixes
	stored, _ := w.vpc.ENI(eni)
	if len(got) != 2 || got[0].Bits() != 28 || !slices.IsSortedFunc(got, netip.Prefix.Compare) || !slices.Equal(got, stored.Prefixes) {
		t.Fatalf("assigned %v, EC2 has %v", got, stored.Prefixes)
	}
	if seen := w.observe().ENIs[0]; !slices.Equal(seen.Prefixes, got) || len(seen.Secondary) != 0 {
		t.Errorf("described: %+v", seen)
	}
	if !w.cloud.Changed(t.Context()) {
		t.Error("a glance at the metadata does not show prefixes, and was believed")
	}
	w.do(pool.UnassignPrefixes{ENI: eni, Prefixes: pool.NewPrefixes(got[:1])})
	if seen := w.observe().ENIs[0]; !slices.Equal(seen.Prefixes, got[1:]) {
		t.Errorf("after one was given back: %v", seen.Prefixes)
	}
	_, err := w.cloud.Do(t.Context(), pool.AssignPrefixes{ENI: eni, Count: 14})
	var refused *pool.CloudError
	if !errors.As(err, &refused) || refused.Class != pool.ClassLimit {
		t.Errorf("15 prefixes on an ENI of 15 addresses: %v", err)
	}
	// A /24 whose first, last and one more block are broken into has no 14 whole ones.
	_, err = w.cloud.Do(t.Context(), pool.AssignPrefixes{ENI: eni, Count: 13})
	if !errors.As(err, &refused) || refused.Class != pool.ClassSubnetFull || refused.Code != "InsufficientCidrBlocks" {
		t.Errorf("more prefixes than the subnet has whole blocks: %v", err)
	}
}
