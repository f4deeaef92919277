package crash_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/crash"
)

// folderVar makes this test program one that passes two points twice.
const folderVar = "CRASH_TEST_FOLDER"

func TestMain(m *testing.M) {
	folder := os.Getenv(folderVar)
	if folder == "" {
		os.Exit(m.Run())
	}
	around := crash.Role{Dir: folder, Name: "program"}.Around()
	for range 2 {
		for _, point := range []string{"one", "two"} {
			_ = around(point, func() error { return appendTo(folder+"/done", point+"\n") })
		}
	}
}

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func run(t *testing.T, folder string) (killed bool, done string) {
	t.Helper()
	_ = os.Remove(folder + "/done")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), folderVar+"="+folder)
	err := cmd.Run()
	var exit *exec.ExitError
	killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if err != nil && !killed {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(folder + "/done")
	return killed, string(text)
}

func TestProcessDiesAtItsMoment(t *testing.T) {
	for _, c := range []struct {
		order       crash.Order
		fired, done string
	}{
		{crash.Order{Point: "one", When: crash.Before, Hit: 1}, "before one", ""},
		{crash.Order{Point: "one", When: crash.After, Hit: 1}, "after one", "one\n"},
		{crash.Order{Point: "two", When: crash.Before, Hit: 2}, "before two", "one\ntwo\none\n"},
		{crash.Order{Point: crash.Any, When: crash.Any, Hit: 3}, "before two", "one\n"},
		{crash.Order{Point: "two", When: crash.After, Hit: 3}, "", "one\ntwo\none\ntwo\n"},
	} {
		t.Run(c.order.String(), func(t *testing.T) {
			role := crash.Role{Dir: t.TempDir(), Name: "program"}
			if err := role.Kill(c.order); err != nil {
				t.Fatal(err)
			}
			killed, done := run(t, role.Dir)
			fired, ok := role.Fired()
			if killed != (c.fired != "") || ok != killed || fired.Where != c.fired || done != c.done {
				t.Errorf("killed %t at %v, done %q", killed, fired, done)
			}
			if killed, _ := run(t, role.Dir); killed && c.fired != "" {
				t.Error("one order killed twice")
			}
		})
	}
}

func TestPointsArePassedByName(t *testing.T) {
	role := crash.Role{Dir: t.TempDir(), Name: "program"}
	if killed, done := run(t, role.Dir); killed || done != "one\ntwo\none\ntwo\n" {
		t.Errorf("without an order: killed %t, done %q", killed, done)
	}
	for _, want := range [][]string{{"one", "two"}, {}} {
		if names, err := role.Passed(); err != nil || !slices.Equal(names, want) {
			t.Errorf("passed %q, %v; want %q", names, err, want)
		}
	}
}
