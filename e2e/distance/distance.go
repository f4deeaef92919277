// Package distance makes a server seem far away, for programs that take no part in it.
//
// It owns the process of a proxy that delays (package apiproxy), which belongs to the server's side and not to the harness's
// process. Start with Command; a test's program becomes the proxy by calling Be from its TestMain.
package distance

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

// Var makes a program that asks for it in its TestMain a proxy: where to listen, where to pass on to, and the delay, joined by
// commas.
const Var = "E2E_DISTANCE"

// Command is a proxy as a process of its own. It writes a line when it listens, and runs until SIGTERM.
func Command(front, server string, delay time.Duration) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), Var+"="+strings.Join([]string{front, server, delay.String()}, ","))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// Be is that process: it serves what Var says.
func Be(described string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	parts := strings.Split(described, ",")
	if len(parts) != 3 {
		return fmt.Errorf("read %s=%q: want three parts", Var, described)
	}
	delay, err := time.ParseDuration(parts[2])
	if err != nil {
		return fmt.Errorf("read %s: %w", Var, err)
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
