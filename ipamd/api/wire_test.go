package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// framed puts a length before a body.
func framed(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestFrameRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 20, firstRead, firstRead + 1, 5*firstRead + 3, maxFrame - 100} {
		var wire bytes.Buffer
		sent := strings.Repeat("x", size)
		if err := writeFrame(&wire, sent); err != nil {
			t.Fatal(err)
		}
		frame, err := readFrame(iotest.HalfReader(&wire))
		if err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		var got string
		if err := json.Unmarshal(frame, &got); err != nil || got != sent || wire.Len() != 0 {
			t.Errorf("size %d: %d bytes came, %d left, %v", size, len(got), wire.Len(), err)
		}
	}
	if err := writeFrame(io.Discard, strings.Repeat("x", maxFrame)); err == nil {
		t.Error("too long a message was sent")
	}
}

func TestFrameRefusals(t *testing.T) {
	cases := map[string]struct {
		wire []byte
		want error // io.EOF, io.ErrUnexpectedEOF, or nil for a refusal as malformed
	}{
		"closed":            {nil, io.EOF},
		"half a header":     {[]byte{0, 0}, io.ErrUnexpectedEOF},
		"no body":           {[]byte{0, 0, 0, 1}, io.ErrUnexpectedEOF},
		"half a body":       {framed("{}")[:5], io.ErrUnexpectedEOF},
		"cut after a chunk": {append([]byte{0, 1, 0, 0}, make([]byte, firstRead)...), io.ErrUnexpectedEOF},
		"empty":             {[]byte{0, 0, 0, 0}, nil},
		"a byte too long":   {[]byte{0, 0x10, 0, 1}, nil},
		"huge":              {[]byte{0xff, 0xff, 0xff, 0xff}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := readFrame(bytes.NewReader(c.wire))
			if c.want == nil {
				wantCode(t, err, CodeMalformed)
			} else if err != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(framed(`{"version":1,"method":"assign","body":{"network":"n","netns":"/run/x","deadlineMS":1}}`))
	f.Add(framed(`{"version":1,"method":"gc","body":{"valid":[{"ifName":"eth0"}]}}`))
	f.Add(framed(`{"version":99}`))
	f.Add([]byte{0, 0x10, 0, 1, '{'})
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		reader := bytes.NewReader(wire)
		frame, err := readFrame(reader)
		var refusal *Error
		switch {
		case errors.As(err, &refusal):
			if refusal.Code != CodeMalformed {
				t.Errorf("code %d", refusal.Code)
			}
			return
		case err != nil:
			return
		case len(frame) == 0 || len(frame) > maxFrame || len(frame)+headerSize+reader.Len() != len(wire):
			t.Fatalf("frame of %d bytes out of %d, %d left", len(frame), len(wire), reader.Len())
		}
		message, refusal := decodeRequest(frame)
		if refusal != nil {
			return
		}
		if v := *message.Version; v != Version && v != Version-1 {
			t.Errorf("version %d was accepted", v)
		}
		assign, refusal := decodeBody[AssignRequest](message.Body)
		if refusal != nil {
			return
		}
		again, err := json.Marshal(assign) // what was understood can be said again
		if err != nil {
			t.Fatal(err)
		}
		if second, refusal := decodeBody[AssignRequest](again); refusal != nil || second != assign {
			t.Errorf("%+v became %+v, %v", assign, second, refusal)
		}
	})
}

// exchangeRaw sends bytes as they are and returns the answer, and whether the server then closed.
func exchangeRaw(t *testing.T, path string, wire []byte) (answer reply, closed bool) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Write(wire)
	must(t, err)
	frame, err := readFrame(conn)
	must(t, err)
	must(t, json.Unmarshal(frame, &answer))
	must(t, conn.SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	return answer, errors.Is(err, io.EOF)
}

func TestServerAnswersBadMessages(t *testing.T) {
	path, _ := daemon(t, newBook())
	cases := map[string]struct {
		wire   []byte
		code   uint
		closed bool
	}{
		"zero length":        {[]byte{0, 0, 0, 0}, CodeMalformed, true},
		"too long":           {[]byte{0xff, 0xff, 0xff, 0xff}, CodeMalformed, true},
		"no JSON":            {framed("GET / HTTP/1.1"), CodeMalformed, true},
		"JSON, no object":    {framed("[1]"), CodeMalformed, true},
		"null":               {framed("null"), CodeMalformed, true},
		"no version":         {framed(`{"method":"status"}`), CodeMalformed, true},
		"version is text":    {framed(`{"version":"1","method":"status"}`), CodeMalformed, true},
		"unknown method":     {framed(`{"version":1,"method":"reboot"}`), CodeMalformed, true},
		"no method":          {framed(`{"version":1}`), CodeMalformed, true},
		"body missing":       {framed(`{"version":1,"method":"assign"}`), CodeMalformed, true},
		"body of wrong type": {framed(`{"version":1,"method":"check","body":7}`), CodeMalformed, true},
		"newer version":      {framed(`{"version":2,"method":"status"}`), CodeVersion, false},
		"negative version":   {framed(`{"version":-1,"method":"status"}`), CodeVersion, false},
		"this version":       {framed(`{"version":1,"method":"status"}`), 0, false},
		"version before":     {framed(`{"version":0,"method":"status"}`), 0, false},
		"unknown fields":     {framed(`{"version":1,"method":"release","trace":"x","body":{"containerID":"a","colour":1}}`), 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, closed := exchangeRaw(t, path, c.wire)
			var code uint
			if answer.Error != nil {
				code = answer.Error.Code
			}
			if code != c.code || closed != c.closed || answer.Version != Version {
				t.Errorf("code %d, closed %v, version %d: %v", code, closed, answer.Version, answer.Error)
			}
		})
	}
}

func TestClientFallsBackToADaemonOneVersionOlder(t *testing.T) {
	near, far := net.Pipe()
	client := &Client{conn: near, version: Version}
	var versions []int
	go func() { // a daemon of the release before
		defer far.Close()
		for {
			frame, err := readFrame(far)
			if err != nil {
				return
			}
			var message request
			_ = json.Unmarshal(frame, &message)
			versions = append(versions, *message.Version)
			answer := reply{Version: Version - 1}
			if *message.Version > Version-1 {
				answer.Error = NewError(CodeVersion, "unsupported", "")
			}
			if writeFrame(far, answer) != nil {
				return
			}
		}
	}()
	must(t, client.Status(t.Context()))
	must(t, client.Status(t.Context()))
	_ = client.Close()
	if want := []int{Version, Version - 1, Version - 1}; !reflect.DeepEqual(versions, want) {
		t.Errorf("versions asked %v, want %v", versions, want)
	}
}
