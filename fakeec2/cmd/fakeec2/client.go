package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"
)

// asker asks a served world by its admin socket.
type asker struct {
	dir string
}

// dirFlag defines the flag that all commands have.
func (a *asker) dirFlag(flags *flag.FlagSet) {
	flags.StringVar(&a.dir, "dir", "", "folder of the served world (required)")
}

// ask gives the body of an answer. A body that is not nil is posted as JSON.
func (a *asker) ask(ctx context.Context, path string, body any) ([]byte, error) {
	socket, err := socketOf(a.dir)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://fakeec2"+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("ask the served world: %w", err)
	}
	response, err := client.Do(request)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("ask the served world: no world is served in %s: start one with fakeec2 serve --dir %s: %w", a.dir, a.dir, errors.Unwrap(err))
	}
	if err != nil {
		return nil, fmt.Errorf("ask the served world: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("ask the served world: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the served world: %s: %s", response.Status, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
