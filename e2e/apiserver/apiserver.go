// Package apiserver runs a real kube-apiserver with its etcd, and knows the users that the harness's programs speak as.
//
// It owns the two processes, their certificates and the roles of the users. It follows envtest's conventions (the binaries
// are where KUBEBUILDER_ASSETS says) and runs in the network namespace of its caller, which must have the address that the
// server is to listen on. No controller manager, scheduler or kubelet runs: pods are bound by who creates them, and
// e2e/sandbox is the kubelet. Start with Start; users.go has the roles.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/vpc-cni/vpc-cni/e2e/account"
)

// AssetsVar names the folder of the kube-apiserver and etcd binaries. Source: envtest.
const AssetsVar = "KUBEBUILDER_ASSETS"

// startTimeout is generous: both processes start in 5 seconds on two idle cores, and in 30 beside a compiler.
const startTimeout = 2 * time.Minute

// serviceCIDR must not be part of a VPC that the harness builds: Services are not simulated here.
const serviceCIDR = "172.20.0.0/16"

// etcdPort is fixed because the namespace is the control plane's own, and because envtest's search for a free one needs a
// lock file in the user's cache.
const etcdPort = "2379"

// Options say where the server listens and where it keeps its files.
type Options struct {
	Address netip.AddrPort // to listen on; the certificate names it
	Dir     string         // of certificates, kubeconfigs and etcd's data; made if it is not there
	Log     io.Writer      // of both processes
	Audit   string         // where the audit log of pods goes; "": none
}

// Server is a running control plane.
type Server struct {
	env     *envtest.Environment
	options Options
}

// Start starts etcd and kube-apiserver and waits until they serve.
func Start(options Options) (*Server, error) {
	for _, dir := range []string{options.certs(), options.etcd()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make folder of the control plane: %w", err)
		}
	}
	address := envtest.ListenAddr{
		Address: options.Address.Addr().String(),
		Port:    strconv.Itoa(int(options.Address.Port())),
	}
	server := &envtest.APIServer{
		SecureServing: envtest.SecureServing{ListenAddr: address},
		CertDir:       options.certs(), Out: options.Log, Err: options.Log,
	}
	server.Configure().
		Set("advertise-address", address.Address).
		Set("service-cluster-ip-range", serviceCIDR).
		Set("endpoint-reconciler-type", "none") // else it refuses to publish a loopback address
	if err := options.audit(server); err != nil {
		return nil, err
	}
	env := &envtest.Environment{
		ControlPlaneStartTimeout: startTimeout,
		ControlPlane: envtest.ControlPlane{
			APIServer: server,
			Etcd: &envtest.Etcd{
				URL:     &url.URL{Scheme: "http", Host: "127.0.0.1:" + etcdPort},
				DataDir: options.etcd(), Out: options.Log, Err: options.Log,
			},
		},
	}
	if _, err := env.Start(); err != nil {
		_ = env.Stop() // what failed to start is the error to tell
		return nil, fmt.Errorf("start kube-apiserver and etcd: %w", err)
	}
	// No webhook is served, but envtest has made certificates for one in the machine's temporary folder, which would stay
	// there where a test ends without Stop.
	if err := os.RemoveAll(env.WebhookInstallOptions.LocalServingCertDir); err != nil {
		return nil, errors.Join(fmt.Errorf("remove certificates of envtest: %w", err), env.Stop())
	}
	return &Server{env: env, options: options}, nil
}

func (o Options) certs() string { return filepath.Join(o.Dir, "certs") }
func (o Options) etcd() string  { return filepath.Join(o.Dir, "etcd") }

// Config is a copy of the administrator's.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.env.Config) }

// Kubeconfigs makes every user, with its role, and writes its kubeconfig to the server's folder.
func (s *Server) Kubeconfigs(ctx context.Context) error {
	if err := grant(ctx, s.env.Config); err != nil {
		return err
	}
	if err := os.WriteFile(account.Kubeconfig(s.options.Dir, account.Admin), s.env.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", account.Admin, err)
	}
	for _, user := range account.Limited() {
		if err := s.Kubeconfig(account.Kubeconfig(s.options.Dir, user), user.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig makes a user with no rights but those of its groups, and writes its kubeconfig to path.
func (s *Server) Kubeconfig(path, user string, groups ...string) error {
	made, err := s.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return fmt.Errorf("add user %s: %w", user, err)
	}
	config, err := made.KubeConfig()
	if err != nil {
		return fmt.Errorf("make kubeconfig of %s: %w", user, err)
	}
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}

// Stop ends both processes.
func (s *Server) Stop() error {
	if err := s.env.Stop(); err != nil {
		return fmt.Errorf("stop kube-apiserver and etcd: %w", err)
	}
	return nil
}
