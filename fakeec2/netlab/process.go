package netlab

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts cmd in the namespace. The child is killed when this program dies (Pdeathsig SIGKILL). The caller waits for
// it with cmd.Wait as usual.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	return n.start(cmd, func() error { return nil })
}

// start is Start on a thread on which enter has been called.
func (n *Namespace) start(cmd *exec.Cmd, enter func() error) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	// The death signal also comes when only the forking thread ends, so a thread of its own stays until the child has ended.
	go func() {
		_ = onNewThread(func() error {
			err := enter()
			if err == nil {
				err = n.startHere(cmd)
			}
			started <- err
			if err == nil {
				awaitEnd(cmd.Process.Pid)
			}
			return nil
		})
	}()
	return <-started
}

func (n *Namespace) startHere(cmd *exec.Cmd) error {
	if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.path, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in namespace %s: %w", n.path, err)
	}
	return nil
}

// awaitEnd returns when the child has ended. It leaves the exit status to cmd.Wait; if that was quicker, the child is
// already unknown here, which is an answer too.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
