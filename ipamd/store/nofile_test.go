package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// TestWhatIsNoFileIsPutAside puts a folder, a full folder and a pipe where the state or its half-written form belongs.
func TestWhatIsNoFileIsPutAside(t *testing.T) {
	kinds := map[string]func(path string) error{
		"folder":      func(path string) error { return os.MkdirAll(path, 0o755) },
		"full folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o755) },
		"pipe":        func(path string) error { return syscall.Mkfifo(path, 0o600) },
	}
	snap := pool.Snapshot{BootID: "boot", Cooling: nil}
	for kind, put := range kinds {
		for _, name := range []string{"state.json", "state.json.new"} {
			t.Run(kind+" at "+name, func(t *testing.T) {
				folder := t.TempDir()
				s := New(OS{}, filepath.Join(folder, "state.json"))
				for round := range 3 { // an earlier one that was put aside is not in the way
					if err := put(filepath.Join(folder, name)); err != nil && round == 0 {
						t.Fatal(err)
					}
					if name == "state.json" && round == 0 {
						var bad *QuarantinedError
						if _, found, err := s.Load(); found || !errors.As(err, &bad) || bad.MovedTo == "" {
							t.Errorf("Load: %v, %v", found, err)
						}
						continue
					}
					if err := s.Save(snap); err != nil {
						t.Fatalf("Save: %v", err)
					}
					if got, found, err := s.Load(); err != nil || !found || got.BootID != "boot" {
						t.Errorf("Load: %v, %v, %v", got, found, err)
					}
					if name == "state.json" {
						if err := os.Remove(filepath.Join(folder, name)); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		}
	}
}

func TestRemovedFolderIsMadeAgain(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	s := New(OS{}, filepath.Join(folder, "state.json"))
	for range 2 {
		if err := s.Save(pool.Snapshot{BootID: time.Now().String()}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
}
