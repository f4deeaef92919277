// Package introspect is what people and Prometheus see of the daemon: JSON pages and metrics over HTTP.
//
// It owns names, types and labels of the metrics and the two HTTP servers. It never changes anything: what it shows comes
// from functions that it is given, and nothing that it serves is secret (settings are shown as text, credentials are no
// settings). Start with metrics.go for the names and serve.go for the servers.
package introspect
