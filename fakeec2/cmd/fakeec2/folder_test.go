package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestFolderIsTakenOverOnlyFromTheDead(t *testing.T) {
	s := start(t, "")
	if err := run(t.Context(), []string{"serve", "--dir", s.dir}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "another fakeec2") {
		t.Errorf("a second server in the same folder: %v", err)
	}
	// What a killed program leaves: a bound namespace and a socket that nobody answers.
	dir := t.TempDir()
	dead, err := netlab.New(filepath.Join(dir, "netns", "node-a"))
	s.check(err)
	t.Cleanup(func() { dead.Close() })
	s.check(os.WriteFile(filepath.Join(dir, socketName), nil, 0o600))
	_, give, err := takeFolder(t.Context(), dir)
	s.check(err)
	if _, err := os.Stat(filepath.Join(dir, "netns", "node-a")); err == nil {
		t.Error("the dead program's namespace stands")
	}
	// One that has not come as far as its socket has the folder, too.
	s.check(os.Remove(filepath.Join(dir, socketName)))
	if _, _, err := takeFolder(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another fakeec2") {
		t.Errorf("a second server that starts at the same time: %v", err)
	}
	give()
	_, give, err = takeFolder(t.Context(), dir)
	s.check(err)
	give()
}

func TestFolderThatCannotBeIsTold(t *testing.T) {
	long, file := filepath.Join(t.TempDir(), strings.Repeat("x", 100)), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"serve --dir " + long:        "choose a shorter one",
		"state --dir " + long:        "choose a shorter one",
		"serve --dir " + file:        "make folder",
		"state --dir " + t.TempDir(): "no world is served in",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("fakeec2 %s: %v, want %q", args, err, want)
		}
	}
}
