package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// The server's times. None is a setting: they bound what a broken or killed plugin can hold.
const (
	maxAssign      = 60 * time.Second // longest wait for an address; a runtime gives its sandbox about two minutes
	requestTimeout = 30 * time.Second // every other method: a state save and perhaps a policy agent
	firstTimeout   = 5 * time.Second  // from connect to the end of the first request
	idleTimeout    = 30 * time.Second // from an answer to the end of the next request: the plugin's kernel work
	writeTimeout   = 5 * time.Second  // for an answer, which fits into any socket buffer
	shutdownGrace  = 5 * time.Second  // for open transactions to say done after a shutdown began
	acceptBackoff  = 100 * time.Millisecond
)

// maxConnections bounds open connections. A node runs at most some 700 pods, and a plugin opens one connection.
const maxConnections = 1024

// Allocator gives and takes back addresses. All methods are called from several goroutines.
type Allocator interface {
	// Assign picks an address and returns its recipe. ctx ends at the request's deadline, when the plugin goes away and
	// when the server shuts down; after an error nothing is assigned. An attachment that is assigned already gets the
	// same recipe again, with Repeat set if it is done.
	Assign(ctx context.Context, request AssignRequest) (PodNetwork, error)
	// Done makes an assignment last. *Error with CodeNotAssigned refuses one that does not exist (any more).
	Done(ctx context.Context, request DoneRequest) error
	// Abort gives up an assignment whose connection ended without done, and is also called after an Assign that failed.
	// It leaves alone an attachment that is done or unknown: only the allocator knows that across restarts.
	Abort(attachment Attachment)
	// Release takes an address back; an unknown attachment is no error.
	Release(ctx context.Context, request ReleaseRequest) error
}

// Auditor answers questions about what was given.
type Auditor interface {
	// Check returns the recipe of an attachment, or *Error: CodeNotAssigned when it has none, CodeTryAgain when a newer
	// sandbox of its pod has superseded it. A plugin in the middle of its ADD asks it before it replaces another sandbox's
	// veth or route.
	Check(ctx context.Context, attachment Attachment) (PodNetwork, error)
	// Status returns nil when ADD can be served, else *Error with CodeNotAvailable or CodeLimited.
	Status(ctx context.Context) error
	// GC releases the attachments of a network that are not valid any more.
	GC(ctx context.Context, request GCRequest) (GCReply, error)
}

// Around carries out one effect of the server or the plugin on the world (an answer, a file) by calling run, once or not at all, and
// passes on its error. Nil just calls it. Tests end the process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// Server answers plugins on a unix socket.
type Server struct {
	Around Around // set before Serve; nil but in tests

	allocator Allocator
	auditor   Auditor
	log       *slog.Logger
	socket    string // where records of deletions lie beside; set by Serve

	mu    sync.Mutex
	holds map[Attachment]*hold
}

// NewServer makes a server; Serve runs it.
func NewServer(allocator Allocator, auditor Auditor, log *slog.Logger) *Server {
	return &Server{allocator: allocator, auditor: auditor, log: log, holds: make(map[Attachment]*hold)}
}

// Serve answers connections until ctx ends, and closes l. At the end waiting Assigns are answered "try again later",
// transactions that were given an address have 5 s left to say done, and every connection is waited for. It returns nil
// after an orderly end.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	s.socket = l.path
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var sessions sync.WaitGroup
	var closeErr error
	var closed sync.WaitGroup
	closed.Add(1)
	context.AfterFunc(ctx, func() {
		defer closed.Done()
		closeErr = l.Close()
	})
	s.accept(ctx, work, acceptor{l, &sessions})
	closed.Wait()

	ended := make(chan struct{})
	go func() { sessions.Wait(); close(ended) }()
	grace := time.NewTimer(shutdownGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		stopWork()
		<-ended
	}
	return closeErr
}

type acceptor struct {
	listener *Listener
	sessions *sync.WaitGroup
}

// accept starts a session for every connection until ctx ends.
func (s *Server) accept(ctx, work context.Context, a acceptor) {
	slots := make(chan struct{}, maxConnections)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := a.listener.accept()
		switch {
		case err == nil:
			a.sessions.Go(func() {
				defer func() { <-slots }()
				s.admit(ctx, work, conn)
			})
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		<-slots
		s.log.Warn("connection not accepted", "err", err) // out of file descriptors, say
		select {
		case <-ctx.Done():
			return
		case <-time.After(acceptBackoff):
		}
	}
}

// admit serves a connection whose peer may speak to the daemon.
func (s *Server) admit(ctx, work context.Context, conn *net.UnixConn) {
	uid, err := peerUID(conn)
	if err == nil && mayConnect(uid, uint32(os.Geteuid())) {
		s.serve(ctx, work, conn)
		return
	}
	s.log.Warn("peer refused", "uid", uid, "err", err)
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_ = writeFrame(conn, reply{Version: Version, Error: NewError(CodeDenied, "peer may not use this socket", "")})
	_ = conn.Close()
}

// mayConnect tells whether a peer's user is root or the server's own.
func mayConnect(uid, own uint32) bool { return uid == 0 || uid == own }
