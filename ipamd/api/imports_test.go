package api

import (
	"os/exec"
	"strings"
	"testing"
)

// TestStandardLibraryOnly keeps the import law: the plugin pays for every import at each pod's start.
func TestStandardLibraryOnly(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	must(t, err)
	if got := strings.Fields(string(output)); len(got) != 1 {
		t.Errorf("packages beyond the standard library: %q", got)
	}
}
