// Package apiproxy stands between a client and a server and makes the way bad: far, cut, or silent.
//
// It owns connections, not requests: it never reads what passes it, so TLS goes through untouched. Start with Proxy.
package apiproxy

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Way is how the way to the server is.
type Way struct {
	// Delay is a round trip's: what passes, in either direction, arrives later by half of it. Throughput stays: bytes that
	// come while others wait, wait beside them.
	Delay time.Duration
	// Cut refuses new connections. Those that there are end when it begins: what was asked and not answered stays unknown.
	Cut bool
	// Silent lets nothing arrive, on old connections and new ones; what came meanwhile arrives when it ends.
	Silent bool
}

// Proxy passes connections on. It is made by New.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	way     Way
	changed chan struct{} // closed and replaced when the way changes
	open    map[net.Conn]bool
}

// New makes a proxy that listens already; Serve passes on what comes.
func New(listener net.Listener, dial func(context.Context) (net.Conn, error), way Way) *Proxy {
	return &Proxy{listener: listener, dial: dial, way: way, changed: make(chan struct{}), open: map[net.Conn]bool{}}
}

// Set changes the way.
func (p *Proxy) Set(way Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.way = way
	close(p.changed)
	p.changed = make(chan struct{})
	if way.Cut {
		for conn := range p.open {
			_ = conn.Close() // its copying ends with that
		}
	}
}

// now is the present way, and what is closed when it changes.
func (p *Proxy) now() (Way, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.way, p.changed
}

// Serve passes connections on until ctx ends.
func (p *Proxy) Serve(ctx context.Context) error {
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
func (p *Proxy) pass(ctx context.Context, client net.Conn) {
	if way, _ := p.now(); way.Cut {
		reset(client)
		return
	}
	server, err := p.dial(ctx)
	if err != nil {
		reset(client)
		return
	}
	if !p.keep(client, server) {
		return
	}
	defer p.forget(client, server)
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.oneDirection(ctx, server, client) })
	both.Go(func() { p.oneDirection(ctx, client, server) })
	both.Wait()
}

// reset ends a connection as a server that is not there: at once, and not in an orderly way.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// keep notes open connections; false: the way was cut meanwhile, and they are closed.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.way.Cut {
			_ = conn.Close()
			continue
		}
		p.open[conn] = true
	}
	return !p.way.Cut
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.open, conn)
	}
}

// late is a piece of a stream and when it is due.
type late struct {
	bytes []byte
	due   time.Time
}

// inFlight is how many pieces may be on their way: more than a node's few requests ever are.
const inFlight = 1024

func (p *Proxy) oneDirection(ctx context.Context, to, from net.Conn) {
	pieces := make(chan late, inFlight)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10) // a TLS record's size
			n, err := from.Read(buffer)
			if n > 0 {
				way, _ := p.now()
				pieces <- late{buffer[:n], time.Now().Add(way.Delay / 2)}
			}
			if err != nil {
				return
			}
		}
	}()
	for piece := range pieces {
		p.await(ctx, piece.due)
		if _, err := to.Write(piece.bytes); err != nil {
			break
		}
	}
	_ = to.Close() // the other direction then ends too
	for range pieces {
	} // what comes after a failed write is nobody's
}

// await waits until a piece may arrive.
func (p *Proxy) await(ctx context.Context, due time.Time) {
	for {
		way, changed := p.now()
		if !way.Silent {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	if wait := time.Until(due); wait > 0 {
		<-time.After(wait)
	}
}
