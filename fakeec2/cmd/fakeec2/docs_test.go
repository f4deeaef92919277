package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

var update = flag.Bool("update", false, "rewrite the generated parts of fakeec2's README (make docs)")

const readme = "../../README.md"

// TestReadme: what stands between the README's markers is what the code says.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for section, body := range map[string]string{
		"world": "```yaml\n" + string(demo) + "```", "scenario": scenarioReference(t), "example": exampleSource(t), "lags": lagTable(t),
		"buckets": bucketTable(), "commands": commandTable(), "drops": dropTable(t), "actions": actionTable(), "types": typeTable(),
	} {
		want = splice(t, want, section, body)
	}
	if *update {
		if err := os.WriteFile(readme, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(want, string(text)); diff != "" {
		t.Errorf("fakeec2/README.md is stale: run `make docs` (-generated +README):\n%s", diff)
	}
}

// splice puts body between <!-- name:begin --> and <!-- name:end -->.
func splice(t *testing.T, text, name, body string) string {
	t.Helper()
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	head, rest, found := strings.Cut(text, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("fakeec2/README.md has no %q ... %q: put the markers back", begin, end)
	}
	return head + begin + strings.TrimSpace(body) + "\n" + end + tail
}

// parsed is a file of Go with its comments.
func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// structsOf gives the structs of a file in its order, with their doc comments.
func structsOf(f *ast.File) (names []string, structs map[string]*ast.StructType, docs map[string]string) {
	structs, docs = map[string]*ast.StructType{}, map[string]string{}
	for _, declaration := range f.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok || general.Tok != token.TYPE {
			continue
		}
		for _, spec := range general.Specs {
			named := spec.(*ast.TypeSpec)
			if s, ok := named.Type.(*ast.StructType); ok {
				names = append(names, named.Name.Name)
				structs[named.Name.Name] = s
				docs[named.Name.Name] = oneLine(cmp.Or(general.Doc.Text(), named.Doc.Text()))
			}
		}
	}
	return names, structs, docs
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// scenarioReference has each field of the decoder's types: name, form and comment. The decoder itself says which there are.
func scenarioReference(t *testing.T) string {
	t.Helper()
	names, structs, docs := structsOf(parsed(t, "../../scenario/scenario.go"))
	var out strings.Builder
	seen := map[string]bool{}
	for _, name := range names {
		kind, decoded := scenarioTypes()[name]
		if !decoded {
			t.Errorf("the scenario's type %s is not reached from Scenario: the decoder would not read it", name)
			continue
		}
		fmt.Fprintf(&out, "**%s** %s\n\n| Field | Form | Meaning |\n|---|---|---|\n", name, strings.TrimPrefix(docs[name], name+" "))
		for _, field := range structs[name].Fields.List {
			if field.Tag == nil {
				continue // not of the file
			}
			goName := field.Names[0].Name
			of, there := kind.FieldByName(goName)
			if !there {
				t.Fatalf("%s.%s is not in the type", name, goName)
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", of.Tag.Get("json"), form(of.Type), oneLine(field.Comment.Text()))
		}
		out.WriteString("\n")
		seen[name] = true
	}
	for name := range scenarioTypes() {
		if !seen[name] {
			t.Errorf("the scenario's type %s is not in the reference", name)
		}
	}
	return out.String()
}

// scenarioTypes are the structs that the decoder reaches.
func scenarioTypes() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(t.Elem())
		case reflect.Struct:
			if t.PkgPath() != reflect.TypeFor[scenario.Scenario]().PkgPath() || all[t.Name()] != nil || t.Name() == "Range" {
				return
			}
			all[t.Name()] = t
			for i := range t.NumField() {
				if t.Field(i).IsExported() {
					walk(t.Field(i).Type)
				}
			}
		default:
		}
	}
	walk(reflect.TypeFor[scenario.Scenario]())
	return all
}

// form is a type in the words of the file.
func form(t reflect.Type) string {
	switch t.String() {
	case "netip.Addr":
		return "address"
	case "netip.Prefix":
		return "network"
	case "scenario.Duration":
		return "duration"
	case "scenario.Range":
		return "range"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return form(t.Elem())
	case reflect.Slice:
		return "list of " + form(t.Elem())
	case reflect.Map:
		return "map of " + form(t.Elem())
	case reflect.Struct:
		return t.Name()
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	default:
		return "number"
	}
}

// exampleSource is the example that go test runs.
func exampleSource(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../ec2api/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(text), "func Example() {\n")
	body, _, closed := strings.Cut(body, "\n}\n")
	if !found || !closed {
		t.Fatal("example_test.go has no Example")
	}
	return "```go\n" + strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:] + "\n```"
}

