// Package promql holds the alert rules and the dashboard against Prometheus' own parser. It is a module of its own, so that the
// main one does not depend on Prometheus. It has no code; ipamd/deploy names the metrics that there are.
package promql
