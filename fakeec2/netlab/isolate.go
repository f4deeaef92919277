package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
)

// insideVar marks the environment of an isolated program and of all that it starts.
const insideVar = "NETLAB_INSIDE"

// signalExit is added to a signal's number to make an exit code, as shells do.
const signalExit = 128

// Main is the body of a TestMain: the package's tests run isolated.
func Main(m *testing.M) {
	Isolate()
	os.Exit(m.Run())
}

// Isolate puts the program into a network, a mount and a PID namespace of its own; it is the first line of main or of
// TestMain. Outside, it executes this program again with the same arguments and standard streams as PID 1 of new namespaces
// (an ordinary user also gets a user namespace in which it is root), passes signals on, and exits with the child's code.
// Inside, it makes the place ready and returns: all mounts are private, /run is an empty tmpfs, /proc shows the new PID
// namespace, lo is up, and the limit of open files is raised as far as allowed. Programs that the isolated one starts are
// inside already, so for them Isolate does nothing.
//
// When the outer program dies, however it dies, the kernel kills PID 1 and with it everything in its PID namespace. PID 1
// does not reap orphans: a wait for "any child" would take exit codes away from os/exec, and zombies vanish with the
// namespace.
//
// Where the machine refuses namespaces, the program says so and exits with code 1; tests are never skipped silently.
func Isolate() {
	if os.Getenv(insideVar) != "" {
		// Only PID 1 prepares; the marker alone means a descendant, for which everything stands.
		if os.Getpid() != 1 {
			return
		}
		if err := prepare(); err != nil {
			fmt.Fprintf(os.Stderr, "netlab: prepare namespaces: %v\n", err)
			os.Exit(1)
		}
		return
	}
	code, err := reexecute()
	if err != nil {
		fmt.Fprintf(os.Stderr, "netlab: this program needs network, mount, PID and (for an ordinary user) user namespaces, and the machine refuses them: %v\n", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// reexecute runs this program again in new namespaces and returns its exit code.
func reexecute() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = namespaces(os.Geteuid(), os.Getegid())

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	// The death signal is bound to the thread that forks, so this thread must live as long as the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in new namespaces: %w", err)
	}
	ended := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case sig := <-signals:
				// The child may have just ended: nothing is left to tell it then.
				_ = cmd.Process.Signal(sig)
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	<-passed
	return exitCode(err)
}

// namespaces describes the namespaces of the child. Ordinary users become root of a user namespace, because only there may
// they have the others.
func namespaces(uid, gid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return attr
}

// exitCode turns the error of Wait into this program's exit code.
func exitCode(err error) (int, error) {
	if err == nil {
		return 0, nil
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 0, fmt.Errorf("wait for isolated program: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalExit + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
