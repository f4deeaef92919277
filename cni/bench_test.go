package cni_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// How much is measured: blocks long against the clock and short against the machine's moods.
const (
	benchBlocks  = 30
	execsInBlock = 10
)

func size(b *testing.B, path string) float64 {
	b.Helper()
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size()) / 1e6
}

// timed runs a command and returns how long it took from exec to exit.
func timed(b *testing.B, cmd *exec.Cmd) time.Duration {
	b.Helper()
	began := time.Now()
	output, err := cmd.Output()
	took := time.Since(began)
	if err != nil {
		b.Fatalf("%v: %s", err, output)
	}
	return took
}

// BenchmarkPlugin sets VERSION, and ADD and DEL with a daemon in this process' memory, beside a Go program that does nothing,
// in turns, so that all see the same machine. e2e/bench has ADD with the real daemon.
func BenchmarkPlugin(b *testing.B) {
	record := figures.Record(b, "plugin")
	bin, err := buildOnce()
	if err != nil {
		b.Fatal(err)
	}
	empty, plugin := filepath.Join(bin, "empty"), filepath.Join(bin, "aws-cni")
	if err := compile(empty, "./testdata/empty"); err != nil {
		b.Fatal(err)
	}
	record.Add(figures.PluginSize, 0, size(b, plugin))
	record.Add(figures.EmptySize, 0, size(b, empty))

	n := newNode(b, "1.0.0")
	sandboxes := make([]sandbox, execsInBlock)
	for i := range sandboxes {
		sandboxes[i] = n.sandbox(fmt.Sprintf("sb%d", i), fmt.Sprintf("web-%d", i))
	}
	pair := func(block int, series figures.Series, cmd *exec.Cmd) {
		nothing := exec.Command(empty)
		nothing.Env, nothing.Stdin = cmd.Env, cmd.Stdin
		if cmd.Stdin != nil {
			nothing.Stdin = strings.NewReader(n.conf("")) // of its own: cmd's is read once
		}
		record.Times(figures.EmptyBeside(series), block, timed(b, nothing))
		record.Times(series, block, timed(b, cmd))
	}
	for block := range benchBlocks {
		for range execsInBlock {
			version := exec.Command(plugin)
			version.Env = []string{"CNI_COMMAND=VERSION"}
			pair(block, figures.Version, version)
		}
		for _, s := range sandboxes {
			pair(block, figures.MemoryADD, n.command("ADD", s, n.conf("")))
		}
		for _, s := range sandboxes {
			pair(block, figures.MemoryDEL, n.command("DEL", s, n.conf("")))
		}
	}
	n.clean()
}
