package ipamd_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever stands where the daemon keeps its files, pods start.
func TestPodsStartWhateverStandsAtTheDaemonsPaths(t *testing.T) {
	for name, put := range map[string]func(w *world) error{
		"state is a folder":         func(w *world) error { return os.MkdirAll(filepath.Join(w.dir, "state/state.json/x"), 0o755) },
		"new state is a folder":     func(w *world) error { return os.MkdirAll(filepath.Join(w.dir, "state/state.json.new/x"), 0o755) },
		"records' folder is a file": func(w *world) error { return os.WriteFile(filepath.Join(w.dir, "pending-del"), []byte("x"), 0o600) },
		"a record is a pipe": func(w *world) error {
			w.check(os.MkdirAll(filepath.Join(w.dir, "pending-del"), 0o700))
			return syscall.Mkfifo(filepath.Join(w.dir, "pending-del/x"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.check(put(w))
			w.start()
			p := w.add("a")
			_ = w.end(syscall.SIGKILL)
			w.start()
			w.check(w.cniCheck(p))
			w.reaches(p, ec2Addr+":80")
		})
	}
}

func TestRemovedPathsComeBackUnderALiveDaemon(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add("a")
	w.check(os.RemoveAll(filepath.Join(w.dir, "state")))
	w.check(os.Remove(w.socket()))
	w.await("socket", func() bool { return w.status() == nil })
	w.await("lock", func() bool { _, err := os.Stat(filepath.Join(w.dir, "state/ipamd.lock")); return err == nil })
	w.reaches(w.add("b"), ec2Addr+":80")

	first, ended := w.daemon, w.ended
	w.launch()
	w.await("a second daemon waits", func() bool {
		log, err := os.ReadFile(w.log.Name())
		return err == nil && strings.Contains(string(log), "waiting for another daemon")
	})
	w.check(first.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil {
		t.Errorf("first daemon ended with %v", err)
	}
	w.await("the second daemon serves", func() bool { return w.status() == nil })
	w.check(w.cniCheck(p))
}

// A plugin was stopped in the middle of its record: it holds the lock of the records' folder.
func TestFrozenPluginStopsNeitherDELsNorTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add("a")
	_ = w.end(syscall.SIGKILL)
	folder := filepath.Join(w.dir, "pending-del")
	w.check(os.MkdirAll(folder, 0o700))
	frozen, err := os.Open(folder)
	w.check(err)
	defer frozen.Close()
	w.check(syscall.Flock(int(frozen.Fd()), syscall.LOCK_EX))
	began := time.Now()
	w.del(p)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("DEL took %s", took)
	}
	w.start()
	w.reaches(w.add("b"), ec2Addr+":80")
}
