package netns

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vpc-cni/vpc-cni/e2e/assets"
)

// BinVar names a folder that has every program already, newly built; what builds them (the Makefile) sets it.
const BinVar = "E2E_BIN"

// Programs are the packages of the programs that a cluster runs, below the module.
func programs() []string {
	return []string{
		"./cni/cmd/aws-cni", "./ipamd/cmd/ipamd", "./fakeec2/cmd/fakeec2",
		"./e2e/cmd/controlplane", "./e2e/cmd/sandbox", "./e2e/cmd/policygate",
	}
}

// Prepare builds what a cluster runs, where the environment does not name it, and puts it into the environment (BinVar and
// KUBEBUILDER_ASSETS). It belongs before netlab.Isolate: a first build may need the network.
func Prepare(ctx context.Context, out io.Writer) error {
	if err := given(); err != nil {
		return err
	}
	if os.Getenv(BinVar) != "" && os.Getenv(assets.Var) != "" {
		return nil // then not even the module is needed
	}
	if err := assets.Prepare(ctx, out); err != nil {
		return err
	}
	if os.Getenv(BinVar) != "" {
		return nil
	}
	root, err := assets.Root()
	if err != nil {
		return err
	}
	bin := filepath.Join(root, "build", "bin")
	show := &progress{out: out}
	err = show.step(ctx, "build programs", func(ctx context.Context) error {
		// Always asked for: the go command knows what is up to date, and stale programs make lying tests.
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags", "-s -w", "-o", bin + "/"}, programs()...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = out
		return cmd.Run()
	})
	if err != nil {
		return err
	}
	if err := os.Setenv(BinVar, bin); err != nil {
		return fmt.Errorf("set %s: %w", BinVar, err)
	}
	return nil
}

// given checks the programs that the environment names, and makes their folder's path absolute: tests run elsewhere.
func given() error {
	dir := os.Getenv(BinVar)
	if dir == "" {
		return nil
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("use %s=%s: %w", BinVar, dir, err)
	}
	for _, program := range programs() {
		if _, err := os.Stat(filepath.Join(absolute, filepath.Base(program))); err != nil {
			return fmt.Errorf("use %s=%s: %w", BinVar, dir, err)
		}
	}
	if err := os.Setenv(BinVar, absolute); err != nil {
		return fmt.Errorf("set %s: %w", BinVar, err)
	}
	return nil
}
