package introspect

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Ask reads a page of the daemon that serves at address (host:port or unix:/path) into content.
func Ask(ctx context.Context, address, path string, content any) error {
	network, at := "tcp", address
	if socket, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		network, at = "unix", socket
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, at)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", address, path, err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("ask the daemon at %s for %s: %w", address, path, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the daemon at %s for %s: it answers %s", address, path, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(content); err != nil {
		return fmt.Errorf("read the daemon's page %s: %w", path, err)
	}
	return nil
}
