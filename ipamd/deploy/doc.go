// Package deploy keeps what is applied to a cluster and to its monitoring beside the daemon: manifests (plain YAML, one file for
// each thing that is turned on by itself), alert rules and a dashboard.
//
// It has no code that runs in the daemon; Manifests gives the files to programs. Its tests hold the files against a real API server, with tokens of the daemon's own
// service account, and against the daemon's metrics. Start with manifests/annotation-policy.yaml and policy_test.go.
package deploy
