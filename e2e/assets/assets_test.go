package assets

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// place makes a folder that looks built.
func place(t *testing.T, dir string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/true\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

const module = "../controlplane"

func TestAGivenFolderIsTaken(t *testing.T) {
	dir := t.TempDir()
	place(t, dir, "etcd", "kube-apiserver")
	t.Setenv(Var, dir)
	got, err := Ensure(context.Background(), module, io.Discard)
	if err != nil || got != dir {
		t.Errorf("Ensure = %q, %v, want %q", got, err, dir)
	}
}

func TestAGivenFolderThatIsIncompleteIsNamed(t *testing.T) {
	dir := t.TempDir()
	place(t, dir, "etcd")
	t.Setenv(Var, dir)
	if _, err := Ensure(context.Background(), module, io.Discard); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error = %v, want one that names %s", err, dir)
	}
}

func TestWhatIsCachedIsNotBuiltAgain(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(Var, "")
	t.Setenv("XDG_CACHE_HOME", cache)
	key, err := cacheKey(context.Background(), module)
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(cache, "vpc-cni", "assets", key)
	place(t, want, "etcd", "kube-apiserver")
	got, err := Ensure(context.Background(), module, io.Discard)
	if err != nil || got != want {
		t.Errorf("Ensure = %q, %v, want %q", got, err, want)
	}
}

// A second builder waits for the first and then takes what it built.
func TestTwoAtOnceBuildOnce(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(Var, "")
	t.Setenv("XDG_CACHE_HOME", cache)
	key, err := cacheKey(context.Background(), module)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "vpc-cni", "assets", key)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(dir+".lock", io.Discard) // the first builder
	if err != nil {
		t.Fatal(err)
	}
	waiting, out := io.Pipe()
	got := make(chan error, 1)
	go func() {
		_, err := Ensure(context.Background(), module, out)
		got <- err
	}()
	if _, err := io.ReadAtLeast(waiting, make([]byte, 256), 1); err != nil { // it has said that it waits
		t.Fatal(err)
	}
	place(t, dir, "etcd", "kube-apiserver")
	unlock()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the second builder still waits, or builds")
	}
}

// The incumbent's programs have a variable and a folder of the cache of their own.
func TestTheIncumbentIsASetOfItsOwn(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv(Var, t.TempDir()) // the other set's
	t.Setenv(IncumbentVar, "")
	const module = "../incumbent"
	key, err := cacheKey(context.Background(), module)
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(cache, "vpc-cni", "incumbent", key)
	place(t, want, "aws-k8s-agent", "routed-eni-cni-plugin", "egress-cni-plugin", "portmap", "grpc-health-probe")
	if got, err := Incumbent().Ensure(context.Background(), module, io.Discard); err != nil || got != want {
		t.Errorf("Ensure = %q, %v, want %q", got, err, want)
	}
	dir := t.TempDir()
	place(t, dir, "aws-k8s-agent")
	t.Setenv(IncumbentVar, dir)
	if _, err := Incumbent().Ensure(context.Background(), module, io.Discard); err == nil || !strings.Contains(err.Error(), IncumbentVar+"="+dir) {
		t.Errorf("error = %v, want one that names %s and %s", err, IncumbentVar, dir)
	}
}

func TestTheServerIsStampedWithItsModulesVersion(t *testing.T) {
	flags, err := versionFlags(context.Background(), module)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"k8s.io/component-base/version.gitVersion=v1.", "k8s.io/client-go/pkg/version.gitMajor=1"} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q lack %q", flags, want)
		}
	}
}
