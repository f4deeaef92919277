package fault_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
)

func table(t *testing.T, rules ...fault.Rule) *fault.Table {
	t.Helper()
	table, err := fault.New(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// ask gives the codes of a run of requests.
func ask(table *fault.Table, action string, values []string) []string {
	var codes []string
	for _, value := range values {
		codes = append(codes, table.Next(action, func(v string) bool { return v == value }).Code)
	}
	return codes
}

func TestRuleHitsTheNthMatchingRequest(t *testing.T) {
	cases := []struct {
		name string
		rule fault.Rule
		want []string // for eni-1, eni-2, eni-1, eni-2, eni-1
	}{
		{"all", fault.Rule{}, []string{"X", "X", "X", "X", "X"}},
		{"first", fault.Rule{Times: 1}, []string{"X", "", "", "", ""}},
		{"second and third", fault.Rule{First: 2, Times: 2}, []string{"", "X", "X", "", ""}},
		{"from the fourth on", fault.Rule{First: 4}, []string{"", "", "", "X", "X"}},
		{"second of a resource", fault.Rule{Resource: "eni-1", First: 2, Times: 1}, []string{"", "", "X", "", ""}},
		{"another action", fault.Rule{Action: "Other"}, []string{"", "", "", "", ""}},
		{"off", fault.Rule{Off: true}, []string{"", "", "", "", ""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.rule.Name, c.rule.Kind, c.rule.Code = "r", fault.Error, "X"
			got := ask(table(t, c.rule), "Action", []string{"eni-1", "eni-2", "eni-1", "eni-2", "eni-1"})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestEffects(t *testing.T) {
	cases := []struct {
		name  string
		rules []fault.Rule
		want  fault.Effect
	}{
		{"none", nil, fault.Effect{}},
		{"error", []fault.Rule{{Name: "e", Kind: fault.Error, Code: "C", Message: "m", Status: 403}}, fault.Effect{Rule: "e", Code: "C", Message: "m", Status: 403}},
		{"error has status 400", []fault.Rule{{Name: "e", Kind: fault.Error, Code: "C"}}, fault.Effect{Rule: "e", Code: "C", Status: 400}},
		{"throttle", []fault.Rule{{Name: "t", Kind: fault.Throttle}}, fault.Effect{Rule: "t", Code: fault.ThrottleCode, Message: "Request limit exceeded.", Status: 503}},
		{"delay and loss", []fault.Rule{
			{Name: "d", Kind: fault.Delay, Delay: time.Second}, {Name: "l", Kind: fault.Lost, Delay: time.Second},
		}, fault.Effect{Rule: "l", Delay: 2 * time.Second, Lost: true}},
		{"the earlier rule decides", []fault.Rule{
			{Name: "t", Kind: fault.Throttle}, {Name: "e", Kind: fault.Error, Code: "C"}, {Name: "d", Kind: fault.Delay, Delay: time.Second},
		}, fault.Effect{Rule: "t", Code: fault.ThrottleCode, Message: "Request limit exceeded.", Status: 503, Delay: time.Second}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := table(t, c.rules...).Next("Action", func(string) bool { return false })
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestRulesAreSwitchedAtRunTime(t *testing.T) {
	table := table(t, fault.Rule{Name: "r", Kind: fault.Throttle, Off: true})
	throttled := func() bool { return table.Next("A", nil).Code == fault.ThrottleCode }
	if throttled() {
		t.Fatal("a rule that is off hit")
	}
	if !table.Switch("r", true) || !throttled() {
		t.Fatal("switched on, but no effect")
	}
	if !table.Switch("r", false) || throttled() {
		t.Fatal("switched off, but an effect")
	}
	if got := table.States()[0]; got.Matched != 3 || got.Hits != 1 {
		t.Fatalf("counted %d matches and %d hits", got.Matched, got.Hits)
	}
	if !table.Remove("r") || table.Remove("r") || table.Switch("r", true) || len(table.States()) != 0 {
		t.Fatal("the rule is still there")
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	bad := []fault.Rule{
		{Kind: fault.Throttle},
		{Name: "a\tb", Kind: fault.Throttle},
		{Name: "r"},
		{Name: "r", Kind: "explode"},
		{Name: "r", Kind: fault.Error},
		{Name: "r", Kind: fault.Delay},
		{Name: "r", Kind: fault.Lost, First: -1},
		{Name: "r", Kind: fault.Error, Code: "C", Status: 200},
		{Name: "r", Kind: fault.Throttle, Code: "C"},
		{Name: "r", Kind: fault.Throttle, Status: 500},
		{Name: "r", Kind: fault.Lost, Message: "m"},
		{Name: "r", Kind: fault.Hang, Message: "m"},
		{Name: "r", Kind: fault.Stale},
		{Name: "r", Kind: fault.Lost, Age: time.Second},
		{Name: "r", Kind: fault.Lost, Jitter: -1},
	}
	for _, rule := range bad {
		if _, err := fault.New(rule); err == nil {
			t.Errorf("%+v was taken", rule)
		}
	}
	if _, err := fault.New(fault.Rule{Name: "r", Kind: fault.Lost}, fault.Rule{Name: "r", Kind: fault.Lost}); err == nil {
		t.Error("a name was taken twice")
	}
}

// A client decides by the status whether it tries again, so a fault that names only a code has EC2's.
func TestStatusFollowsTheCode(t *testing.T) {
	for code, want := range map[string]int{
		"InternalError": 500, "Unavailable": 503, "RequestLimitExceeded": 503, "UnauthorizedOperation": 403, "AuthFailure": 401, "DryRunOperation": 412,
		"InvalidParameterValue": 400,
	} {
		var table fault.Table
		if err := table.Add(fault.Rule{Name: "f", Kind: fault.Error, Code: code}); err != nil {
			t.Fatal(err)
		}
		if got := table.Next("A", nil).Status; got != want {
			t.Errorf("%s has status %d, want %d", code, got, want)
		}
	}
}
