package ipamd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	lockFile = "ipamd.lock"
	// lockPoll is how often a second daemon looks whether the first has gone: a blocking flock(2) could not be given up.
	lockPoll = 200 * time.Millisecond
)

// lock makes the state folder and takes its lock, so that two daemons never work on one node at once (a rolling update may
// start the new one first). It waits for the holder and says so. The kernel gives the lock back when the process dies.
func lock(ctx context.Context, folder string, log *slog.Logger) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	path := filepath.Join(folder, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for waiting := false; ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			mark(file)
			return func() { _ = file.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		case !waiting:
			waiting = true
			log.Warn("waiting for another daemon of this node to end", "file", path, "holder", holder(path))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for lock %s: %w", path, ctx.Err()), file.Close())
		case <-tick.C:
		}
	}
}

// mark writes the holder's process id for people; the lock does not depend on it.
func mark(file *os.File) {
	if file.Truncate(0) == nil {
		_, _ = fmt.Fprintf(file, "%d\n", os.Getpid())
	}
}

func holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// bootIDFile is random(4)'s: a new value at every boot of the kernel.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

func readBootID() (string, error) {
	text, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
