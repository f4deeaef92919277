package reconcile_test

import (
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// TestB21NothingIsGivenBackBeforeItIsSaved: should the daemon die right after the call, the next life knows better than EC2's
// readings, which may show the addresses for a while.
func TestB21NothingIsGivenBackBeforeItIsSaved(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 1}, func(t *testing.T, r *rig) {
		r.ready()
		for i := range 4 {
			r.mustAssign(i)
		}
		pass(10 * time.Second)
		r.set(reconcile.KindSave, 0, errDisk)
		for i := range 4 {
			if _, _, err := r.loop.Release(t.Context(), sandboxKey(i)); err != nil {
				t.Fatal(err)
			}
		}
		r.seen()
		pass(30 * time.Minute)
		if seen := r.seen(); seen["cloud UnassignAddresses"] != 0 || seen["save failed"] > 100 {
			t.Errorf("with a full disk: %v", seen)
		}
		r.set(reconcile.KindSave, 0, nil)
		pass(30 * time.Minute)
		if seen := r.seen(); seen["cloud UnassignAddresses"] == 0 || seen["cloud UnassignAddresses"] > 4 {
			t.Errorf("with room on the disk: %v", seen)
		}
	})
}
