package apiproxy

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// echo is a proxy in front of a server that sends back what it gets.
func echo(t *testing.T, way Way) (*Proxy, func() net.Conn) {
	t.Helper()
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	server, front := listen(), listen()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	p := New(front, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr().String())
	}, way)
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = server.Close()
	})
	return p, func() net.Conn {
		conn, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// say sends a text and gives how long its echo took.
func say(conn net.Conn, text string) (time.Duration, error) {
	began := time.Now()
	if _, err := io.WriteString(conn, text); err != nil {
		return 0, err
	}
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	if err == nil && string(got) != text {
		err = io.ErrUnexpectedEOF
	}
	return time.Since(began), err
}

// What passes takes at least the delay, and comes as it was sent.
func TestProxyDelaysAndChangesNothing(t *testing.T) {
	const delay = 60 * time.Millisecond
	_, dial := echo(t, Way{Delay: delay})
	conn := dial()
	for _, text := range []string{"one", "two"} {
		took, err := say(conn, text)
		if err != nil || took < delay {
			t.Errorf("echo of %q after %s, error %v; want at least %s", text, took, err, delay)
		}
	}
}

func TestACutEndsConnectionsAndRefusesNewOnesUntilItIsMended(t *testing.T) {
	p, dial := echo(t, Way{})
	old := dial()
	if _, err := say(old, "before"); err != nil {
		t.Fatal(err)
	}
	p.Set(Way{Cut: true})
	if _, err := say(old, "while"); err == nil {
		t.Error("an old connection passes a cut")
	}
	if conn, err := net.Dial("tcp", p.listener.Addr().String()); err == nil { // it may be reset before it is made
		if _, err := say(conn, "while"); err == nil {
			t.Error("a new connection passes a cut")
		}
		_ = conn.Close()
	}
	p.Set(Way{})
	if _, err := say(dial(), "after"); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

func TestWhatWasSentInSilenceArrivesAfterIt(t *testing.T) {
	p, dial := echo(t, Way{})
	conn := dial()
	if _, err := say(conn, "before"); err != nil {
		t.Fatal(err)
	}
	p.Set(Way{Silent: true})
	answered := make(chan error, 1)
	go func() { _, err := say(conn, "while"); answered <- err }()
	select {
	case err := <-answered:
		t.Fatalf("answered in silence: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Set(Way{})
	if err := <-answered; err != nil {
		t.Errorf("after the silence: %v", err)
	}
}
