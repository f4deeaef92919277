package ipamd

import (
	"context"

	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
)

// Services of the health check. Probes that were made for the incumbent ask for its service or for none.
const (
	healthIncumbent = "grpc.health.v1.aws-node"
	healthReady     = "ready"
)

// health says whether the daemon lives, which is for liveness probes, and whether a pod can start. A daemon that waits for
// EC2 or the kernel lives: to end it would help nobody.
func (d *daemon) health() introspect.Health {
	lives := func(ctx context.Context) error {
		_, err := d.loop.LastErrors(ctx)
		return err
	}
	return introspect.Health{"": lives, healthIncumbent: lives, healthReady: (&allocator{loop: d.loop}).Status}
}
