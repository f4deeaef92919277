// Package assets finds the programs of other projects that the harness runs, and builds them from their Go modules where there
// are none: kube-apiserver and etcd, and the incumbent's agent and plugins.
//
// It owns one cache folder, below the user's cache, with a folder for each combination of module versions and Go version.
// It never downloads programs: what is not built is given by the environment (KUBEBUILDER_ASSETS, INCUMBENT_ASSETS). Standard
// library only, so that it starts without compiling anything of Kubernetes. Start with Set; sets.go has the programs.
package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Ensure is ControlPlane().Ensure.
func Ensure(ctx context.Context, module string, out io.Writer) (string, error) {
	return ControlPlane().Ensure(ctx, module, out)
}

// Prepare is ControlPlane().Prepare.
func Prepare(ctx context.Context, out io.Writer) error { return ControlPlane().Prepare(ctx, out) }

// Ensure gives the folder that holds the programs. Module is the folder of the module that pins them; progress is told to out.
// Two callers at once build once; an interrupted build leaves nothing that is taken for a whole one.
func (s Set) Ensure(ctx context.Context, module string, out io.Writer) (string, error) {
	if dir := os.Getenv(s.Var); dir != "" {
		if missing := s.missing(dir); missing != "" {
			return "", fmt.Errorf("use %s=%s: %s is missing there", s.Var, dir, missing)
		}
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	key, err := cacheKey(ctx, module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "vpc-cni", s.folder, key)
	if s.missing(dir) == "" {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	unlock, err := lock(dir+".lock", out)
	if err != nil {
		return "", err
	}
	defer unlock()
	if s.missing(dir) == "" { // another process built it meanwhile
		return dir, nil
	}
	return dir, s.build(ctx, module, dir, out)
}

// Prepare is Ensure for tests: it works from any folder of the main module and puts the result into the environment, where
// who runs the programs looks. It belongs before netlab.Isolate: a first build may need the network.
func (s Set) Prepare(ctx context.Context, out io.Writer) error {
	module := ""
	if os.Getenv(s.Var) == "" { // else not even the module is needed
		root, err := Root()
		if err != nil {
			return err
		}
		module = filepath.Join(root, s.Module)
	}
	dir, err := s.Ensure(ctx, module, out)
	if err != nil {
		return err
	}
	if err := os.Setenv(s.Var, dir); err != nil {
		return fmt.Errorf("set %s: %w", s.Var, err)
	}
	return nil
}

// Root is the folder of the main module, from anywhere below it.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		_, err := os.Stat(filepath.Join(at, "go.mod"))
		if err == nil {
			return at, nil
		}
		if !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			return "", fmt.Errorf("find module: no go.mod in %s or above", dir)
		}
	}
}

// missing is a program that is not in a folder; "" when all are there.
func (s Set) missing(dir string) string {
	for _, p := range s.programs {
		info, err := os.Stat(filepath.Join(dir, p.name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return p.name
		}
	}
	return ""
}

// cacheKey names a combination of module versions and Go version.
func cacheKey(ctx context.Context, module string) (string, error) {
	sums, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("read versions of what %s pins: %w", module, err)
	}
	version, err := goCommand(ctx, module, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, _ = hash.Write(sums) // a hash takes every write
	_, _ = io.WriteString(hash, version)
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// lock waits for the only right to build. The kernel gives it up when its holder ends, however it ends.
func lock(path string, out io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintf(out, "assets: another process is building them; waiting\n")
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		_ = file.Close() // the lock's failure is the one to tell
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// build makes the programs beside their place and moves them there in one step.
func (s Set) build(ctx context.Context, module, dir string, out io.Writer) error {
	pattern := ".building-" + filepath.Base(dir) + "-"
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), pattern+"*"))
	if err != nil {
		return fmt.Errorf("look for interrupted builds: %w", err)
	}
	for _, interrupted := range left { // the lock is ours, so none of them is under way
		if err := os.RemoveAll(interrupted); err != nil {
			return fmt.Errorf("remove interrupted build: %w", err)
		}
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), pattern)
	if err != nil {
		return fmt.Errorf("make build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }() // after a success it has been moved away
	flags, err := s.flags(ctx, module)
	if err != nil {
		return err
	}
	for _, p := range s.programs {
		if err := buildProgram(ctx, p, []string{"build", "-C", module, "-ldflags", flags, "-o", filepath.Join(temporary, p.name), p.path}, out); err != nil {
			return err
		}
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return fmt.Errorf("open build folder: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // an incomplete one, else it would not be built
		return fmt.Errorf("remove incomplete assets: %w", err)
	}
	if err := os.Rename(temporary, dir); err != nil {
		return fmt.Errorf("put assets into place: %w", err)
	}
	return nil
}

// buildProgram builds one program and shows how long it has taken so far.
func buildProgram(ctx context.Context, p program, args []string, out io.Writer) error {
	began := time.Now()
	fmt.Fprintf(out, "assets: building %s from its module (minutes the first time)\n", p.name)
	built := make(chan error, 1)
	go func() {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = out
		built <- cmd.Run()
	}()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-built:
			if err != nil {
				return fmt.Errorf("build %s: %w", p.name, err)
			}
			fmt.Fprintf(out, "assets: built %s in %s\n", p.name, time.Since(began).Round(time.Second))
			return nil
		case <-ticker.C:
			fmt.Fprintf(out, "assets: still building %s, %s\n", p.name, time.Since(began).Round(time.Second))
		}
	}
}

// progressEvery is often enough to show that the build lives, and rare enough not to fill a screen.
const progressEvery = 15 * time.Second

func goCommand(ctx context.Context, module string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run go %s in %s: %w", strings.Join(args, " "), module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
