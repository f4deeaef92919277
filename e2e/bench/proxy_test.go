package bench_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/apiproxy"
)

// proxyVar makes this test's program a proxy, which belongs to the API server's side and not to the harness's process: where
// to listen, where to pass on to, and the delay, joined by commas.
const proxyVar = "BENCH_PROXY"

// helper is this test's program in another role: a process of its own that a variable describes.
func helper(variable, description string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"="+description)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// proxyCommand is a proxy as a process of its own; it says when it listens, and runs until SIGTERM.
func proxyCommand(front, server string, delay time.Duration) (*exec.Cmd, error) {
	return helper(proxyVar, strings.Join([]string{front, server, delay.String()}, ","))
}

// beProxy is that process.
func beProxy(described string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	parts := strings.Split(described, ",")
	if len(parts) != 3 {
		return fmt.Errorf("read %s=%q: want three parts", proxyVar, described)
	}
	delay, err := time.ParseDuration(parts[2])
	if err != nil {
		return fmt.Errorf("read %s: %w", proxyVar, err)
	}
	listener, err := net.Listen("tcp", parts[0])
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println("listening")
	proxy := apiproxy.New(listener, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", parts[1])
	}, apiproxy.Way{Delay: delay})
	return proxy.Serve(ctx)
}
