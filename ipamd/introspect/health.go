package introspect

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Health answers grpc.health.v1.Health/Check: of a service, by its name in the request, whether it serves. It speaks gRPC's
// protocol over the standard library's HTTP/2 (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md): one message
// of one field each way is no reason for a gRPC library in the daemon. Watch and everything else is answered UNIMPLEMENTED,
// which clients of the health protocol have to expect.
type Health map[string]func(ctx context.Context) error

// gRPC's status codes, and its health protocol's answers.
const (
	grpcOK              = "0"
	grpcInvalidArgument = "3"
	grpcNotFound        = "5"
	grpcUnimplemented   = "12"

	healthServing    = 1
	healthNotServing = 2
)

const (
	healthMethod  = "/grpc.health.v1.Health/Check"
	grpcType      = "application/grpc"
	grpcPrefix    = 5    // bytes before a message: not compressed, and its length
	healthMax     = 1024 // bytes of a request; a service's name is all that is in it
	healthTimeout = 3 * time.Second
)

// ServeHTTP implements http.Handler.
func (h Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != healthMethod {
		refuse(w, grpcUnimplemented, "only "+healthMethod+" is served here")
		return
	}
	service, err := readHealthRequest(r.Body)
	if err != nil {
		refuse(w, grpcInvalidArgument, err.Error())
		return
	}
	check, ok := h[service]
	if !ok {
		refuse(w, grpcNotFound, "unknown service")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	answer := byte(healthServing)
	if check(ctx) != nil {
		answer = healthNotServing
	}
	w.Header().Set("Content-Type", grpcType)
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, answer}) // field 1, a varint; the client may be gone
	w.Header().Set("Grpc-Status", grpcOK)
}

// refuse answers without a message.
func refuse(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", grpcType)
	w.Header().Set("Grpc-Status", code)
	w.Header().Set("Grpc-Message", message)
}

// readHealthRequest gives the service that is asked for; "" is the daemon as a whole.
func readHealthRequest(body io.Reader) (service string, err error) {
	data, err := io.ReadAll(io.LimitReader(body, healthMax+1))
	switch {
	case err != nil:
		return "", errors.New("request not read")
	case len(data) > healthMax || len(data) < grpcPrefix || data[0] != 0 || int(binary.BigEndian.Uint32(data[1:])) != len(data)-grpcPrefix:
		return "", errors.New("request is not one short, uncompressed message")
	}
	for rest := data[grpcPrefix:]; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		if n <= 0 || tag&7 != 2 { // a text is all that the protocol has
			return "", errors.New("request is not understood")
		}
		size, m := binary.Uvarint(rest[n:])
		if m <= 0 || size > uint64(len(rest)-n-m) {
			return "", errors.New("request is cut off")
		}
		rest = rest[n+m:]
		if tag>>3 == 1 {
			service = string(rest[:size])
		}
		rest = rest[size:]
	}
	return service, nil
}

// ServeLocal answers health checks at address, and shows pages to whoever does not speak gRPC, until ctx ends; see Serve.
func (a Around) ServeLocal(ctx context.Context, address string, health Health, pages http.Handler) error {
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), grpcType) {
			health.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // as gRPC does it on a unix socket
	return a.serve(ctx, address, server)
}
