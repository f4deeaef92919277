package introspect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// grpcCall sends one message as gRPC does and gives the answer's message and status.
func grpcCall(t *testing.T, client *http.Client, path string, message []byte) (answer []byte, status string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://localhost"+path, bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/grpc" {
		t.Errorf("%s %s of type %q", response.Proto, response.Status, response.Header.Get("Content-Type"))
	}
	if status = response.Trailer.Get("Grpc-Status"); status == "" {
		status = response.Header.Get("Grpc-Status")
	}
	return answer, status
}

// asked is the request's message for a service.
func asked(service string) []byte {
	if service == "" {
		return make([]byte, 5)
	}
	message := append([]byte{1<<3 | 2, byte(len(service))}, service...)
	return append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
}

func TestHealthOverGRPCAndPagesOnOneSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipamd.sock")
	ctx, cancel := context.WithCancel(context.Background())
	health := Health{
		"":     func(context.Context) error { return nil },
		"sick": func(context.Context) error { return errors.New("no") },
	}
	pages := Pages(map[string]Page{"/v1/x": func(context.Context) (any, error) { return 1, nil }})
	ended := make(chan error, 1)
	go func() { ended <- Around(nil).ServeLocal(ctx, "unix:"+path, health, pages) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUntil(ctx, path) }
	h2 := &http.Transport{DialContext: dial, Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: h2}

	const check = "/grpc.health.v1.Health/Check"
	for name, c := range map[string]struct {
		path    string
		message []byte
		answer  string // with its prefix
		status  string
	}{
		"the daemon serves":     {check, asked(""), "\x00\x00\x00\x00\x02\x08\x01", "0"},
		"a service does not":    {check, asked("sick"), "\x00\x00\x00\x00\x02\x08\x02", "0"},
		"unknown service":       {check, asked("else"), "", "5"},
		"watch":                 {"/grpc.health.v1.Health/Watch", asked(""), "", "12"},
		"another method":        {"/rpc.CNIBackend/DelNetwork", asked(""), "", "12"},
		"no message":            {check, nil, "", "3"},
		"compressed":            {check, []byte{1, 0, 0, 0, 0}, "", "3"},
		"length beyond the end": {check, []byte{0, 0, 0, 0, 9, 10}, "", "3"},
		"field beyond the end":  {check, []byte{0, 0, 0, 0, 2, 10, 200}, "", "3"},
		"not a text":            {check, []byte{0, 0, 0, 0, 2, 8, 1}, "", "3"},
		"unknown field":         {check, []byte{0, 0, 0, 0, 3, 2<<3 | 2, 1, 'x'}, "\x00\x00\x00\x00\x02\x08\x01", "0"},
		"long":                  {check, append([]byte{0, 0, 0, 8, 0}, make([]byte, 2048)...), "", "3"},
	} {
		answer, status := grpcCall(t, client, c.path, c.message)
		if string(answer) != c.answer || status != c.status {
			t.Errorf("%s: answer %q, status %s; want %q, %s", name, answer, status, c.answer, c.status)
		}
	}
	var page int
	if err := Ask(context.Background(), "unix:"+path, "/v1/x", &page); err != nil || page != 1 {
		t.Errorf("page %d: %v", page, err)
	}
	if err := Ask(context.Background(), "unix:"+path, "/v1/y", &page); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("unknown page: %v", err)
	}
	h2.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func FuzzHealthRequest(f *testing.F) {
	f.Add(asked("grpc.health.v1.aws-node"))
	f.Add([]byte{0, 0, 0, 0, 2, 10, 200})
	f.Fuzz(func(t *testing.T, data []byte) {
		service, err := readHealthRequest(bytes.NewReader(data))
		if err != nil && service != "" {
			t.Errorf("service %q with error %v", service, err)
		}
		if len(service) > len(data) {
			t.Errorf("service %q of %q", service, data)
		}
	})
}
