package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"
)

// session is one connection: at most one assignment, held from assign to the connection's end.
type session struct {
	server     *Server
	conn       net.Conn
	shutdown   <-chan struct{}                     // closed when the server shuts down
	onShutdown func(f func()) (forget func() bool) // calls f then
	held       *Attachment
}

// incoming is what the reading goroutine hands over: a frame, or a refusal of one.
type incoming struct {
	frame   []byte
	refusal *Error
}

// serve answers one connection's requests in order. ctx ends when the server shuts down, work when its grace is over.
func (s *Server) serve(ctx, work context.Context, conn net.Conn) {
	c := &session{server: s, conn: conn, shutdown: ctx.Done()}
	c.onShutdown = func(f func()) func() bool { return context.AfterFunc(ctx, f) }
	work, cancel := context.WithCancel(work)
	frames := make(chan incoming)
	_ = conn.SetReadDeadline(time.Now().Add(firstTimeout))
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer cancel() // a plugin that is gone ends the request that is being worked on
		c.read(work, frames)
	}()
	stop := context.AfterFunc(work, func() { _ = conn.Close() })
	c.answerAll(work, frames)
	stop()
	_ = conn.Close()
	cancel()
	<-read
	if c.held != nil && s.leave(*c.held) {
		s.allocator.Abort(*c.held)
	}
}

// read hands over frames until the peer is gone, silent for too long, or malformed.
func (c *session) read(ctx context.Context, frames chan<- incoming) {
	for {
		frame, err := readFrame(c.conn)
		var next incoming
		switch {
		case err == nil:
			next.frame = frame
			_ = c.conn.SetReadDeadline(time.Time{}) // while the answer is worked out, silence is right
		case !errors.As(err, &next.refusal):
			return
		}
		select {
		case frames <- next:
		case <-ctx.Done():
			return
		}
		if err != nil {
			<-ctx.Done() // the refusal is being answered; returning would close the connection before
			return
		}
	}
}

func (c *session) answerAll(ctx context.Context, frames <-chan incoming) {
	for {
		var stopping <-chan struct{}
		if c.held == nil { // one that holds an address may still say done
			stopping = c.shutdown
		}
		select {
		case <-stopping:
			return
		case <-ctx.Done():
			return
		case next := <-frames:
			_ = c.conn.SetReadDeadline(time.Time{})
			if !c.answer(ctx, next) {
				return
			}
		}
	}
}

// answer handles one frame and tells whether the connection may go on.
func (c *session) answer(ctx context.Context, next incoming) bool {
	refusal := next.refusal
	var body any
	point := "reply refusal"
	if refusal == nil {
		var message request
		if message, refusal = decodeRequest(next.frame); refusal == nil {
			point = "reply " + message.Method
			body, refusal = c.handle(ctx, message)
		}
	}
	answer := reply{Version: Version, Error: refusal}
	if refusal == nil && body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			answer.Error = NewError(CodeInternal, "answer cannot be encoded", err.Error())
		}
		answer.Body = encoded
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := c.server.Around.do(point, func() error { return writeFrame(c.conn, answer) }); err != nil {
		c.server.log.Debug("answer not sent", "err", err)
		return false
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(idleTimeout))
	return answer.Error == nil || answer.Error.Code != CodeMalformed
}

// handle carries out one request.
func (c *session) handle(ctx context.Context, message request) (any, *Error) {
	if message.Method == methodAssign {
		return decoded(ctx, message.Body, c.assign)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch message.Method {
	case methodDone:
		return decoded(ctx, message.Body, c.done)
	case methodRelease:
		return decoded(ctx, message.Body, c.release)
	case methodCheck:
		return decoded(ctx, message.Body, c.server.auditor.Check)
	case methodGC:
		return decoded(ctx, message.Body, c.server.auditor.GC)
	case methodStatus:
		if err := c.server.auditor.Status(ctx); err != nil {
			return nil, wireError(err)
		}
		return nil, nil
	}
	return nil, malformed("method %q is unknown", message.Method)
}

// decoded calls f with a request's body.
func decoded[In, Out any](ctx context.Context, body json.RawMessage, f func(context.Context, In) (Out, error)) (any, *Error) {
	in, refusal := decodeBody[In](body)
	if refusal != nil {
		return nil, refusal
	}
	out, err := f(ctx, in)
	if err != nil {
		return nil, wireError(err)
	}
	return out, nil
}

func (c *session) assign(ctx context.Context, message AssignRequest) (PodNetwork, error) {
	switch {
	case c.held != nil && *c.held != message.Attachment:
		return PodNetwork{}, malformed("this connection has an assignment already")
	case c.stopping():
		return PodNetwork{}, shuttingDown()
	}
	deadline := maxAssign
	if message.DeadlineMS > 0 && message.DeadlineMS < maxAssign.Milliseconds() {
		deadline = time.Duration(message.DeadlineMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	defer c.onShutdown(cancel)()
	if c.held == nil {
		c.server.take(message.Attachment)
		c.held = &message.Attachment
	}
	// A record of an earlier deletion must not end the pod that begins now; equal keys have equal assignments. One that
	// cannot be removed is older than the assignment, which the daemon sees when it collects it.
	remove := func() error { return RemovePending(c.server.socket, message.Attachment) }
	if err := c.server.Around.do("pending remove", remove); err != nil {
		c.server.log.Warn("recorded deletion not forgotten", "sandbox", message.ContainerID, "err", err)
	}
	network, err := c.server.allocator.Assign(ctx, message)
	if err != nil && c.stopping() && errors.Is(err, context.Canceled) {
		return PodNetwork{}, shuttingDown()
	}
	if err == nil && network.Repeat {
		c.server.settle(message.Attachment, true)
	}
	return network, err
}

func (c *session) stopping() bool {
	select {
	case <-c.shutdown:
		return true
	default:
		return false
	}
}

func (c *session) done(ctx context.Context, message DoneRequest) (any, error) {
	if c.held == nil || *c.held != message.Attachment {
		return nil, NewError(CodeNotAssigned, "done without an assignment on this connection", "")
	}
	if err := c.server.allocator.Done(ctx, message); err != nil {
		return nil, err
	}
	// From here on the assignment stays even if the answer is lost: the plugin then removes the veth and fails, and the
	// runtime's DEL or the daemon's evidence audit ends it. Giving it up here could hit a pod that lives.
	c.server.settle(message.Attachment, true)
	return nil, nil
}

func (c *session) release(ctx context.Context, message ReleaseRequest) (any, error) {
	if err := c.server.allocator.Release(ctx, message); err != nil {
		return nil, err
	}
	c.server.settle(message.Attachment, false)
	return nil, nil
}

func shuttingDown() *Error {
	return NewError(CodeTryAgain, "daemon is shutting down", "it will assign addresses once it is back")
}
