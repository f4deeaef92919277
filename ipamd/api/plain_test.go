package api

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestPlainMessagesAreTheirJSON writes messages with every kind of string, and compares with encoding/json.
func TestPlainMessagesAreTheirJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	pieces := []string{"", "a", "web-0", `"`, `\`, "<", "&", ">", "é", "\x00", "\x7f", "\xff", "\u2028", " ", "/var/run/netns/x"}
	text := func() string {
		var b strings.Builder
		for range random.IntN(4) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	for range 3000 {
		a := Attachment{text(), text(), text()}
		pod := Pod{text(), text(), text()}
		version := random.IntN(3)
		for _, m := range []any{
			a, pod, DoneRequest{a}, ReleaseRequest{a, pod}, AssignRequest{a, pod, text(), random.Int64() - random.Int64()},
			request{Version: &version, Method: text()}, request{Version: &version, Method: "x", Body: json.RawMessage(`{"a":1}`)},
		} {
			want, err := json.Marshal(m)
			must(t, err)
			if got := m.(message).appendTo(nil); string(got) != string(want) {
				t.Fatalf("%#v:\n%s, not\n%s", m, got, want)
			}
		}
	}
}

func TestRecipesAreRead(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"hostVeth":"eni1","mtu":9001,"addr":"10.0.1.20/32","gateway":"169.254.1.1","table":7000,"protocol":201,"eni":"eni-1","device":2}`: true,
		"{ \"repeat\" :\ttrue, \"mtu\":-1}\n": true,
		`{}`:                                  true,
		`{"mtu":1.5}`:                         false,
		`{"mtu":"1"}`:                         false,
		`{"mtu":99999999999999999999}`:        false,
		`{"addr":"10.0.1.20"}`:                false,
		`{"addr":null}`:                       false,
		`{"hostVeth":1}`:                      false,
		`{"hostVeth":"a\u0062"}`:              false,
		`{"routes":["10.0.0.0/8"]}`:           false,
		`{"new":[{"a":[]},-0]}`:               false,
		`{"mtu":1}x`:                          false,
		`{"mtu":1`:                            false,
		`null`:                                false,
	} {
		var got PodNetwork
		if plainNetwork([]byte(text), &got) != plain {
			t.Errorf("%s: plain is %v", text, !plain)
		}
	}
}

// FuzzPlain compares what is read here with what encoding/json reads: everything that is plain must mean the same.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"body":{"hostVeth":"eni1","mtu":9001,"addr":"10.0.1.20/32","gateway":"169.254.1.1","repeat":false}}`,
		`{"version":1}`, `{"version":0,"error":{"code":11}}`, `{"Version":1,"BODY":{}}`, `{"a":[1,-2,{"b":null}],"version":2,"version":3}`,
		`{"body":{"mtu":01}}`, `{"body":{ "routes":[ ] } , "version":1 } `, `{"body":[1,]}`, `{"a":tru}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		got, plain := plainReply(frame)
		if !plain {
			return
		}
		var want reply
		if err := json.Unmarshal(frame, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, not %+v, %v", frame, got, want, err)
		}
		var network, same PodNetwork
		if plainNetwork(got.Body, &network) {
			if err := json.Unmarshal(got.Body, &same); err != nil || !reflect.DeepEqual(network, same) {
				t.Fatalf("%s: %+v, not %+v, %v", got.Body, network, same, err)
			}
		}
	})
}
