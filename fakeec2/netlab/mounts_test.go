package netlab_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// A root of its own with the machine's programs, a file at a fixed path, and a folder in which things appear later.
func TestMountsAreTheProgramsOwn(t *testing.T) {
	dir, err := os.MkdirTemp("/run/netns", "mounts-") // the test's own tmpfs: nothing is removed there
	if err != nil {
		t.Fatal(err)
	}
	root, shared, within := filepath.Join(dir, "root"), filepath.Join(dir, "shared"), []string{"bin", "lib", "lib64", "usr", "proc"}
	for _, made := range []string{shared, filepath.Join(root, "fixed", "later")} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "fixed", "own"), []byte("own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := netlab.Share(shared); err != nil {
		t.Fatal(err)
	}
	mounts, err := netlab.NewMounts(func() error {
		errs := []error{netlab.Bind(root, root)}
		for _, name := range within {
			if _, err := os.Stat("/" + name); err == nil {
				errs = append(errs, os.MkdirAll(filepath.Join(root, name), 0o755), netlab.Bind("/"+name, filepath.Join(root, name)))
			}
		}
		return errors.Join(append(errs, netlab.Bind(shared, filepath.Join(root, "fixed", "later")), netlab.Root(root))...)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mounts.Close(); err != nil {
			t.Error(err)
		}
	}()
	if left, err := os.ReadDir(filepath.Join(root, "usr")); err != nil || len(left) > 0 {
		t.Errorf("what was mounted inside is seen outside: %v, %v", left, err)
	}
	pod, err := netlab.New(filepath.Join(shared, "pod")) // a mount that comes later
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pod.Close(); err != nil {
			t.Error(err)
		}
	}()
	ns := newNS(t, "inside")
	out, err := output(mounts, ns, "cat /fixed/own; stat -f -c %T /fixed/later/pod; echo /run/* ; readlink /proc/self/ns/net")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var net string
	if err := ns.Do(func() (err error) {
		net, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := "own\nnsfs\n/run/*\n" + net + "\n"; out != want {
		t.Errorf("inside:\n%swant:\n%s", out, want)
	}
	if _, err := os.Stat("/fixed"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("outside /fixed is there: %v", err)
	}
}

func TestAFailureOfBuildIsNewMounts(t *testing.T) {
	cause := errors.New("no room")
	if _, err := netlab.NewMounts(func() error { return cause }); !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
}

func output(m *netlab.Mounts, n *netlab.Namespace, script string) (string, error) {
	var out strings.Builder
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Stdin = strings.NewReader("") // there is no /dev/null
	if err := m.Start(n, cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}
