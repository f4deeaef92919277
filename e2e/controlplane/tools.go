//go:build tools

// Package controlplane pins the kube-apiserver and etcd that the harness builds from source where KUBEBUILDER_ASSETS is
// not set. It is a module of its own because Kubernetes needs replace lines that must not reach the main module.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
