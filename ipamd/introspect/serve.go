package introspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	headerTimeout   = 5 * time.Second // from accept to the end of the request's headers; clients are on the node or a scraper
	pageTimeout     = 5 * time.Second // for one page's content
	shutdownTimeout = 2 * time.Second // for requests under way when the daemon ends
	socketMode      = 0o660           // as the plugin's socket: root and its group
)

// Page gives one page's content, to be shown as JSON.
type Page func(ctx context.Context) (any, error)

// gone are pages that the incumbent has or had, and where their readers find the same here.
func gone() map[string]string {
	return map[string]string{
		"/v1/pods":        "pods and their addresses are on /v1/enis and /v1/status",
		"/v1/eni-configs": "ENIConfigs are not used; ENIs and their subnets are on /v1/enis and /v1/status",
	}
}

// Pages serves each page at its path and a list of paths at "/". A page that fails is answered with 503 and the error, one that is
// not here but was known elsewhere with 410 and a hint.
func Pages(pages map[string]Page) http.Handler {
	mux := http.NewServeMux()
	for path, hint := range gone() {
		if pages[path] == nil {
			mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
				write(w, http.StatusGone, map[string]string{"error": "there is no such page: " + hint})
			})
		}
	}
	for path, page := range pages {
		mux.Handle("GET "+path, show(page))
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, slices.Sorted(maps.Keys(pages)))
	})
	return mux
}

func show(page Page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		content, err := page(ctx)
		if err != nil {
			write(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		write(w, http.StatusOK, content)
	}
}

// write encodes first, so that content which cannot be encoded is an error page and not half a page.
func write(w http.ResponseWriter, status int, content any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false) // kernel rules are full of "&" and "<", and nobody shows this as HTML
	if err := encoder.Encode(content); err != nil {
		http.Error(w, "encode page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client may be gone; there is nobody to tell
}

// Serve answers at address (host:port or unix:/path) until ctx ends, then lets requests under way finish. It returns nil
// after that, else why it could not listen or serve.
func (a Around) Serve(ctx context.Context, address string, handler http.Handler) error {
	return a.serve(ctx, address, &http.Server{Handler: handler})
}

func (a Around) serve(ctx context.Context, address string, server *http.Server) error {
	var listener net.Listener
	err := a.do("http listen", func() (err error) {
		listener, err = listen(ctx, address)
		return err
	})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	server.ReadHeaderTimeout = headerTimeout
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", address, err)
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		_ = server.Close() // a client that will not finish is cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	return nil
}

// Serve is Around's Serve with nothing around the listening.
func Serve(ctx context.Context, address string, handler http.Handler) error {
	return Around(nil).Serve(ctx, address, handler)
}

// Around makes a socket by calling run, once or not at all, and passes on its error. Nil just calls it. Tests end the
// process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// listen replaces a socket file: the daemon's lock file says that no other daemon uses it.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return config.Listen(ctx, "tcp", address)
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("the path exists and is not a socket")
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove old socket: %w", err)
		}
	}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("set mode of socket: %w", err), listener.Close())
	}
	return listener, nil
}
