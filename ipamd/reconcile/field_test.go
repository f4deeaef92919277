package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// A DEL that never comes: the pod's route is seen gone in two audits, 30 s apart, and somebody is told.
func TestB7LostDELEndsWithinTwoAuditsAndIsTold(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 2}, func(t *testing.T, r *rig) {
		var ended []pool.Ended
		r.loop = reconcile.New(reconcile.Config{
			Settings: pool.Settings{WarmIP: 2, BootID: "boot"}, Cloud: r.cloud, Host: r.host, Store: store.New(r.disk, "/state"),
			Ended: func(e pool.Ended) { ended = append(ended, e) },
		})
		r.ready()
		for i := range 3 {
			r.host.addRoute(r.mustAssign(i).Assignment.Addr, podOf(i).Name)
			if err := r.loop.Done(t.Context(), sandboxKey(i)); err != nil {
				t.Fatal(err)
			}
		}
		lost, err := r.loop.Check(t.Context(), sandboxKey(1))
		if err != nil {
			t.Fatal(err)
		}
		r.host.removeRoute(lost.Assignment.Addr, podOf(1).Name)
		pass(29 * time.Second)
		if _, err := r.loop.Check(t.Context(), sandboxKey(1)); err != nil {
			t.Errorf("released after one audit at most: %v", err)
		}
		pass(32 * time.Second)
		if _, err := r.loop.Check(t.Context(), sandboxKey(1)); !errors.Is(err, reconcile.ErrUnknown) {
			t.Errorf("held after two audits: %v", err)
		}
		for _, i := range []int{0, 2} {
			if _, err := r.loop.Check(t.Context(), sandboxKey(i)); err != nil {
				t.Errorf("pod %d, whose route stands: %v", i, err)
			}
		}
		if len(ended) != 1 || ended[0].Addr != lost.Assignment.Addr || ended[0].Evidence != pool.Vanished {
			t.Errorf("told of %+v", ended)
		}
		r.mustAssign(1) // and it was put into use again, or another is there
	})
}
