package ipamd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// orderlyEnd has a daemon that is told to end, as kubelet does, and another after it.
func (f *fire) orderlyEnd() error {
	_ = f.daemon.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-f.ending():
	case <-ctx.Done():
		return errors.New("the daemon does not end on SIGTERM")
	}
	_, err := os.Lstat(f.socket())
	f.launch()
	if err == nil && f.unfired() {
		return errors.Join(errors.New("a daemon that has ended leaves its socket"), f.ready())
	}
	return f.ready()
}

// unfired tells that no order has killed the daemon.
func (f *fire) unfired() bool { _, fired := f.daemonRole.Fired(); return !fired }

// lostFiles has a cleaner of /run that removes the daemon's lock file and socket.
func (f *fire) lostFiles() error {
	paths := []string{filepath.Join(f.dir, "state", "ipamd.lock"), f.socket()}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // a daemon that is dead had none
			return err
		}
	}
	err := f.until("lock file and socket are made again", func() bool {
		for _, path := range paths {
			if _, err := os.Lstat(path); err != nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return f.pass("found-again")
}
