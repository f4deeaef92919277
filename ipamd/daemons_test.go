package ipamd_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
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

// A rolling update that starts the new daemon first. The new one waits and says so; meanwhile the old one serves as ever. When
// it ends, ADDs find no daemon for a moment and are told to try again, or wait in the new one; pods' traffic knows nothing of it.
func TestSecondDaemonWaitsAndTakesOver(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"told to end": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, true)
			w.start()
			a := w.add("a")
			stop := w.pingAll(a)
			first := w.second()
			b := w.addSoon("b", a) // by the first
			if text := w.page("metrics.sock", "/metrics"); !strings.Contains(text, "awscni_add_ip_req_count 2\n") {
				t.Error("the first daemon does not serve its metrics")
			}
			gap := make(chan *pod)
			go func() { gap <- w.addUntilServed("gap") }()
			w.check(first.process.Signal(signal))
			if err := first.wait(w); (err == nil) != (signal == syscall.SIGTERM) {
				t.Errorf("the first daemon ended with %v", err)
			}
			p := <-gap
			w.live(a, b, p)
			w.addSoon("d", a, b, p)
			if n := strings.Count(w.logText(), "waiting for another daemon"); n != 1 {
				t.Errorf("it says %d times within a minute that it waits", n)
			}
			if lost, sent := stop(); lost > 0 || sent == 0 {
				t.Errorf("%d of %d pings were not answered", lost, sent)
			}
		})
	}
}

// addUntilServed repeats an ADD as a kubelet does, on the condition that each refusal says "try again".
func (w *world) addUntilServed(name string) *pod {
	p := w.sandbox(name)
	for deadline := time.Now().Add(patience); ; {
		err := w.tryAdd(p)
		if err == nil {
			return p
		}
		if code(err) != api.CodeTryAgain || time.Now().After(deadline) {
			w.t.Errorf("ADD while daemons change: code %d: %v", code(err), err)
			return p
		}
		w.del(p)
	}
}

// pingAll has the node send to the pod all the time, until the end is asked for, which gives how much of it was not answered.
func (w *world) pingAll(p *pod) (stop func() (lost, sent int)) {
	w.t.Helper()
	var conn net.PacketConn
	w.check(w.node.Do(func() (err error) { conn, err = ping.Listen(); return err }))
	prober := ping.NewProber(conn)
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	train := prober.Start(ctx, p.addr, 10*time.Millisecond)
	return func() (lost, sent int) {
		cancel()
		<-train.Done()
		for wait := 0; train.Result().Failed > 0 && wait < 20; wait++ { // the last answer is on its way
			<-time.After(50 * time.Millisecond)
		}
		w.check(prober.Close())
		result := train.Result()
		return result.Failed, result.Sent
	}
}

// The first daemon is frozen, and even its lock file is gone: the second goes on waiting, for a daemon that may wake up at any
// moment. Plugins are told to try again, DELs are recorded. When the first one wakes, it goes on; when it is killed, the second
// takes over.
func TestSecondDaemonWaitsForAFrozenFirst(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true)
	w.start()
	a, b := w.add("a"), w.add("b")
	stop := w.pingAll(a)
	w.freeze(w.daemon.Process)
	w.check(os.RemoveAll(filepath.Join(w.stateDir(), "ipamd.lock")))
	first := w.second()
	c := w.sandbox("c")
	began := time.Now()
	refused := make(chan error, 1)
	go func() { refused <- w.tryAdd(c) }()
	w.within(15*time.Second, "DEL with a frozen daemon", func() { w.del(b) }) // the plugin waits 10 s for its answer
	if records, err := api.CollectPending(w.socket()); err != nil || len(records) != 1 {
		t.Errorf("recorded deletions: %d, %v", len(records), err)
	}
	select {
	case err := <-refused:
		t.Errorf("ADD ended after %s with %v", time.Since(began), err)
	default:
	}
	w.check(first.process.Signal(syscall.SIGCONT)) // it serves the ADD that waited in its socket, and the DEL
	w.check(<-refused)
	w.live(a, c)
	w.await("the first daemon's lock file is back", func() bool { _, err := os.Stat(filepath.Join(w.stateDir(), "ipamd.lock")); return err == nil })
	if text := w.logText(); strings.Contains(text, "another daemon of this node has started") {
		t.Error("both daemons ran")
	}
	w.assigned("2")

	w.freeze(first.process)
	w.check(first.process.Signal(syscall.SIGKILL))
	_ = first.wait(w)
	w.await("the second daemon serves", func() bool { return w.statusCode() == 0 && w.status() == nil })
	w.live(a, c)
	w.addSoon("d", a, c)
	if records, err := api.CollectPending(w.socket()); err != nil || len(records) != 0 {
		t.Errorf("recorded deletions: %d, %v", len(records), err)
	}
	if lost, sent := stop(); lost > 0 || sent == 0 {
		t.Errorf("%d of %d pings were not answered", lost, sent)
	}
}
