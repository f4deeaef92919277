package netlab

import (
	"fmt"
	"os"
	"syscall"
)

// openFiles is the wished limit of open files: a world of 700 pod namespaces keeps several descriptors for each.
const openFiles = 20000

// prepare makes new namespaces habitable. It runs once, in PID 1.
func prepare() error {
	// Without this, mounts made here would appear outside wherever the machine shares its mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs on /run: %w", err)
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return fmt.Errorf("make folder for namespaces: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc (a container that masks parts of /proc forbids it): %w", err)
	}
	raiseOpenFiles()
	own, err := Current()
	if err != nil {
		return err
	}
	defer own.Close()
	return own.loopbackUp()
}

// raiseOpenFiles raises the limit of open files as far as allowed. A refusal is not an error: small worlds work with the
// usual limit. syscall's function rather than x/sys's, because it also makes the new limit the one that children get.
func raiseOpenFiles() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	want := syscall.Rlimit{Cur: max(limit.Cur, openFiles), Max: max(limit.Max, openFiles)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want) == nil {
		return
	}
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Max, Max: limit.Max})
}