func lagTable(t *testing.T) string {
	t.Helper()
	_, structs, _ := structsOf(parsed(t, "../../vpc/lags.go"))
	var out strings.Builder
	out.WriteString("| Lag | Default | Meaning |\n|---|---|---|\n")
	defaults, fields := vpc.DefaultLags(), structs["Lags"].Fields.List
	if len(fields) != len(vpc.LagNames()) {
		t.Fatalf("%d fields for %d lags", len(fields), len(vpc.LagNames()))
	}
	for n, name := range vpc.LagNames() {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, scenario.Range(defaults.Get(name)), oneLine(fields[n].Comment.Text()))
	}
	return out.String()
}

func endpoint() *ec2api.Handler { return ec2api.New(ec2api.Options{VPC: vpc.New(vpc.Options{})}) }

// bucketTable groups the actions by their buckets.
func bucketTable() string {
	by := map[fault.Bucket][]string{}
	for _, action := range endpoint().Actions() {
		by[fault.BucketOf(action)] = append(by[fault.BucketOf(action)], action)
	}
	var out strings.Builder
	out.WriteString("| Tokens | Refill a second | Actions |\n|---|---|---|\n")
	for _, b := range slices.SortedFunc(maps.Keys(by), func(a, b fault.Bucket) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.Refill, a.Refill))
	}) {
		fmt.Fprintf(&out, "| %v | %v | %s |\n", b.Size, b.Refill, strings.Join(by[b], ", "))
	}
	return out.String()
}

func commandTable() string {
	var out strings.Builder
	out.WriteString("| Command | What it does | Example, after `--dir DIR` |\n|---|---|---|\n")
	row := func(name, help, example string) {
		if example != "" {
			example = "`" + example + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, oneLine(help), example)
	}
	for _, name := range slices.Sorted(maps.Keys(views())) {
		row(name, views()[name].help, views()[name].example)
	}
	for _, name := range slices.Sorted(maps.Keys(verbs())) {
		row(name, verbs()[name].help, verbs()[name].example)
	}
	return out.String()
}

// dropTable has the reasons for drops, which are the names of the counters.
func dropTable(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("| Counter | Meaning |\n|---|---|\n")
	for _, declaration := range parsed(t, "../../vpc/deliver.go").Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			value := spec.(*ast.ValueSpec)
			if strings.HasPrefix(value.Names[0].Name, "Drop") {
				fmt.Fprintf(&out, "| `%s` | %s |\n", strings.Trim(value.Values[0].(*ast.BasicLit).Value, `"`), oneLine(value.Comment.Text()))
			}
		}
	}
	return out.String()
}

func actionTable() string {
	var out strings.Builder
	out.WriteString("| Action | Parameters of EC2's that are refused by name (UnsupportedOperation) |\n|---|---|\n")
	for _, action := range endpoint().Actions() {
		fmt.Fprintf(&out, "| %s | %s |\n", action, strings.Join(endpoint().Unserved(action), ", "))
	}
	return out.String()
}

func typeTable() string {
	var out strings.Builder
	out.WriteString("| Type | ENIs | IPv4 addresses of an ENI | Cards | Hypervisor | EFA | Branch ENIs |\n|---|---|---|---|---|---|---|\n")
	for _, x := range vpc.New(vpc.Options{}).InstanceTypes() {
		hypervisor := x.Hypervisor
		if x.BareMetal {
			hypervisor = "none (bare metal)"
		}
		efa := ""
		if x.EFA {
			efa = "yes"
		}
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %s | %s | %d |\n", x.Name, x.ENIs, x.IPv4, len(x.Cards), hypervisor, efa, x.Branches)
	}
	return out.String()
}

// TestReadmeFaults: the README's examples of faults are faults.
func TestReadmeFaults(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("`fault add ([^`]*)`").FindAllStringSubmatch(string(text), -1)
	kinds := map[fault.Kind]bool{}
	for _, example := range examples {
		flags := flag.NewFlagSet("fault add", flag.ContinueOnError)
		body := faultAdd(flags)
		if err := flags.Parse(strings.Fields(example[1])); err != nil || flags.NArg() > 0 {
			t.Errorf("%s: %v, left over: %q", example[0], err, flags.Args())
			continue
		}
		for _, f := range body().(faultChange).Add {
			kinds[f.Kind] = true
			if err := errors.Join((&fault.Table{}).Add(f.Rule()), endpoint().CheckFault(f.Rule())); err != nil {
				t.Errorf("%s: %v", example[0], err)
			}
		}
	}
	if len(kinds) != 6 {
		t.Errorf("the README has examples of %v, want one of each kind", kinds)
	}
}
