package promql

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// rules is a rule file, with what alerts may have. Source: Prometheus' documentation, "Alerting rules".
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func TestAlertRulesParse(t *testing.T) {
	text, err := os.ReadFile("../monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var file rules
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if err := decoder.Decode(&struct{}{}); err != io.EOF {
		t.Errorf("more than one document: %v", err)
	}
	names := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" || names[rule.Alert] {
				t.Errorf("alert %q has no name, or another's", rule.Alert)
			}
			names[rule.Alert] = true
			parse(t, rule.Alert, rule.Expr)
			if rule.For != "" {
				if _, err := model.ParseDuration(rule.For); err != nil {
					t.Errorf("%s: for: %v", rule.Alert, err)
				}
			}
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s lacks severity, summary or description", rule.Alert)
			}
		}
	}
	if len(names) == 0 {
		t.Error("no rules")
	}
}

func TestDashboardExpressionsParse(t *testing.T) {
	text, err := os.ReadFile("../monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) == 0 {
		t.Error("no panels")
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			parse(t, panel.Title, variables.Replace(target.Expr))
		}
	}
}

func parse(t *testing.T, name, expr string) {
	t.Helper()
	if _, err := parser.NewParser(parser.Options{}).ParseExpr(expr); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
