package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Mounts is a handle on a mount namespace, for programs whose paths are fixed.
type Mounts struct {
	file *os.File
}

// NewMounts makes a mount namespace, a copy of the caller's, and runs build in it. Nothing that build mounts comes back; what
// the caller mounts later below one of its shared mounts appears inside. Build may change the root (Root). The namespace is gone
// when the handle is closed and no process is left in it.
func NewMounts(build func() error) (*Mounts, error) {
	var m *Mounts
	err := onNewThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare mounts: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("keep mounts to itself: %w", err)
		}
		// Before build: the new root may be without /proc.
		file, err := os.Open("/proc/thread-self/ns/mnt")
		if err != nil {
			return fmt.Errorf("open mount namespace: %w", err)
		}
		if err := build(); err != nil {
			return errors.Join(err, file.Close())
		}
		m = &Mounts{file: file}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make mount namespace: %w", err)
	}
	return m, nil
}

// Bind shows from, with all that is mounted below it, at to as well; to must be there. It belongs in build.
func Bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// Share makes a folder a mount of its own whose later mounts also appear in copies of the mount namespace.
func Share(dir string) error {
	if err := Bind(dir, dir); err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts below %s: %w", dir, err)
	}
	return nil
}

// Root makes dir, which must be a mount, the root. The old one is out of sight from then on. It is build's last step.
func Root(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	// Both at one place, the old root on top: there needs no folder for it. Source: pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make %s the root: %w", dir, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the old root: %w", err)
	}
	return nil
}

// Start starts cmd in this mount namespace and in the network namespace n, as Namespace.Start does. The program's path and
// folder are those in the mount namespace.
func (m *Mounts) Start(n *Namespace, cmd *exec.Cmd) error {
	return n.start(cmd, func() error {
		// A thread that shares its root with others may not change it.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare root: %w", err)
		}
		if err := unix.Setns(int(m.file.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace: %w", err)
		}
		return nil
	})
}

// Close lets go of the mount namespace.
func (m *Mounts) Close() error { return m.file.Close() }
