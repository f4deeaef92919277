package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/apiproxy"
)

// ways are a node's ways to the API server: its daemon's own, and that of its kubelet and its policy agent.
type ways struct {
	daemon, others *apiproxy.Proxy
	stop           context.CancelFunc
	ended          []chan error
}

// layWays puts a proxy between a node and the API server, at ports of the server's own address: its certificate names that.
func (n *node) layWays(place int) error {
	c := n.cluster
	if c.options.Away == nil {
		return nil
	}
	var way apiproxy.Way
	if place < len(c.options.Away) {
		way.Delay = c.options.Away[place]
	}
	if err := os.MkdirAll(n.dir(""), 0o755); err != nil {
		return fmt.Errorf("make folder of node %s: %w", n.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.ways = &ways{stop: cancel}
	server := netip.MustParseAddrPort(apiServerAddress)
	lay := func(port int, users ...account.User) (*apiproxy.Proxy, error) {
		front := netip.AddrPortFrom(server.Addr(), server.Port()+uint16(port)).String()
		listener, err := c.apiServer.Listen(ctx, "tcp", front)
		if err != nil {
			return nil, err
		}
		proxy := apiproxy.New(listener, func(ctx context.Context) (net.Conn, error) {
			return c.apiServer.DialContext(ctx, "tcp", apiServerAddress)
		}, way)
		ended := make(chan error, 1)
		n.ways.ended = append(n.ways.ended, ended)
		go func() { ended <- proxy.Serve(ctx) }()
		var errs []error
		for _, user := range users {
			errs = append(errs, redirect(account.Kubeconfig(controlDir, user), n.kubeconfig(user), front))
		}
		return proxy, errors.Join(errs...)
	}
	var err, err2 error
	n.ways.daemon, err = lay(1+2*place, account.IPAMD)
	n.ways.others, err2 = lay(2+2*place, account.Sandbox, account.PolicyGate)
	return errors.Join(err, err2)
}

// redirect writes a kubeconfig that names another address of the server.
func redirect(from, to, front string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	text = bytes.ReplaceAll(text, []byte("https://"+apiServerAddress), []byte("https://"+front))
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// kubeconfig is what a program of the node reaches the API server with.
func (n *node) kubeconfig(user account.User) string {
	if n.ways == nil {
		return account.Kubeconfig(controlDir, user)
	}
	return filepath.Join(n.dir(""), string(user)+".kubeconfig")
}

func (w *ways) close() error {
	if w == nil {
		return nil
	}
	w.stop()
	var errs []error
	for _, ended := range w.ended {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// SetWay implements cluster.Breakable: only the daemon's way changes.
func (c *Cluster) SetWay(name string, way apiproxy.Way) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	if n.ways == nil {
		return fmt.Errorf("change the way of node %s to the API server: the cluster was made without Options.Away", name)
	}
	n.ways.daemon.Set(way)
	return nil
}

// StartDaemon starts a node's daemon, which StopDaemon has ended, and waits until it serves.
func (c *Cluster) StartDaemon(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	return n.startDaemon(ctx)
}

// Audit implements cluster.Audited.
func (c *Cluster) Audit() (io.ReadCloser, error) {
	file, err := os.Open(c.options.audit())
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return file, nil
}

func (o Options) audit() string { return filepath.Join(o.Logs, "audit.jsonl") }

// Metrics implements cluster.Metered.
func (c *Cluster) Metrics(ctx context.Context, name string) (string, error) {
	n, err := c.node(name)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: n.ns.DialContext, DisableKeepAlives: true}, Timeout: metricsTimeout}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:61678/metrics", nil) // the default address
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("read metrics of node %s: %w", name, err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read metrics of node %s: %w", name, err)
	}
	return string(text), nil
}

// metricsTimeout is generous: a page takes milliseconds.
const metricsTimeout = 10 * time.Second
