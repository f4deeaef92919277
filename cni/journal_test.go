package cni

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLogIsNotWrittenWhereTheResultGoes(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/proc/self/fd/1", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/proc/thread-self/fd/1": false, link: false, filepath.Join(dir, "log"): true} {
		log, done := conf{logFile: path}.journal()
		if log != nil {
			done()
		}
		if (log != nil) != want {
			t.Errorf("%s: a log is opened: %t", path, log != nil)
		}
	}
}
