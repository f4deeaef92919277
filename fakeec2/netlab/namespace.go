package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// threadNS is the network namespace of the calling thread. /proc/self would be that of the process's first thread.
const threadNS = "/proc/thread-self/ns/net"

// Namespace is a handle on a network namespace. It is safe for use by several goroutines, except for Close.
type Namespace struct {
	file    *os.File
	path    string
	mounted bool // New made the mount at path, so Close removes it

	mu     sync.Mutex
	handle *netlink.Handle // of this package's own calls; made at the first
}

// New makes a network namespace with lo up and binds it to path, whose folders it makes too. The path must be free.
func New(path string) (*Namespace, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of namespace %s: %w", path, err)
	}
	target, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("make mount point of namespace: %w", err)
	}
	target.Close()
	err = onNewThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network: %w", err)
		}
		if err := unix.Mount(threadNS, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		return nil
	})
	if err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("make namespace %s: %w", path, err)
	}
	n, err := Open(path)
	if err != nil {
		return nil, errors.Join(err, unmount(path))
	}
	n.mounted = true
	if err := n.loopbackUp(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Open opens a network namespace that stands: a bind mount, or /proc/<pid>/ns/net.
func Open(path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open namespace: %w", err)
	}
	// Before its bind mount, or after somebody removed that, the path is an empty file: say so here rather than in setns.
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		file.Close()
		return nil, fmt.Errorf("open namespace %s: not a network namespace", path)
	}
	return &Namespace{file: file, path: path}, nil
}

// Current opens the calling thread's network namespace. Its Path is only good in the calling process.
func Current() (*Namespace, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, err := Open(threadNS)
	if err != nil {
		return nil, err
	}
	n.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.FD())
	return n, nil
}

// Path is where the namespace can be opened.
func (n *Namespace) Path() string { return n.path }

// FD is an open descriptor of the namespace, good until Close.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Close lets go of the namespace. If New made it, its mount and file are removed too; the kernel then takes it down as soon
// as no process, socket or other handle is left in it.
func (n *Namespace) Close() error {
	n.mu.Lock()
	if n.handle != nil {
		n.handle.Close()
		n.handle = nil
	}
	n.mu.Unlock()
	err := n.file.Close()
	if n.mounted {
		n.mounted = false
		err = errors.Join(err, unmount(n.path))
	}
	return err
}

func unmount(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove mount point of namespace: %w", err)
	}
	return nil
}

// Do runs f in the namespace, on the calling goroutine, whose thread it locks meanwhile. What f starts with the go
// statement is not in the namespace; sockets that f opens stay in it.
func (n *Namespace) Do(f func() error) error {
	runtime.LockOSThread()
	before, err := unix.Open(threadNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer unix.Close(before)
	if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", n.path, err)
	}
	err = f()
	if back := unix.Setns(before, unix.CLONE_NEWNET); back != nil {
		// The thread stays locked: no other goroutine may ever run on it.
		return errors.Join(err, fmt.Errorf("leave namespace %s: %w", n.path, back))
	}
	runtime.UnlockOSThread()
	return err
}

// Netlink returns a new netlink handle whose sockets are in the namespace. The caller closes it. It serves rtnetlink and
// conntrack. Dumps may be interrupted: see netlink.ErrDumpInterrupted.
func (n *Namespace) Netlink() (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(n.FD()), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink in namespace %s: %w", n.path, err)
	}
	return h, nil
}

// route is the handle of this package's own calls.
func (n *Namespace) route() (*netlink.Handle, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handle == nil {
		h, err := netlink.NewHandleAt(netns.NsHandle(n.FD()), unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("open netlink in namespace %s: %w", n.path, err)
		}
		n.handle = h
	}
	return n.handle, nil
}

// onNewThread runs f on a thread that is thrown away afterwards, so f may change the thread as it likes. It is never the
// process's first thread, which cannot be thrown away and which /proc/self shows to others.
func onNewThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f() // still locked at the goroutine's end: the runtime ends the thread
			return
		}
		err := onNewThread(f)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// Remove removes what New made at path, for one whose maker is gone without Close. A path that is not there is no error.
func Remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace %s: %w", path, err) // EINVAL: it is only a file, no mount
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove mount point of namespace: %w", err)
	}
	return nil
}
