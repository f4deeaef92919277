package reconcile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// glanced is a cloud whose metadata say what the test says.
type glanced struct {
	*simCloud
	changed  atomic.Bool
	glances  atomic.Int64
	readings atomic.Int64
}

func (g *glanced) Changed(context.Context) bool {
	g.glances.Add(1)
	return g.changed.Load()
}

func (g *glanced) Observe(ctx context.Context) (pool.Observation, error) {
	g.readings.Add(1)
	return g.simCloud.Observe(ctx)
}

// EC2 is left alone while the metadata show nothing new, but for a reading now and then; a minute after they do it is read.
func TestEC2IsReadWhereTheMetadataShowAChange(t *testing.T) {
	inBubble(t, pool.Settings{WarmIP: 3}, func(t *testing.T, r *rig) {
		cloud := &glanced{simCloud: r.cloud}
		r.loop = reconcile.New(reconcile.Config{
			Settings: pool.Settings{WarmIP: 3, BootID: "boot"}, Cloud: cloud, Host: r.host, Store: store.New(r.disk, "/state"), Annotator: r, Seam: r.seam,
		})
		cloud.changed.Store(true)
		r.ready()
		pass(3 * time.Minute) // what the beginning asked for has been read
		synctest.Wait()
		cloud.changed.Store(false)
		spent := func(d time.Duration) (glances, readings int64) {
			glances, readings = cloud.glances.Load(), cloud.readings.Load()
			pass(d)
			synctest.Wait()
			return cloud.glances.Load() - glances, cloud.readings.Load() - readings
		}
		if glances, readings := spent(time.Hour); readings > 6 || readings < 5 || glances < 50 || glances > 60 {
			t.Errorf("in an hour without changes: %d readings of EC2 and %d glances, want 6 and 54 or so", readings, glances)
		}
		cloud.changed.Store(true)
		if _, readings := spent(90 * time.Second); readings == 0 {
			t.Error("the metadata show a change, and EC2 is not read")
		}
	})
}
