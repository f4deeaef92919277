package ipamd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// other is a daemon that is not the world's present one any more.
type other struct {
	process *os.Process
	ended   chan error
	cmd     *exec.Cmd
}

// second starts another daemon beside the present one and waits until it says that it waits. It is the world's daemon then;
// the first is given back.
func (w *world) second() other {
	w.t.Helper()
	first := other{w.daemon.Process, w.ended, w.daemon}
	w.t.Cleanup(func() { _ = first.process.Kill() })
	w.launch()
	w.await("the second daemon waits and says for whom", func() bool {
		return w.logged("level=WARN", "waiting for another daemon of this node to end", "holder="+strconv.Itoa(first.process.Pid))
	})
	return first
}

// wait waits for its end.
func (o other) wait(w *world) error {
	w.t.Helper()
	select {
	case err := <-o.ended:
		return err
	case <-time.After(patience):
		w.t.Fatal("it does not end")
		return nil
	}
}

// freeze stops a process and waits until the kernel has done so.
func (w *world) freeze(process *os.Process) {
	w.t.Helper()
	w.check(process.Signal(syscall.SIGSTOP))
	w.await("the process is frozen", func() bool {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.Pid), "status"))
		w.check(err)
		return strings.Contains(string(text), "State:\tT")
	})
}
