package ipamd_test

import (
	"os"
	"os/exec"
	"strconv"
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
