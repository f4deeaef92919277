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

// nodeLock is the lock of a state folder, held while the process lives.
type nodeLock struct {
	path string
	file *os.File
}

// lock makes the state folder and takes its lock, so that two daemons never work on one node at once (a rolling update may
// start the new one first). It waits for the holder and says so. The kernel gives the lock back when the process dies.
func lock(ctx context.Context, folder string, log *slog.Logger) (*nodeLock, error) {
	path := filepath.Join(folder, lockFile)
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for waiting := false; ; {
		l, err := tryLock(path)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errMoved), errors.Is(err, syscall.EINTR): // again soon
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, err
		case !waiting:
			waiting = true
			log.Warn("waiting for another daemon of this node to end", "file", path, "holder", holder(path))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lock %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}

// errMoved says that the lock file was removed or replaced between its opening and its locking.
var errMoved = errors.New("the lock file was replaced meanwhile")

// tryLock takes the lock at once or fails, with EWOULDBLOCK where another process holds it.
func tryLock(path string) (*nodeLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	l := &nodeLock{path: path, file: file}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		var stands bool
		if stands, err = l.stands(); err == nil && !stands {
			err = errMoved
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	mark(file)
	return l, nil
}

// stands tells whether the locked file is the one at the path. Only a missing or another file says that it is not: a path
// that cannot be looked at for the moment says nothing.
func (l *nodeLock) stands() (bool, error) {
	ours, err := l.file.Stat()
	if err != nil {
		return false, fmt.Errorf("look at locked file: %w", err)
	}
	there, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at lock file: %w", err)
	}
	return os.SameFile(ours, there), nil
}

// restore locks a new file where somebody removed the locked one, and tells whether it did. The error wraps EWOULDBLOCK if
// another daemon was faster.
func (l *nodeLock) restore() (restored bool, err error) {
	if stands, err := l.stands(); stands || err != nil {
		return false, err
	}
	next, err := tryLock(l.path)
	if err != nil {
		return false, fmt.Errorf("make removed lock file again: %w", err)
	}
	l.release()
	l.file = next.file
	return true, nil
}

func (l *nodeLock) release() { _ = l.file.Close() }

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
