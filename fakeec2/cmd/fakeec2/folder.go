package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
)

const (
	socketName = "admin.sock" // in the folder given by --dir
	// maxSocketPath is the kernel's limit on the path of a unix socket (unix(7)), without the zero at its end.
	maxSocketPath = 107
)

// socketOf is the path of a folder's admin socket.
func socketOf(dir string) (string, error) {
	path := filepath.Join(dir, socketName)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("use folder %s: the path of its socket has %d characters, and the kernel takes %d: choose a shorter one", dir, len(path), maxSocketPath)
	}
	return path, nil
}

// takeFolder makes the folder this program's own and listens on its admin socket, until the function that it gives is called. What
// a killed program left there, and in namespaces of others, is removed; a folder whose program lives is refused.
func takeFolder(ctx context.Context, dir string) (listener net.Listener, give func(), err error) {
	fail := func(err error) (net.Listener, func(), error) { return nil, nil, err }
	socket, err := socketOf(dir)
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(fmt.Errorf("make folder: %w", err))
	}
	folder, err := os.Open(dir)
	if err != nil {
		return fail(fmt.Errorf("open folder: %w", err))
	}
	// The lock is the folder's own: it needs no file, and goes with the program.
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = folder.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fail(fmt.Errorf("serve in %s: another fakeec2 serves there", dir))
		}
		return fail(fmt.Errorf("lock folder %s: %w", dir, err))
	}
	defer func() {
		if err != nil {
			_ = folder.Close() // and with it the lock
		}
	}()
	if err := dataplane.Sweep(dir); err != nil {
		return fail(fmt.Errorf("clear %s of what a killed program left: %w", dir, err))
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(fmt.Errorf("remove old admin socket: %w", err))
	}
	var config net.ListenConfig
	if listener, err = config.Listen(ctx, "unix", socket); err != nil {
		return fail(fmt.Errorf("listen on admin socket: %w", err))
	}
	return listener, func() {
		_ = listener.Close() // removes the socket
		_ = folder.Close()   // and with it the lock
	}, nil
}
