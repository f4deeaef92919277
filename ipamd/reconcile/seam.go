package reconcile

import "context"

// Kinds of effects.
const (
	KindCloud    = "cloud"    // a call to EC2; Name is the action's name or "Observe"
	KindSave     = "save"     // the state to disk
	KindHost     = "host"     // the wanted state to the kernel
	KindAnnotate = "annotate" // a record to the annotator
)

// Effect names one thing that the loop does to the world.
type Effect struct{ Kind, Name string }

// Seam carries out an effect by calling run, once or not at all. It is called from a goroutine of the effect's own; an error
// of its own counts as the effect's failure.
type Seam func(ctx context.Context, effect Effect, run func(context.Context) error) error

// direct is the production seam.
func direct(ctx context.Context, _ Effect, run func(context.Context) error) error { return run(ctx) }
