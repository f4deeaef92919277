// Package kube is the daemon's way to the Kubernetes API server.
//
// It owns the REST client for core/v1, its credentials, time-outs and limits, the watch of this node's pods, and the events
// that the daemon writes. It never decides anything about pods, never retries a request (its callers know what a retry
// means; only the watch begins again by itself), and never calls the server before it is asked to: the daemon starts with
// the API server down. It is a client of one API group rather than the full clientset, which costs 15 MB of binary and
// 11 MiB of memory on every node.
//
// Start at New and Client in client.go.
package kube
