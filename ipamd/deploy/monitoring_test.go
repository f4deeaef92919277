package deploy_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
)

// Every metric and label that the alert rules and the dashboard name is one of the daemon's. Package promql parses them.
func TestMonitoringNamesOnlyMetricsThatThereAre(t *testing.T) {
	labels := described(t)
	selector := regexp.MustCompile(`\b((?:awscni|vpccni)_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher := regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)`)
	for _, file := range []string{"monitoring/alerts.yaml", "monitoring/dashboard.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := selector.FindAllStringSubmatch(string(text), -1)
		if len(found) < 10 {
			t.Errorf("%s names %d metrics", file, len(found))
		}
		for _, match := range found {
			known, ok := labels[match[1]]
			if !ok {
				t.Errorf("%s: there is no metric %s", file, match[1])
			}
			for _, label := range matcher.FindAllStringSubmatch(match[2], -1) {
				if label[1] != "instance" && !slices.Contains(known, label[1]) { // instance comes with the scrape
					t.Errorf("%s: %s has no label %s", file, match[1], label[1])
				}
			}
		}
	}
}

// described gives the labels of every series in the registry.
func described(t *testing.T) map[string][]string {
	t.Helper()
	registry := prometheus.NewRegistry()
	introspect.NewMetrics(registry, func() (introspect.Figures, bool) { return introspect.Figures{}, false })
	out := make(chan *prometheus.Desc)
	go func() { registry.Describe(out); close(out) }()
	form := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	labels := map[string][]string{}
	for desc := range out {
		match := form.FindStringSubmatch(fmt.Sprint(desc))
		if match == nil {
			t.Fatalf("description %v", desc)
		}
		own := strings.Split(match[2], ",")
		labels[match[1]] = own
		for _, series := range []string{"_bucket", "_sum", "_count"} {
			labels[match[1]+series] = append(slices.Clone(own), "le")
		}
	}
	return labels
}
