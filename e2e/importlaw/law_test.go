package importlaw

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/vpc-cni/vpc-cni/"

// A rule speaks of the packages of this project that begin with Under.
type rule struct {
	under  string
	reason string
	// may lists all project packages (prefixes) that these packages may import; nil: any.
	may []string
	// stdlib allows nothing beyond the standard library (and what may lists).
	stdlib bool
	// never lists prefixes that may not be imported.
	never []string
}

var law = []rule{
	{under: "ipamd/api", stdlib: true, may: []string{}, reason: "the plugin pays for each import at every exec"},
	{under: "ipamd/pool", stdlib: true, may: []string{}, reason: "decisions are pure"},
	{under: "fakeec2/vpc", stdlib: true, may: []string{}, reason: "laws are pure"},
	{under: "cni", may: []string{"cni", "ipamd/api"}, never: []string{"net/http", "k8s.io/", "github.com/aws/", "google.golang.org/grpc", "github.com/prometheus/"},
		reason: "the plugin is exec'd per pod and adds no policy"},
	{under: "ipamd/reconcile", may: []string{"ipamd/pool"}, reason: "the loop knows its surroundings by interfaces only"},
	{under: "ipamd/cloud", may: []string{"ipamd/pool"}, reason: "adapters see one core package"},
	{under: "ipamd/hostnet", may: []string{"ipamd/pool", "ipamd/api"}, reason: "adapters see one core package, and the constants of api"},
	{under: "ipamd/store", may: []string{"ipamd/pool"}, reason: "adapters see one core package"},
	{under: "ipamd/annotate", may: []string{"ipamd/pool"}, reason: "adapters see one core package"},
	{under: "ipamd/kube", may: []string{}, reason: "adapters never see each other"},
	{under: "ipamd/config", may: []string{}, reason: "settings know nobody"},
	{under: "ipamd/introspect", may: []string{}, reason: "introspection is given values"},
	{under: "ipamd/install", may: []string{}, reason: "files on the node only"},
	{under: "fakeec2/fault", stdlib: true, may: []string{}, reason: "a table"},
	{under: "fakeec2/ec2api", may: []string{"fakeec2/vpc", "fakeec2/fault"}, reason: "adapters see one core package, and the fault table"},
	{under: "fakeec2/imds", may: []string{"fakeec2/vpc", "fakeec2/fault"}, reason: "adapters see one core package, and the fault table"},
	{under: "fakeec2/dataplane", may: []string{"fakeec2/vpc", "fakeec2/netlab"}, reason: "adapters see one core package, and the namespace kit"},
	{under: "fakeec2/scenario", may: []string{"fakeec2/vpc", "fakeec2/fault"}, reason: "a scenario describes a world of the model"},
	{under: "fakeec2/netlab", may: []string{}, reason: "the kit knows nothing of AWS"},
}

// general rules: who may import a library at all.
var importers = []struct {
	library string
	only    []string
}{
	{"github.com/aws/", []string{"ipamd/cloud"}},
	{"k8s.io/", []string{"ipamd/annotate", "ipamd/kube", "e2e/"}},
	{"github.com/onsi/", []string{"e2e/suites"}},
	{module + "fakeec2/", []string{"fakeec2/", "e2e/"}},
	{module + "e2e/", []string{"e2e/"}},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
	if len(all) < 15 {
		t.Fatalf("go list found %d packages: the law would prove nothing", len(all))
	}
	return all
}

func isUnder(path, prefix string) bool {
	return path == strings.TrimSuffix(prefix, "/") || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
}

func isStdlib(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestEveryPackageKeepsTheLaw(t *testing.T) {
	for _, p := range packages(t) {
		for _, r := range law {
			for _, broken := range violations(p, r) {
				t.Error(broken)
			}
		}
		for _, general := range importers {
			for _, imported := range p.Imports {
				if strings.HasPrefix(imported, general.library) && !slices.ContainsFunc(general.only, func(who string) bool { return isUnder(p.ImportPath, who) }) {
					t.Errorf("%s imports %s: only %v may", p.ImportPath, imported, general.only)
				}
			}
		}
	}
}

// Every rule catches an import that it forbids.
func TestEveryRuleCanBeBroken(t *testing.T) {
	for _, r := range law {
		for _, forbidden := range []string{module + "ipamd", "example.org/library", "net/http"} {
			planted := pkg{ImportPath: r.under, Imports: []string{forbidden}}
			wanted := forbidden == module+"ipamd" || forbidden == "example.org/library" && r.stdlib || slices.Contains(r.never, forbidden)
			if caught := len(violations(planted, r)) > 0; caught != wanted {
				t.Errorf("%s importing %s: caught %t, want %t", r.under, forbidden, caught, wanted)
			}
		}
	}
}

// violations are the imports by which a package breaks a rule.
func violations(p pkg, r rule) (broken []string) {
	if !isUnder(p.ImportPath, r.under) {
		return nil
	}
	add := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, imported := range p.Imports {
		own, inProject := strings.CutPrefix(imported, module)
		switch {
		case inProject && r.may != nil && !isUnder(own, r.under) && !slices.ContainsFunc(r.may, func(m string) bool { return isUnder(own, m) }):
			add("%s imports %s: %s", p.ImportPath, own, r.reason)
		case !inProject && r.stdlib && !isStdlib(imported):
			add("%s imports %s, which is not the standard library: %s", p.ImportPath, imported, r.reason)
		case slices.ContainsFunc(r.never, func(n string) bool { return strings.HasPrefix(imported+"/", n) || imported == n }):
			add("%s imports %s: %s", p.ImportPath, imported, r.reason)
		}
	}
	return broken
}

// Each rule must speak of a package that exists: a law for a package that was renamed proves nothing.
func TestEveryRuleHasAPackage(t *testing.T) {
	all := packages(t)
	for _, r := range law {
		if !slices.ContainsFunc(all, func(p pkg) bool { return isUnder(p.ImportPath, r.under) }) {
			t.Errorf("no package below %s: the rule is about nothing", r.under)
		}
	}
}
