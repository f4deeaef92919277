package reconcile_test

import "context"

// Changed says yes: the simulated cloud has others at work on it that EC2 tells of late, and every look is a reading.
func (c *simCloud) Changed(context.Context) bool { return true }
