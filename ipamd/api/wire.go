package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxFrame bounds one message, in bytes. A GC request is the longest: 1,000 attachments of 200 bytes are 200 kB.
const maxFrame = 1 << 20

// headerSize is the length prefix: 4 bytes, big-endian.
const headerSize = 4

// firstRead is what a frame's buffer starts with, in bytes. Nearly every message fits; a longer one grows as its bytes
// arrive, so that a header that promises 1 MiB costs nothing until it is kept.
const firstRead = 4 << 10

// Names of the methods on the wire.
const (
	methodAssign  = "assign"
	methodDone    = "done"
	methodRelease = "release"
	methodCheck   = "check"
	methodStatus  = "status"
	methodGC      = "gc"
)

// request is the envelope from plugin to daemon. Version is a pointer because a missing version is malformed, while
// Version-1 may be 0.
type request struct {
	Version *int            `json:"version"`
	Method  string          `json:"method"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// reply is the envelope from daemon to plugin. Version is the daemon's own, also in a refusal, so that a newer client can
// fall back to it.
type reply struct {
	Version int             `json:"version"`
	Error   *Error          `json:"error,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// writeFrame sends one message in a single Write, so that a reader never sees a header without a body unless the writer
// dies in between.
func writeFrame(w io.Writer, message any) error {
	body, err := encoded(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxFrame {
		return fmt.Errorf("send message: %d bytes are more than %d", len(body), maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, headerSize+len(body)), uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// encoded gives a message's JSON.
func encoded(m any) ([]byte, error) {
	if plain, ok := m.(message); ok {
		return plain.appendTo(nil), nil
	}
	return json.Marshal(m)
}

// readFrame reads one message's bytes. It returns io.EOF when the peer closed between messages, *Error with CodeMalformed
// for a length that is not allowed, and the reader's error otherwise.
func readFrame(r io.Reader) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size == 0 || size > maxFrame {
		return nil, malformed("length %d is not between 1 and %d", size, maxFrame)
	}
	body := make([]byte, min(size, firstRead))
	for filled := 0; ; {
		n, err := io.ReadFull(r, body[filled:])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		filled += n
		if filled == int(size) {
			return body, nil
		}
		grown := make([]byte, min(int(size), 2*len(body)))
		copy(grown, body)
		body = grown
	}
}

// decodeRequest reads a request's envelope and checks its version. A version refusal leaves the connection usable.
func decodeRequest(frame []byte) (request, *Error) {
	var message request
	if err := json.Unmarshal(frame, &message); err != nil {
		return request{}, malformed("%v", err)
	}
	if message.Version == nil {
		return request{}, malformed("field version is missing")
	}
	if v := *message.Version; v != Version && v != Version-1 {
		return request{}, NewError(CodeVersion, "message version is not supported",
			fmt.Sprintf("got %d, this daemon speaks %d and %d", v, Version, Version-1))
	}
	return message, nil
}

// decodeBody reads a request's body into a message of type T.
func decodeBody[T any](body json.RawMessage) (T, *Error) {
	var message T
	if err := json.Unmarshal(body, &message); err != nil {
		return message, malformed("body: %v", err)
	}
	return message, nil
}
