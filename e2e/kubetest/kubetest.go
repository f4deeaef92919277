// Package kubetest gives a test binary a real kube-apiserver with etcd, in namespaces of its own.
//
// It owns the place (the address that the server listens on), users with chosen rights, and nothing else: e2e/assets
// finds or builds the programs and e2e/apiserver runs them. It never replaces the server by something that imitates it.
// Start at Main and Start.
package kubetest

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/apiserver"
	"github.com/vpc-cni/vpc-cni/e2e/assets"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// Address is where the API server listens, inside the namespace of the tests. A documentation address (RFC 5737).
const Address = "192.0.2.1"

// AdminGroup is the group whose users may do everything. Source: Kubernetes' RBAC bootstrap policy.
const AdminGroup = "system:masters"

// Main is the body of a TestMain: the programs (built where there are none), then netlab.Isolate and the server's address.
func Main(m *testing.M) {
	if err := assets.Prepare(context.Background(), os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "kubetest: %v\n", err)
		os.Exit(1)
	}
	netlab.Isolate()
	if err := prepare(); err != nil {
		fmt.Fprintf(os.Stderr, "kubetest: %v\n", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare() error {
	here, err := netlab.Current()
	if err != nil {
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer here.Close()
	return netlab.AddAddr(here, "lo", netip.PrefixFrom(netip.MustParseAddr(Address), 32))
}

// Start starts etcd and kube-apiserver and waits until they serve, about 5 s. One per test binary is enough: it ends with
// the namespaces of the tests.
func Start() (*apiserver.Server, error) {
	// /run is a tmpfs that ends with the namespaces: etcd is fast there, and a killed test leaves no files.
	dir, err := os.MkdirTemp("/run", "kubetest-")
	if err != nil {
		return nil, fmt.Errorf("make folder for control plane: %w", err)
	}
	return apiserver.Start(apiserver.Options{
		Address: netip.AddrPortFrom(netip.MustParseAddr(Address), 6443), Dir: dir, Log: io.Discard,
	})
}

// Pod is a pod that the API server accepts, bound to a node.
func Pod(namespace, name, node string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, name
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.invalid/none"}}
	return pod
}
