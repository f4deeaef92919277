package ipamd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

const (
	// keepInterval is the pace of looking whether the socket and the lock are still at their paths: two lstat calls, and each
	// look wakes a processor that may have nothing else to do. Until a removed socket is back, ADDs are refused, and tried again.
	keepInterval = 5 * time.Second
	// listenInterval is how often a socket that cannot be made is tried again: no pod can start meanwhile.
	listenInterval = time.Second
)

// complaints says what is wrong once, not at every look.
type complaints struct {
	log  *slog.Logger
	said string
}

func (c *complaints) say(msg string, err error, args ...any) {
	if trouble := text(err); trouble != c.said {
		c.said = trouble
		if err != nil {
			c.log.Error(msg, append([]any{"err", err}, args...)...)
		}
	}
}

// keepLock makes the lock file again where somebody removed it (a cleaner of /run, say) or where the folder could not be
// written before. Its error says that another daemon has the node now.
func (d *daemon) keepLock(ctx context.Context) error {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	trouble := complaints{log: d.log}
	if d.lock.problem() != "" {
		trouble.say("state folder cannot be used", errors.New(d.lock.problem()), "folder", d.settings.StateDir, "advice", stateAdvice)
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
		trouble.say("state folder cannot be used", err, "folder", d.settings.StateDir, "advice", stateAdvice)
		if restored {
			d.log.Warn("lock file was missing and is made again", "file", d.lock.path)
		}
	}
}

// stateAdvice is for whoever reads that the state cannot be saved.
const stateAdvice = "make the state folder (VPC_CNI_STATE_DIR) writable, or make room on its file system; the daemon keeps trying, " +
	"running pods are not affected, and no pod can start before"

// listen makes the socket. Whatever is in the way (a folder that cannot be written, another server) is complained of and
// tried again: a daemon that ended would do nothing better. Without an error and a listener, ctx has ended.
func (d *daemon) listen(ctx context.Context) *api.Listener {
	tick := time.NewTicker(listenInterval)
	defer tick.Stop()
	trouble := complaints{log: d.log}
	for {
		listener, err := api.Around(d.around).Listen(d.settings.Socket)
		if err == nil {
			return listener
		}
		trouble.say("plugins cannot reach this daemon", err, "socket", d.settings.Socket,
			"advice", "make the socket's folder (VPC_CNI_SOCKET) writable, and remove what is in its way; pods that run are not affected")
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// keepSocket makes the socket again where somebody removed it while the daemon lives.
func (d *daemon) keepSocket(ctx context.Context, listener *api.Listener) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	trouble := complaints{log: d.log}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		restored, err := listener.Restore()
		if restored {
			d.log.Warn("socket file was removed and is made again", "file", d.settings.Socket)
		}
		trouble.say("plugins cannot reach this daemon", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
