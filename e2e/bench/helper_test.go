package bench_test

import (
	"fmt"
	"os"
	"os/exec"
)

// helper is this test's program in another role: a process of its own that a variable describes.
func helper(variable, description string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"="+description)
	cmd.Stderr = os.Stderr
	return cmd, nil
}
