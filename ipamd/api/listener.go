package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// socketMode lets root and root's group connect; peer credentials are checked on top of it.
const socketMode = 0o660

// Listener is the daemon's unix socket.
type Listener struct {
	path   string
	around Around

	mu     sync.Mutex
	socket *net.UnixListener
	file   fs.FileInfo // what was made at path, so that Close removes only that
	closed bool
}

// Listen makes the socket at path, and its folder. The socket file of a dead server is replaced; a live server's is not,
// nor is anything that is not a socket. The socket appears at path with its final mode, in one rename.
func (a Around) Listen(path string) (*Listener, error) {
	l := &Listener{path: path, around: a}
	if err := l.listen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Listen is Around's Listen with nothing around the changes of files.
func Listen(path string) (*Listener, error) { return Around(nil).Listen(path) }

// listen makes the socket at the path.
func (l *Listener) listen() error {
	path := l.path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make socket folder: %w", err)
	}
	if err := refuseLive(path); err != nil {
		return err
	}
	temporary := path + ".new"
	var socket *net.UnixListener
	var file fs.FileInfo
	err := l.around.do("socket make", func() (err error) {
		socket, file, err = bind(temporary)
		return err
	})
	if err != nil {
		return err
	}
	if err := l.around.do("socket publish", func() error { return os.Rename(temporary, path) }); err != nil {
		_ = socket.Close()
		return fmt.Errorf("publish socket: %w", err)
	}
	l.socket, l.file = socket, file
	return nil
}

// bind makes a socket that nobody looks for yet, with its final mode.
func bind(temporary string) (*net.UnixListener, fs.FileInfo, error) {
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("remove half-made socket: %w", err)
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("make socket: %w", err)
	}
	socket.SetUnlinkOnClose(false) // it would remove the temporary name
	if err := os.Chmod(temporary, socketMode); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("set mode of socket: %w", err), socket.Close())
	}
	file, err := os.Lstat(temporary)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("look at socket: %w", err), socket.Close())
	}
	return socket, file, nil
}

// Restore makes the socket anew where somebody removed its file, and tells whether it did. Open connections go on.
// It refuses a path that is another server's by now.
func (l *Listener) Restore() (restored bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, nil
	}
	if file, err := os.Lstat(l.path); err == nil && os.SameFile(file, l.file) {
		return false, nil
	}
	old := l.socket
	if err := l.around.do("socket restore", l.listen); err != nil {
		return false, err
	}
	_ = old.Close() // wakes accept, which goes on with the new one
	return true, nil
}

// accept waits for the next connection. The error is net.ErrClosed after Close.
func (l *Listener) accept() (*net.UnixConn, error) {
	for {
		l.mu.Lock()
		socket := l.socket
		l.mu.Unlock()
		conn, err := socket.AcceptUnix()
		if err == nil || !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		l.mu.Lock()
		over := l.closed || l.socket == socket
		l.mu.Unlock()
		if over {
			return nil, err
		}
	}
}

// refuseLive reports an error unless path is free or holds a socket that nobody listens on.
func refuseLive(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at socket path: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: the path exists and is not a socket", path)
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("listen on %s: another server answers there", path)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("listen on %s: %w", path, err)
}

// Close stops listening and removes the socket file, unless another server has put its own there.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if file, err := os.Lstat(l.path); err == nil && os.SameFile(file, l.file) {
		if err := l.around.do("socket remove", func() error { return os.Remove(l.path) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("remove socket: %w", err), l.socket.Close())
		}
	}
	if err := l.socket.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close socket: %w", err)
	}
	return nil
}

// peerUID asks the kernel who connected. Source: unix(7), SO_PEERCRED: the credentials are those of connect(2).
func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("reach socket: %w", err)
	}
	var credentials *syscall.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		credentials, optErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, optErr); err != nil {
		return 0, fmt.Errorf("read peer credentials: %w", err)
	}
	return credentials.Uid, nil
}
