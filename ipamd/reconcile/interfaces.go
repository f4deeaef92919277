package reconcile

import (
	"context"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Cloud is EC2 and the instance's metadata. Errors are *pool.CloudError.
type Cloud interface {
	// Observe reads the instance, its ENIs (attached, and available ones with its tag) and the VPC's CIDRs.
	Observe(ctx context.Context) (pool.Observation, error)
	// Changed tells whether Observe may give something else than what it gave last: whether an action was carried out since, or the
	// instance's metadata show other ENIs or addresses. It makes no call to EC2; in doubt it says yes.
	Changed(ctx context.Context) bool
	// Do carries out one action. After a ClassUnknown error the action may have happened: observe before planning again.
	Do(ctx context.Context, action pool.Action) (pool.Outcome, error)
}

// Host is the node's kernel.
type Host interface {
	// Apply brings links, tables, rules and maps to the wanted state and reports what the kernel was then seen to hold. It
	// is idempotent; an ENI whose link has not appeared yet is left out of the report, not an error.
	Apply(ctx context.Context, want pool.HostState) (pool.HostReport, error)
	// Changes delivers after links or routes changed; several changes may be merged into one.
	Changes() <-chan struct{}
}

// Store keeps the allocations on disk.
type Store interface {
	// Load gives the last saved snapshot; found is false when there was none (or an unreadable one was put aside).
	Load() (snapshot pool.Snapshot, found bool, err error)
	Save(snapshot pool.Snapshot) error
}

// Annotator carries out annotation wishes. It answers through the function that it was made with.
type Annotator interface {
	// Submit takes the latest record of a pod; it never blocks. A later record of the same owner replaces an earlier one.
	Submit(record pool.Annotation)
}
