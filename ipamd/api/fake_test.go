package api

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
)

// book is an Allocator and Auditor that keeps the contract and notes what it was asked.
type book struct {
	onAssign func(context.Context) error // nil, or called without the lock
	onDone   func(context.Context) error
	onStatus func(context.Context) error

	mu     sync.Mutex
	done   map[Attachment]bool // assigned attachments
	events []string
}

func newBook() *book { return &book{done: make(map[Attachment]bool)} }

func (b *book) note(event string, a Attachment) {
	b.events = append(b.events, event+" "+a.ContainerID)
}

func (b *book) Assign(ctx context.Context, request AssignRequest) (PodNetwork, error) {
	if b.onAssign != nil {
		if err := b.onAssign(ctx); err != nil {
			return PodNetwork{}, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("assign", request.Attachment)
	done := b.done[request.Attachment]
	b.done[request.Attachment] = done
	return PodNetwork{HostVeth: "eni1", Addr: netip.MustParsePrefix("10.0.1.20/32"), Repeat: done}, nil
}

func (b *book) Done(ctx context.Context, request DoneRequest) error {
	if b.onDone != nil {
		if err := b.onDone(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("done", request.Attachment)
	if _, assigned := b.done[request.Attachment]; !assigned {
		return NewError(CodeNotAssigned, "not assigned", "")
	}
	b.done[request.Attachment] = true
	return nil
}

func (b *book) Abort(a Attachment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("abort", a)
	if !b.done[a] {
		delete(b.done, a)
	}
}

func (b *book) Release(_ context.Context, request ReleaseRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("release", request.Attachment)
	delete(b.done, request.Attachment)
	return nil
}

func (b *book) Check(_ context.Context, a Attachment) (PodNetwork, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done[a] {
		return PodNetwork{}, NewError(CodeNotAssigned, "not assigned", "")
	}
	return PodNetwork{HostVeth: "eni1"}, nil
}

func (b *book) Status(ctx context.Context) error {
	if b.onStatus != nil {
		return b.onStatus(ctx)
	}
	return nil
}

func (b *book) GC(_ context.Context, request GCRequest) (GCReply, error) {
	return GCReply{Freed: request.Valid}, nil
}

func (b *book) saw() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// folder is a temporary one with a short name: a socket's address has room for 107 bytes.
func folder(t testing.TB) string {
	t.Helper()
	path, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

// daemon serves a book on a real socket until the test ends or stop is called.
func daemon(t testing.TB, b *book) (path string, stop func()) {
	t.Helper()
	path = folder(t) + "/cni.sock"
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- NewServer(b, b, quiet()).Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return path, stop
}

func dial(t testing.TB, path string) *Client {
	t.Helper()
	client, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// line is a connection without a socket, for tests in virtual time: the client's end, and what the server's end waits for.
type line struct {
	*Client
	shutdown, endGrace context.CancelFunc
	served             chan struct{}
}

func connect(server *Server) *line {
	near, far := net.Pipe()
	l := &line{Client: &Client{conn: near, version: Version}, served: make(chan struct{})}
	var ctx, work context.Context
	ctx, l.shutdown = context.WithCancel(context.Background())
	work, l.endGrace = context.WithCancel(context.Background())
	go func() {
		defer close(l.served)
		defer l.endGrace()
		defer l.shutdown()
		server.serve(ctx, work, far)
	}()
	return l
}

// hangUp closes the client's end and waits until the server is done with it.
func (l *line) hangUp() {
	_ = l.Close()
	<-l.served
}

func sandboxOf(id string) Attachment {
	return Attachment{Network: "aws-cni", ContainerID: id, IfName: "eth0"}
}

func assignOf(id string) AssignRequest { return AssignRequest{Attachment: sandboxOf(id)} }
func doneOf(id string) DoneRequest     { return DoneRequest{Attachment: sandboxOf(id)} }
