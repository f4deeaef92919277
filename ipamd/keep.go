package ipamd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// keepInterval is the pace of looking whether the socket and the lock are still at their paths: two lstat calls. Until a
// removed lock is back, a second daemon could start.
const keepInterval = time.Second

// keepPaths makes the socket and the lock file again where somebody removed them (a cleaner of /run, say) while the daemon
// lives. Its error says that another daemon has the node now.
func (d *daemon) keepPaths(ctx context.Context, listener *api.Listener) error {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	said := map[string]string{}
	complain := func(msg string, err error) { // once, not at every tick
		if trouble := text(err); trouble != said[msg] {
			said[msg] = trouble
			if err != nil {
				d.log.Error(msg, "err", err)
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		restored, err := d.lock.restore()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("another daemon of this node has started: %w", err)
		}
		complain("a second daemon would not be kept out", err)
		if restored {
			d.log.Warn("lock file was removed and is made again", "file", d.lock.path)
		}
		restored, err = listener.Restore()
		if restored {
			d.log.Warn("socket file was removed and is made again", "file", d.settings.Socket)
		}
		complain("plugins cannot reach this daemon", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
