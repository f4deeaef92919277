// Package kubetest starts a real kube-apiserver with etcd for tests.
//
// It owns the place (namespaces of its own, with the address and the default route that the server insists on), the two
// processes, and users with chosen rights. It never replaces the server by something that imitates it, and it never builds
// or downloads binaries: KUBEBUILDER_ASSETS says where they are. Start at Main and Start.
package kubetest

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// assetsVar names the folder with the programs kube-apiserver and etcd, as envtest does.
const assetsVar = "KUBEBUILDER_ASSETS"

// tempVar names the folder for temporary files; os.TempDir takes an empty value for none.
const tempVar = "TMPDIR"

// startTimeout is generous beside the usual 5 s: a test machine's two cores may be compiling.
const startTimeout = 90 * time.Second

// Address is where the API server listens, inside the namespace of the tests. A documentation address (RFC 5737).
const Address = "192.0.2.1"

// Main is the body of a TestMain: netlab.Main, and a network on which kube-apiserver is willing to start.
func Main(m *testing.M) {
	netlab.Isolate()
	if err := prepare(); err != nil {
		fmt.Fprintf(os.Stderr, "kubetest: %v\n", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// prepare gives lo an address and a default route: without one the server ends with "no default routes found". In a program
// that was started by an isolated one (a fuzzing worker) both are there already.
func prepare() error {
	here, err := netlab.Current()
	if err != nil {
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer here.Close()
	address := netip.PrefixFrom(netip.MustParseAddr(Address), 32)
	if err := netlab.AddAddr(here, "lo", address); err != nil && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	if err := netlab.AddRoute(here, netlab.Route{Link: "lo"}); err != nil && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	return nil
}

// Server is a running control plane. It ends with the namespaces of the test, or by Stop.
type Server struct {
	env envtest.Environment
}

// Start starts etcd and kube-apiserver and waits until they serve, about 5 s. One per test binary is enough.
func Start() (*Server, error) {
	assets, err := findAssets()
	if err != nil {
		return nil, err
	}
	// /run is a tmpfs that ends with the namespaces: etcd is fast there, and a killed test leaves no files.
	dir, err := os.MkdirTemp("/run", "kubetest-")
	if err != nil {
		return nil, fmt.Errorf("make folder for control plane: %w", err)
	}
	// envtest puts certificates for webhooks into the temporary folder, which outlives the namespaces.
	before := os.Getenv(tempVar)
	if err := os.Setenv(tempVar, dir); err != nil {
		return nil, fmt.Errorf("set temporary folder: %w", err)
	}
	defer os.Setenv(tempVar, before)
	// The controller runtime complains with a stack trace when nobody tells it where to log.
	log.SetLogger(logr.Discard())
	server := &Server{}
	server.env.BinaryAssetsDirectory = assets
	server.env.ControlPlaneStartTimeout = startTimeout
	server.env.ControlPlane.Etcd = &envtest.Etcd{
		DataDir: filepath.Join(dir, "etcd"), URL: &url.URL{Scheme: "http", Host: "127.0.0.1:2379"},
	}
	apiserver := server.env.ControlPlane.GetAPIServer()
	apiserver.CertDir = filepath.Join(dir, "certs")
	apiserver.SecureServing.ListenAddr = envtest.ListenAddr{Address: Address, Port: "6443"}
	for _, folder := range []string{server.env.ControlPlane.Etcd.DataDir, apiserver.CertDir} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make folder for control plane: %w", err)
		}
	}
	if _, err := server.env.Start(); err != nil {
		return nil, fmt.Errorf("start control plane: %w", errors.Join(err, server.env.Stop()))
	}
	return server, nil
}

// findAssets finds the programs.
func findAssets() (string, error) {
	dir := os.Getenv(assetsVar)
	if dir == "" {
		return "", fmt.Errorf("this test needs a real kube-apiserver and etcd: run `make assets`, or export %s=<folder with both>", assetsVar)
	}
	for _, program := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("find programs in %s=%s (run `make assets`): %w", assetsVar, dir, err)
		}
	}
	return filepath.Abs(dir)
}

// Stop ends the control plane.
func (s *Server) Stop() error { return s.env.Stop() }

// Admin gives a copy of the credentials of a user who may do everything.
func (s *Server) Admin() *rest.Config { return rest.CopyConfig(s.env.Config) }

// Kubeconfig makes a user with no rights but those of its groups, and writes its credentials to a file.
func (s *Server) Kubeconfig(path, user string, groups ...string) error {
	made, err := s.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return fmt.Errorf("make user %s: %w", user, err)
	}
	content, err := made.KubeConfig()
	if err != nil {
		return fmt.Errorf("make kubeconfig of user %s: %w", user, err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// AdminGroup is the group whose users may do everything.
const AdminGroup = "system:masters"

// Pod is a pod that the API server accepts, bound to a node.
func Pod(namespace, name, node string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, name
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.invalid/none"}}
	return pod
}
