package ipamd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	lockFile = "ipamd.lock"
	// lockName is an abstract socket's (unix(7)): it belongs to the network namespace, the one thing that two daemons would
	// both change, whatever folders they were given.
	lockName = "@vpc-cni/ipamd"
	// lockPoll is how often a second daemon looks whether the first has gone: a blocking flock(2) could not be given up.
	lockPoll = 200 * time.Millisecond
	// lockReminder is how often a daemon that waits says so again. The first of them may be frozen, and only people can help.
	lockReminder = time.Minute
)

// nodeLock keeps a second daemon out of the node while the process lives. It has two parts, both given back by the kernel
// when the process dies. The name, in the node's network namespace, is what counts: nobody can remove it, and it needs no
// folder that can be written. The locked file shows people who has the node, and keeps daemons out that know no names.
type nodeLock struct {
	path   string
	around Around            // restore's
	name   *net.UnixListener // nil where a stranger has it

	asked    time.Time // when the kernel was last asked who has the name
	stranger bool      // what it said

	mu      sync.Mutex
	file    *os.File // nil while the folder cannot be used
	trouble error    // why file is nil
}

// lock takes the node's lock, so that two daemons never work on one node at once (a rolling update may start the new one
// first). It waits for the holder and says so. A folder that cannot be written is no reason to wait: the name keeps others
// out, and restore makes the file when that becomes possible.
func lock(ctx context.Context, folder string, log *slog.Logger) (*nodeLock, error) {
	l := &nodeLock{path: filepath.Join(folder, lockFile)}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	var said time.Time
	for began := time.Now(); ; {
		err := l.take()
		if err == nil {
			return l, nil
		}
		if now := time.Now(); now.Sub(said) >= lockReminder && !errors.Is(err, errMoved) {
			said = now
			l.complain(log, err, began)
		}
		select {
		case <-ctx.Done():
			l.release()
			return nil, fmt.Errorf("wait for lock %s: %w", l.path, ctx.Err())
		case <-tick.C:
		}
	}
}

// complain says what a daemon waits for.
func (l *nodeLock) complain(log *slog.Logger, err error, since time.Time) {
	if errors.Is(err, syscall.EWOULDBLOCK) {
		log.Warn("waiting for another daemon of this node to end", "file", l.path, "holder", l.holder(), "since", since.UTC())
		return
	}
	log.Error("waiting for a lock that keeps a second daemon out", "err", err, "since", since.UTC(),
		"advice", "end the process that has the name, or make the folder writable")
}

// take takes both parts. The error wraps EWOULDBLOCK where another daemon has one of them.
func (l *nodeLock) take() error {
	if err := l.takeName(); errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file, l.trouble = tryLock(l.path); l.trouble == nil {
		return nil
	}
	if l.name == nil || errors.Is(l.trouble, syscall.EWOULDBLOCK) || errors.Is(l.trouble, errMoved) {
		return l.trouble
	}
	return nil
}

// takeName listens on the name, where nobody ever connects but to ask who has it. The error wraps EWOULDBLOCK where
// another daemon has it. A stranger's is as good as none: any process in the node's network namespace may take a name, and
// must not be able to stop the daemon with it.
func (l *nodeLock) takeName() error {
	if l.name != nil {
		return nil
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockName, Net: "unix"})
	if err == nil {
		l.name = socket
		return nil
	}
	if now := time.Now(); now.Sub(l.asked) >= lockReminder { // each question stays in the holder's queue
		uid, _, unknown := nameHolder()
		l.asked, l.stranger = now, unknown == nil && uid != 0 && uid != uint32(os.Geteuid())
	}
	if l.stranger {
		return fmt.Errorf("take name %s: %w", lockName, err)
	}
	return fmt.Errorf("take name %s: %w: %w", lockName, syscall.EWOULDBLOCK, err)
}

// nameHolder asks the kernel who listens on the name: user and process, the latter 0 where it is in another PID namespace.
func nameHolder() (uid uint32, pid int32, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: lockName, Net: "unix"})
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var peer *syscall.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		peer, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, asked); err != nil {
		return 0, 0, err
	}
	return peer.Uid, peer.Pid, nil
}

// errMoved says that the lock file was removed or replaced between its opening and its locking.
var errMoved = errors.New("the lock file was replaced meanwhile")

// tryLock locks the file at once or fails, with EWOULDBLOCK where another process holds it.
func tryLock(path string) (*os.File, error) {
	file, err := openLock(path)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		var same bool
		if same, err = stands(file, path); err == nil && !same {
			err = errMoved
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	mark(file)
	return file, nil
}

// openLock makes the folder and the file. On a file system that is read-only an existing file can be locked all the same.
func openLock(path string) (*os.File, error) {
	folder := filepath.Dir(path)
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EROFS) {
		var readable error
		if file, readable = os.Open(path); readable == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	return file, nil
}

// asides is how many names are tried for what stands in the folder's place.
const asides = 9

// makeFolder makes the state folder. A file in its place is moved aside.
func makeFolder(folder string) error {
	err := os.MkdirAll(folder, 0o755)
	info, look := os.Lstat(folder)
	if err == nil || look != nil || info.IsDir() {
		return named("make state folder", err)
	}
	if info.Mode()&fs.ModeSymlink != 0 { // somebody meant something by it
		target, _ := os.Readlink(folder)
		return fmt.Errorf("make state folder, which is a link to %s: %w", target, err)
	}
	aside := folder + ".unreadable"
	for n := 2; n <= asides; n++ {
		if _, taken := os.Lstat(aside); errors.Is(taken, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s.unreadable-%d", folder, n)
	}
	if moved := os.Rename(folder, aside); moved != nil {
		return fmt.Errorf("make state folder where something else is: %w", errors.Join(err, moved))
	}
	return named("make state folder", os.MkdirAll(folder, 0o755))
}

// stands tells whether the locked file is the one at the path. Only a missing or another file says that it is not: a path
// that cannot be looked at for the moment says nothing.
func stands(file *os.File, path string) (bool, error) {
	ours, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("look at locked file: %w", err)
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at lock file: %w", err)
	}
	return os.SameFile(ours, there), nil
}

// restore locks a new file where there is none (somebody removed it, or the folder could not be written), and tells whether
// it did. The error wraps EWOULDBLOCK if another daemon has the node.
func (l *nodeLock) restore() (restored bool, err error) {
	if err := l.takeName(); errors.Is(err, syscall.EWOULDBLOCK) {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		if there, err := stands(l.file, l.path); there || err != nil {
			return false, err
		}
	}
	var next *os.File
	err = l.around.do("lock restore", func() (err error) {
		next, err = tryLock(l.path)
		return err
	})
	if err != nil {
		l.trouble = err
		return false, err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.trouble = next, nil
	return true, nil
}

// problem says why there is no lock file; "" where there is one.
func (l *nodeLock) problem() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return text(l.trouble)
}

func (l *nodeLock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	if l.name != nil {
		_ = l.name.Close()
	}
}

// mark writes the holder's process id for people; the lock does not depend on it.
func mark(file *os.File) {
	if file.Truncate(0) == nil {
		_, _ = fmt.Fprintf(file, "%d\n", os.Getpid())
	}
}

// holder says for people which process has the lock; "" where nobody knows.
func (l *nodeLock) holder() string {
	if _, pid, err := nameHolder(); err == nil && pid != 0 && l.name == nil {
		return strconv.Itoa(int(pid))
	}
	text, err := os.ReadFile(l.path)
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
