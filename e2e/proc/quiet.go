package proc

import (
	"context"
	"time"
)

// The machine counts as quiet once it idles for two windows.
const (
	quietWindow = 300 * time.Millisecond
	quietShare  = 0.9
)

// Quiet waits until the machine idles, or until ctx ends: what booting a cluster, or a kernel that takes down namespaces, leaves
// to be done is not what is measured. False says that it is busy with something else.
func Quiet(ctx context.Context) (bool, error) {
	ticker := time.NewTicker(quietWindow)
	defer ticker.Stop()
	before, err := Processors()
	for calm := 0; calm < 2; {
		if err != nil {
			return false, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false, nil
		}
		var now Usage
		if now, err = Processors(); err != nil {
			return false, err
		}
		if now.Idle-before.Idle >= quietShare*(now.All-before.All) {
			calm++
		} else {
			calm = 0
		}
		before = now
	}
	return true, nil
}
