package docs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
)

var update = flag.Bool("update", false, "rewrite the README's generated tables (make docs)")

const readme = "../../README.md"

// The tables between the README's markers are what the code says.
func TestReadmeTables(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for section, table := range map[string]string{"settings": config.Table(), "metrics": introspect.Table()} {
		want = splice(t, want, section, table)
	}
	if *update {
		if err := os.WriteFile(readme, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("README.md is stale: run `make docs` (-generated +README):\n%s", diff)
	}
}

// splice puts body between <!-- name:begin --> and <!-- name:end -->.
func splice(t *testing.T, text, name, body string) string {
	t.Helper()
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	head, rest, found := strings.Cut(text, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("README.md has no %q ... %q: put the markers back", begin, end)
	}
	return head + begin + strings.TrimSpace(body) + "\n" + end + tail
}
