package ipamd_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// folderTrouble is a state folder that cannot be written, and how it heals.
type folderTrouble struct {
	begin, heal func(w *world)
}

func folderTroubles() map[string]folderTrouble {
	return map[string]folderTrouble{
		"read-only": {
			begin: func(w *world) { w.mount(syscall.MS_BIND); w.remount(syscall.MS_RDONLY) },
			heal:  func(w *world) { w.remount(0) },
		},
		"no space": {
			begin: func(w *world) {
				w.check(os.MkdirAll(w.stateDir(), 0o755))
				old, err := os.ReadFile(w.statePath())
				w.check(syscall.Mount("tmpfs", w.stateDir(), "tmpfs", 0, "size=64k"))
				w.t.Cleanup(func() { _ = syscall.Unmount(w.stateDir(), syscall.MNT_DETACH) })
				if err == nil {
					w.check(os.WriteFile(w.statePath(), old, 0o600))
				}
				_ = os.WriteFile(filepath.Join(w.stateDir(), "filler"), make([]byte, 1<<20), 0o600)
			},
			heal: func(w *world) { w.check(os.Remove(filepath.Join(w.stateDir(), "filler"))) },
		},
		"a link to nowhere": {
			begin: func(w *world) {
				w.check(os.RemoveAll(w.stateDir()))
				w.check(os.Symlink(filepath.Join(w.dir, "later"), w.stateDir()))
			},
			heal: func(w *world) { w.check(os.Mkdir(filepath.Join(w.dir, "later"), 0o755)) },
		},
	}
}

func (w *world) mount(flags uintptr) {
	w.t.Helper()
	w.check(os.MkdirAll(w.stateDir(), 0o755))
	w.check(syscall.Mount(w.stateDir(), w.stateDir(), "", flags, ""))
	w.t.Cleanup(func() { _ = syscall.Unmount(w.stateDir(), syscall.MNT_DETACH) })
}

// remount sets what a bind mount allows, beside what its tmpfs was mounted with.
func (w *world) remount(flags uintptr) {
	w.t.Helper()
	w.check(syscall.Mount("", w.stateDir(), "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_NOSUID|syscall.MS_NODEV|flags, ""))
}

// B15. The daemon stays up and says what to do; ADD is refused, CHECK and DEL are served, pods run; when the folder can be
// written again, ADD is served without a restart.
func TestB15StateFolderThatCannotBeWritten(t *testing.T) {
	for name, trouble := range folderTroubles() {
		t.Run(name+" while the daemon runs", func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, true)
			w.start()
			a, b := w.add("a"), w.add("b")
			trouble.begin(w)
			w.refusesADD("c")
			w.live(a)
			w.within(soon, "DEL", func() { w.del(b) })
			w.assigned("1")

			// A restart changes nothing.
			_ = w.end(syscall.SIGKILL)
			w.startTroubled()
			w.live(a)
			w.refusesADD("d")
			w.showsTrouble()

			trouble.heal(w)
			w.addSoon("e", a)
			w.await("STATUS is well", func() bool { return w.statusCode() == 0 })
			w.await("no trouble is shown", func() bool {
				text := w.page("metrics.sock", "/metrics")
				return strings.Contains(text, `vpccni_state_trouble{kind="save"} 0`) && strings.Contains(text, `vpccni_state_trouble{kind="lock"} 0`)
			})
			_ = w.end(syscall.SIGKILL)
			w.start()
			w.live(a)
		})
		t.Run(name+" from the start", func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, true)
			trouble.begin(w)
			w.startTroubled()
			w.refusesADD("a")
			w.showsTrouble()
			trouble.heal(w)
			w.live(w.addSoon("b"))
			w.await("STATUS is well", func() bool { return w.statusCode() == 0 })
		})
	}
}

// startTroubled starts the daemon and waits until it can say what is wrong.
func (w *world) startTroubled() {
	w.t.Helper()
	w.launch()
	w.await("STATUS says what is wrong", func() bool {
		err := w.status()
		return err != nil && strings.Contains(err.Error(), "state cannot be saved") && strings.Contains(err.Error(), "VPC_CNI_STATE_DIR")
	})
	if got := w.statusCode(); got != api.CodeNotAvailable {
		w.t.Errorf("STATUS: code %d", got)
	}
	w.await("the configuration", func() bool { _, err := os.Stat(filepath.Join(w.dir, "net.d/10-aws.conflist")); return err == nil })
}

