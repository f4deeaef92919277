package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// proxy makes a server seem far away: what passes it, in either direction, arrives later by half of the round trip's delay.
// It keeps throughput: bytes that come while others wait, wait beside them.
type proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	oneWay   time.Duration
}

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
	p := proxy{listener: listener, oneWay: delay / 2, dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", parts[1])
	}}
	return p.serve(ctx)
}

// serve passes connections on until ctx ends.
func (p proxy) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = p.listener.Close() })
	defer stop()
	group.Go(func() error {
		for {
			conn, err := p.listener.Accept()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			group.Go(func() error { p.pass(ctx, conn); return nil })
		}
	})
	return group.Wait()
}

// pass joins one connection with one to the server, until both directions have ended.
func (p proxy) pass(ctx context.Context, client net.Conn) {
	server, err := p.dial(ctx)
	if err != nil {
		_ = client.Close() // as a server that is not there
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.oneDirection(server, client) })
	both.Go(func() { p.oneDirection(client, server) })
	both.Wait()
}

// late is a piece of a stream and when it is due; the empty piece is the stream's end.
type late struct {
	bytes []byte
	due   time.Time
}

// inFlight is how many pieces may be on their way: more than a daemon's few requests ever are.
const inFlight = 1024

func (p proxy) oneDirection(to, from net.Conn) {
	pieces := make(chan late, inFlight)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10) // a TLS record's size
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- late{buffer[:n], time.Now().Add(p.oneWay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for piece := range pieces {
		<-time.After(time.Until(piece.due))
		if _, err := to.Write(piece.bytes); err != nil {
			break
		}
	}
	_ = to.Close() // the other direction then ends too
	for range pieces {
	} // what comes after a failed write is nobody's
}

// A request through the proxy takes at least the delay, and its bytes come as they were sent.
func TestProxyDelaysAndChangesNothing(t *testing.T) {
	const delay = 60 * time.Millisecond
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	server, front := listen(), listen()
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	p := proxy{listener: front, oneWay: delay / 2, dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr().String())
	}}
	go func() { served <- p.serve(ctx) }()
	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		began := time.Now()
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			t.Fatalf("got %q, error %v, want %q", got, err, text)
		}
		if took := time.Since(began); took < delay {
			t.Errorf("%q came back after %s, want at least %s", text, took, delay)
		}
	}
	cancel()
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection outlives the proxy: error %v", err)
	}
	if err := errors.Join(<-served, server.Close()); err != nil {
		t.Error(err)
	}
}
