package fieldcases

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// all are the cases that the register must have, by number; the gaps are reports that were found to be another's twin.
var all = map[string][]int{
	"A": {1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 15, 17, 18, 19, 20, 21, 22, 23, 25, 27, 28, 29, 30, 31},
	"B": {
		1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 21, 22, 24, 25, 26, 27, 30, 31, 32, 34, 35, 36, 38, 40, 41, 42, 43,
		44, 45, 46, 47, 48, 49, 50, 52, 53, 54, 55, 56, 57, 59, 60, 61, 63, 64, 65, 66, 67, 69, 70, 71, 72, 74, 76,
		78, 79, 80, 81, 83, 84, 85, 87, 88, 89, 90, 92,
	},
}

// parts of the project that may still owe a test.
var parts = []string{"fakeec2", "real clients", "annotation", "engine", "real Kubernetes", "a later feature"}

// entry is one line of the register.
type entry struct {
	section string // "A", "B.1" ...
	tests   []string
	pending string // what is missing, and who brings it; "" where nothing is
	notOurs string // why there is nothing to replay
}

var (
	rowForm  = regexp.MustCompile(`^\| ([AB])(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	testForm = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	caseForm = regexp.MustCompile(`^Test([AB])(\d+)[A-Z]`)
	funcForm = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// register reads cases.md.
func register(t *testing.T, text string) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	section := ""
	for line := range strings.SplitSeq(text, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSuffix(strings.Fields(title)[0], ".")
		}
		if !strings.HasPrefix(line, "| A") && !strings.HasPrefix(line, "| B") {
			continue
		}
		m := rowForm.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a row of four columns: %s", line)
			continue
		}
		name := m[1] + m[2]
		if _, double := entries[name]; double {
			t.Errorf("%s is there twice", name)
		}
		entries[name] = parse(section, m[5])
	}
	return entries
}

func parse(section, column string) entry {
	e := entry{section: section}
	for _, m := range testForm.FindAllStringSubmatch(column, -1) {
		e.tests = append(e.tests, m[1])
	}
	_, e.pending, _ = strings.Cut(column, "pending: ")
	_, e.notOurs, _ = strings.Cut(column, "not ours: ")
	return e
}

// tests are the names of all tests of the tree.
func tests(t *testing.T, root string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			if err == nil && d.IsDir() && slices.Contains([]string{".git", "build", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range funcForm.FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// breaches are what is wrong between a register and a tree's tests.
func breaches(entries map[string]entry, tree map[string]bool) []string {
	var wrong []string
	say := func(parts ...string) { wrong = append(wrong, strings.Join(parts, "")) }
	for kind, numbers := range all {
		for _, n := range numbers {
			if _, ok := entries[kind+strconv.Itoa(n)]; !ok {
				say(kind, strconv.Itoa(n), " is not in the register")
			}
		}
	}
	for name, e := range entries {
		number, _ := strconv.Atoi(name[1:])
		if !slices.Contains(all[name[:1]], number) {
			say(name, " is no case")
		}
		if len(e.tests) == 0 && e.pending == "" && e.notOurs == "" {
			say(name, " has neither a test nor a word why not")
		}
		if e.pending != "" && !slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(e.pending, p) }) {
			say(name, " is pending of ", e.pending, ", which is no part of the project")
		}
		own := slices.ContainsFunc(e.tests, func(test string) bool { return caseOf(test) == name })
		if (e.section == "B.1" || e.section == "B.3") && e.pending == "" && !own {
			say(name, " has no test that is named after it")
		}
		for _, test := range e.tests {
			if !tree[test] {
				say(name, " names ", test, ", which does not exist")
			}
		}
	}
	for test := range tree {
		if of := caseOf(test); of != "" && !slices.Contains(entries[of].tests, test) {
			say(test, " exists, and the line of ", of, " does not name it")
		}
	}
	slices.Sort(wrong)
	return wrong
}

// caseOf is the case that a test is named after; "" for other tests.
func caseOf(test string) string {
	if m := caseForm.FindStringSubmatch(test); m != nil {
		return m[1] + m[2]
	}
	return ""
}

func TestRegisterAndTreeAgree(t *testing.T) {
	text, err := os.ReadFile("cases.md")
	if err != nil {
		t.Fatal(err)
	}
	tree := tests(t, "../..")
	if len(tree) < 100 {
		t.Fatalf("%d tests found: this is not the tree", len(tree))
	}
	for _, wrong := range breaches(register(t, string(text)), tree) {
		t.Error(wrong)
	}
}

// The law itself: each way to break it is told.
func TestEveryBreachIsTold(t *testing.T) {
	text, err := os.ReadFile("cases.md")
	if err != nil {
		t.Fatal(err)
	}
	good := register(t, string(text))
	tree := map[string]bool{}
	for _, e := range good {
		for _, test := range e.tests {
			tree[test] = true
		}
	}
	if wrong := breaches(good, tree); len(wrong) > 0 {
		t.Fatalf("the register itself: %q", wrong)
	}
	for want, change := range map[string]func(entries map[string]entry, tree map[string]bool){
		"B1 is not in the register":                 func(e map[string]entry, _ map[string]bool) { delete(e, "B1") },
		"B4 is no case":                             func(e map[string]entry, _ map[string]bool) { e["B4"] = e["B5"] },
		"B44 has neither a test nor a word why not": func(e map[string]entry, _ map[string]bool) { e["B44"] = entry{} },
		"B44 is pending of luck, which is no part":  func(e map[string]entry, _ map[string]bool) { e["B44"] = entry{pending: "luck"} },
		"B30 has no test that is named after it": func(e map[string]entry, _ map[string]bool) {
			e["B30"] = entry{section: "B.3", tests: []string{"TestObserve"}}
		},
		"which does not exist":                            func(_ map[string]entry, tree map[string]bool) { delete(tree, "TestObserve") },
		"TestA30New exists, and the line of A30 does not": func(_ map[string]entry, tree map[string]bool) { tree["TestA30New"] = true },
	} {
		entries, names := maps.Clone(good), maps.Clone(tree)
		change(entries, names)
		if wrong := strings.Join(breaches(entries, names), "\n"); !strings.Contains(wrong, want) {
			t.Errorf("%q is not told: %q", want, wrong)
		}
	}
}