// refusesADD fails the test unless ADD is refused at once, with what to do, and leaves nothing.
func (w *world) refusesADD(name string) {
	w.t.Helper()
	p := w.sandbox(name)
	w.within(soon, "the refusal", func() {
		err := w.tryAdd(p)
		if code(err) != api.CodeTryAgain || !strings.Contains(err.Error(), w.stateDir()) || !strings.Contains(err.Error(), "make the state folder") {
			w.t.Errorf("ADD: code %d: %v", code(err), err)
		}
	})
	w.del(p) // as runtimes do after an ADD that failed
}

func (w *world) showsTrouble() {
	w.t.Helper()
	w.shows("metrics.sock", "/metrics", `vpccni_state_trouble{kind="save"} 1`)
	w.shows("introspection.sock", "/v1/status", "write state file: ")
	if !w.logged("level=ERROR", "state not saved", w.stateDir()) {
		w.t.Error("the log does not say that the state cannot be saved")
	}
	if n := strings.Count(w.logText(), "state folder cannot be used"); n > 2 { // once in each life
		w.t.Errorf("it is complained of %d times", n)
	}
}

// A second daemon is kept out all the same where there is no lock file, and takes over when the first ends.
func TestTwoDaemonsAreKeptApartWithoutALockFile(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true)
	trouble := folderTroubles()["read-only"]
	trouble.begin(w)
	w.startTroubled()
	if !w.logged("level=ERROR", "state folder cannot be used", "ipamd.lock", "make the state folder") {
		t.Error("the log does not say what to do")
	}
	w.shows("metrics.sock", "/metrics", `vpccni_state_trouble{kind="lock"} 1`)
	first := w.second()
	w.check(first.process.Signal(syscall.SIGTERM))
	w.check(first.wait(w))
	w.await("the second daemon serves", func() bool { return w.statusCode() == api.CodeNotAvailable })
	trouble.heal(w)
	w.await("lock file", func() bool { _, err := os.Stat(filepath.Join(w.stateDir(), "ipamd.lock")); return err == nil })
	w.await("STATUS is well", func() bool { return w.statusCode() == 0 })
	w.addSoon("a")
}

// A file in the folder's place is put aside, also under a live daemon.
func TestFileInThePlaceOfTheStateFolder(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true)
	file := func() { w.check(os.WriteFile(w.stateDir(), []byte("x"), 0o600)) }
	file()
	w.start()
	a := w.addSoon("a")
	w.check(os.RemoveAll(w.stateDir()))
	file()
	w.await("the folder is back", func() bool { _, err := os.Stat(filepath.Join(w.stateDir(), "ipamd.lock")); return err == nil })
	b := w.addSoon("b", a)
	_ = w.end(syscall.SIGKILL)
	w.start()
	w.live(a, b)
	if text, err := os.ReadFile(w.stateDir() + ".unreadable-2"); err != nil || string(text) != "x" {
		t.Errorf("put aside: %q, %v", text, err)
	}
}

// The usual place of the socket is the state folder too: where that cannot be written, plugins find no daemon. It stays up,
// DEL succeeds, and when the folder can be written, the socket is there within a second.
func TestSocketFolderThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true)
	for i, setting := range w.env {
		if strings.HasPrefix(setting, "VPC_CNI_SOCKET=") {
			w.env[i] = "VPC_CNI_SOCKET=" + filepath.Join(w.stateDir(), "cni.sock")
		}
	}
	w.check(os.MkdirAll(w.stateDir(), 0o755))
	w.check(os.Symlink(filepath.Join(w.stateDir(), "cni.sock"), filepath.Join(w.dir, "cni.sock"))) // where the world looks
	w.start()
	a, b := w.add("a"), w.add("b")
	_ = w.end(syscall.SIGTERM)
	trouble := folderTroubles()["read-only"]
	trouble.begin(w)
	w.del(a)
	w.launch()
	w.await("it says so", func() bool { return w.logged("level=ERROR", "plugins cannot reach this daemon", "VPC_CNI_SOCKET") })
	w.within(soon, "DEL", func() { w.del(a) })
	w.reaches(b, ec2Addr+":80")
	select {
	case err := <-w.ended:
		t.Fatalf("the daemon ended: %v", err)
	case <-time.After(2 * time.Second): // a few looks
	}
	trouble.heal(w)
	w.await("socket", func() bool { return w.statusCode() == 0 && w.status() == nil })
	w.live(b)
	w.addSoon("c", b)
}
