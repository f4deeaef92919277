package awscli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vpc-cni/vpc-cni/e2e/assets"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// What the scripts together must at least have, so that none is lost without a word.
const (
	wantCommands = 180
	wantCodes    = 30
)

// binVar names the folder with the built programs; the Makefile sets it.
const binVar = "E2E_BIN"

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "awscli:", err)
		os.Exit(1)
	}
	netlab.Main(m)
}

// prepare builds the fake where the environment does not name it. It comes before the isolation: a first build may need the network.
func prepare() error {
	bin := os.Getenv(binVar)
	if bin == "" {
		root, err := assets.Root()
		if err != nil {
			return err
		}
		bin = filepath.Join(root, "build", "bin")
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", bin+"/", "./fakeec2/cmd/fakeec2")
		build.Dir, build.Stderr = root, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build fakeec2: %w", err)
		}
		return os.Setenv(binVar, bin)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return fmt.Errorf("use %s: %w", binVar, err)
	}
	return os.Setenv(binVar, bin)
}

// program finds the AWS CLI: Debian's, where it is installed, before whatever else is called "aws". Without one the test is
// skipped only where nobody has promised it: make looks for it first, and CI installs it.
func program(t *testing.T) string {
	t.Helper()
	path := "/usr/bin/aws"
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("aws"); err != nil {
			if os.Getenv("CI") != "" || os.Getenv("MAKELEVEL") != "" {
				t.Fatal("no AWS CLI; as root: apt-get install awscli")
			}
			t.Skip("no AWS CLI; as root: apt-get install awscli")
		}
	}
	version, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --version: %v: %s", path, err, version)
	}
	if !strings.HasPrefix(string(version), "aws-cli/2") {
		t.Fatalf("%s is %s: the scripts know the texts of version 2; as root: apt-get install awscli", path, version)
	}
	t.Logf("%s: %s", path, strings.TrimSpace(string(version)))
	return path
}

// tally is what all scripts have done.
type tally struct {
	mu       sync.Mutex
	commands int
	actions  map[string]bool // commands by name, such as "ec2 create-vpc"
	codes    map[string]bool // error codes whose texts were compared
}

func (c *tally) command(args []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands++
	c.actions[strings.Join(args[:min(2, len(args))], " ")] = true
}

func (c *tally) code(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.codes[code] = true
}

func sorted(set map[string]bool) []string {
	var out []string
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// TestAWSCLI plays all scripts, at the same time.
func TestAWSCLI(t *testing.T) {
	done := &tally{actions: map[string]bool{}, codes: map[string]bool{}}
	aws := program(t)
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	t.Run("scripts", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Files: scripts,
			Setup: func(env *testscript.Env) error {
				done.mu.Lock()
				played++
				done.mu.Unlock()
				return setUp(env, aws)
			},
			Cmds: words(done),
		})
	})
	t.Logf("%d commands of %d kinds: %s", done.commands, len(done.actions), strings.Join(sorted(done.actions), ", "))
	t.Logf("%d error codes: %s", len(done.codes), strings.Join(sorted(done.codes), ", "))
	if played < len(scripts) || t.Failed() {
		return // a part does not make the whole
	}
	if done.commands < wantCommands || len(done.codes) < wantCodes {
		t.Errorf("%d commands and %d error codes, want at least %d and %d", done.commands, len(done.codes), wantCommands, wantCodes)
	}
}
