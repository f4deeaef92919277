package podnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// netNS is a network namespace that is open. It is opened without the runtime's poller, like the sockets.
type netNS struct {
	path string
	fd   int
}

// ownNetNS leads to the calling thread's namespace.
const ownNetNS = "/proc/thread-self/ns/net"

// errNoNamespace says that a path leads to no namespace (any more).
var errNoNamespace = errors.New("no network namespace")

func openNetNS(path string) (netNS, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil { // before it is opened: opening a pipe would never end
		if errors.Is(err, unix.ENOENT) {
			return netNS{}, errNoNamespace
		}
		return netNS{}, fmt.Errorf("look at namespace %s: %w", path, err)
	}
	if stat.Type != unix.NSFS_MAGIC && stat.Type != unix.PROC_SUPER_MAGIC { // the latter before Linux 3.19
		return netNS{}, errNoNamespace
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return netNS{}, errNoNamespace
	case err != nil:
		return netNS{}, fmt.Errorf("open namespace %s: %w", path, err)
	}
	return netNS{path, fd}, nil
}

// Path is where the namespace was opened.
func (n netNS) Path() string { return n.path }

func (n netNS) close() { _ = unix.Close(n.fd) }

// same tells whether two are one namespace.
func (n netNS) same(other netNS) (bool, error) {
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(n.fd, &a), unix.Fstat(other.fd, &b)); err != nil {
		return false, fmt.Errorf("look at namespace %s: %w", n.path, err)
	}
	return a.Ino == b.Ino && a.Dev == b.Dev, nil
}
