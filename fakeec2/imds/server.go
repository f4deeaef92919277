// Package imds serves instance metadata (IMDSv2, and v1 where the instance allows it) from the model of a VPC.
//
// It owns the wire: tokens, hop limit, paths, listings and error pages. What it says is what the model's Metadata says, with
// the lag that is set there. It never looks at a source address to tell who asks: pod addresses are legal sources, so the
// instance comes with the listener (Serve) or with the request's context (WithInstance).
//
// Start reading at Server; token.go has the rules of tokens, tree.go the paths, throttle.go the limit of requests.
package imds

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	tokenPath = "/latest/api/token"
	// defaultTTL makes the kernel use its own TTL again (ip(7), IP_TTL).
	defaultTTL = -1
	// headerTimeout ends connections on which nothing is asked. Clients ask within a second.
	headerTimeout = 10 * time.Second
)

// Options of a Server.
type Options struct {
	Now    func() time.Time // default time.Now
	Random io.Reader        // for tokens; default crypto/rand
	Log    *slog.Logger
	Limit  Limit // of each instance; the zero Limit is none
}

// Server answers for all instances of one model.
type Server struct {
	model    *vpc.VPC
	options  Options
	tokens   tokens
	throttle throttles
}

// New makes a server; it serves what Serve and ServeHTTP are given.
func New(model *vpc.VPC, options Options) *Server {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Random == nil {
		options.Random = rand.Reader
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{model: model, options: options, tokens: tokens{random: options.Random, issued: map[string]grant{}}}
	s.SetLimit(options.Limit)
	return s
}

type (
	instanceKey struct{}
	connKey     struct{}
)

// WithInstance names the instance that requests with this context come from.
func WithInstance(ctx context.Context, instance string) context.Context {
	return context.WithValue(ctx, instanceKey{}, instance)
}

// Serve answers one instance's requests on a listener that only this instance can reach. It returns ctx's error when ctx
// ends, after closing the listener and its connections.
func (s *Server) Serve(ctx context.Context, instance string, listener net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return WithInstance(ctx, instance) },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(listener)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("serve metadata of %s: %w", instance, err)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "EC2ws")
	id, _ := r.Context().Value(instanceKey{}).(string)
	now := s.options.Now()
	s.model.Advance(now) // the lag of metadata is judged at the model's time
	instance, enis, known := s.model.MetadataENIs(id)
	switch {
	case !known:
		refuse(w, http.StatusNotFound)
		return
	case instance.MetadataOff:
		refuse(w, http.StatusForbidden)
		return
	case !s.throttle.allow(id, now):
		refuse(w, http.StatusServiceUnavailable)
		return
	}
	if r.URL.Path == tokenPath {
		s.serveToken(w, r, instance)
		return
	}
	setTTL(r.Context(), defaultTTL)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	token := r.Header.Get(tokenHeader)
	if token == "" && instance.TokensRequired || token != "" && !s.tokens.valid(token, instance.ID, now) {
		refuse(w, http.StatusUnauthorized)
		return
	}
	leaves := s.leaves(instance, enis, now)
	body, found := leaves.get(r.URL.Path)
	if !found {
		refuse(w, http.StatusNotFound)
		return
	}
	answer(w, body)
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request, instance vpc.Instance) {
	seconds, err := strconv.Atoi(r.Header.Get(ttlHeader))
	switch {
	case r.Method != http.MethodPut:
		refuse(w, http.StatusMethodNotAllowed)
		return
	case r.Header.Get("X-Forwarded-For") != "": // an open proxy must not hand out tokens
		refuse(w, http.StatusForbidden)
		return
	case err != nil || seconds < 1 || seconds > maxTokenSeconds:
		refuse(w, http.StatusBadRequest)
		return
	}
	token, err := s.tokens.issue(instance.ID, s.options.Now(), time.Duration(seconds)*time.Second)
	if err != nil {
		s.options.Log.Error("token was not issued", "instance", instance.ID, "err", err)
		refuse(w, http.StatusInternalServerError)
		return
	}
	// The answer's TTL is the hop limit: it reaches the node, and a routed pod only where the limit is 2 or more.
	setTTL(r.Context(), instance.HopLimit)
	// The Go SDK takes an answer without this header for "version 1 only".
	w.Header().Set(ttlHeader, strconv.Itoa(seconds))
	answer(w, token)
}

// setTTL sets the IP TTL of what the connection sends from now on. A request without a connection (httptest) has none.
func setTTL(ctx context.Context, ttl int) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	local, _ := conn.LocalAddr().(*net.TCPAddr)
	// Both fail only on a connection that is gone already.
	if local != nil && local.IP.To4() == nil {
		_ = ipv6.NewConn(conn).SetHopLimit(ttl)
		return
	}
	_ = ipv4.NewConn(conn).SetTTL(ttl)
}

// answer writes a body as metadata do: plain text without a newline at the end.
func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body) // a client that hung up does not wait for an answer
}

func refuse(w http.ResponseWriter, status int) {
	title := fmt.Sprintf("%d - %s", status, http.StatusText(status))
	body := fmt.Sprintf(errorPage, title, title)
	w.Header().Set("Content-Type", "text/html")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

const errorPage = `<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head><title>%s</title></head>
 <body><h1>%s</h1></body>
</html>
`
