package api

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
)

// Plain JSON is what nearly every message is: objects, integers, strings of printable ASCII without escapes. The plugin reads
// and writes that itself, because encoding/json learns each type anew in every process: a third of a millisecond for each
// ADD. Whatever is not plain, and whatever is wrong, is left to encoding/json: the functions here say so and decide nothing.

// maxDepth bounds nested values; deeper ones are not plain.
const maxDepth = 32

// Members calls each for the members of a JSON object, in their order, until it returns false. It returns false when it was
// stopped and when the text is not plain; each may have been called before that.
func Members(text []byte, each func(name string, value []byte) bool) bool {
	rest, ok := object(space(text), maxDepth, each)
	return ok && len(space(rest)) == 0
}

// PlainString is the string that a member's value is. False: it is another kind of value.
func PlainString(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	return string(value[1 : len(value)-1]), true
}

// AppendString adds a string as JSON.
func AppendString(text []byte, value string) []byte {
	if strings.IndexFunc(value, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r) }) >= 0 {
		quoted, _ := json.Marshal(value) // a string never fails
		return append(text, quoted...)
	}
	return append(append(append(text, '"'), value...), '"')
}

// space cuts off leading white space.
func space(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
		text = text[1:]
	}
	return text
}

// token cuts off one character and the white space behind it.
func token(text []byte, want byte) (rest []byte, ok bool) {
	if len(text) == 0 || text[0] != want {
		return text, false
	}
	return space(text[1:]), true
}

// end cuts off a value's last character; the white space behind it is not the value's.
func end(text []byte, want byte) (rest []byte, ok bool) {
	if len(text) == 0 || text[0] != want {
		return text, false
	}
	return text[1:], true
}

// object reads an object; the text begins with it. each may be nil.
func object(text []byte, depth int, each func(string, []byte) bool) (rest []byte, ok bool) {
	if text, ok = token(text, '{'); !ok || depth == 0 {
		return nil, false
	}
	if rest, ok = end(text, '}'); ok {
		return rest, true
	}
	for {
		name, rest, ok := quoted(text)
		if !ok {
			return nil, false
		}
		if rest, ok = token(space(rest), ':'); !ok {
			return nil, false
		}
		after, ok := value(rest, depth-1)
		if !ok || each != nil && !each(string(name), rest[:len(rest)-len(after)]) {
			return nil, false
		}
		after = space(after)
		if text, ok = token(after, ','); !ok {
			return end(after, '}')
		}
	}
}

// list reads an array; the text begins with it.
func list(text []byte, depth int) (rest []byte, ok bool) {
	if text, ok = token(text, '['); !ok || depth == 0 {
		return nil, false
	}
	if rest, ok = end(text, ']'); ok {
		return rest, true
	}
	for {
		if rest, ok = value(text, depth-1); !ok {
			return nil, false
		}
		rest = space(rest)
		if text, ok = token(rest, ','); !ok {
			return end(rest, ']')
		}
	}
}

// value reads any plain value.
func value(text []byte, depth int) (rest []byte, ok bool) {
	if len(text) == 0 {
		return nil, false
	}
	switch c := text[0]; {
	case c == '{':
		return object(text, depth, nil)
	case c == '[':
		return list(text, depth)
	case c == '"':
		_, rest, ok = quoted(text)
		return rest, ok
	case c == '-' || '0' <= c && c <= '9':
		return number(text)
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(text, []byte(word)) {
			return text[len(word):], true
		}
	}
	return nil, false
}

// quoted reads a string and gives what is between its quotes.
func quoted(text []byte) (inside, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[1:i], text[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// number reads an integer.
func number(text []byte) (rest []byte, ok bool) {
	end := 1
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	if end < len(text) && strings.IndexByte(".eE", text[end]) >= 0 {
		return nil, false
	}
	digits := strings.TrimPrefix(string(text[:end]), "-")
	if digits == "" || len(digits) > 1 && digits[0] == '0' || string(text[:end]) == "-0" {
		return nil, false
	}
	return text[end:], true
}

// plainReply reads an answer without an error.
func plainReply(frame []byte) (answer reply, plain bool) {
	plain = Members(frame, func(name string, value []byte) bool {
		switch name {
		case "version":
			return plainInt(value, &answer.Version)
		case "body":
			answer.Body = value
			return string(value) != "null"
		}
		return !strings.EqualFold(name, "error") && !strings.EqualFold(name, "version") && !strings.EqualFold(name, "body")
	})
	return answer, plain
}

// plainNetwork reads a recipe.
func plainNetwork(body []byte, into *PodNetwork) (plain bool) {
	var n PodNetwork
	plain = Members(body, func(name string, value []byte) bool {
		text, isText := PlainString(value)
		var err error
		switch name {
		case "hostVeth":
			n.HostVeth = text
		case "addr":
			n.Addr, err = netip.ParsePrefix(text)
		case "gateway":
			n.Gateway, err = netip.ParseAddr(text)
		case "eni":
			n.ENI = text
		case "mtu":
			return plainInt(value, &n.MTU)
		case "table":
			return plainInt(value, &n.Table)
		case "protocol":
			return plainInt(value, &n.Protocol)
		case "device":
			return plainInt(value, &n.Device)
		case "repeat":
			n.Repeat = string(value) == "true"
			return n.Repeat || string(value) == "false"
		default:
			return false // routes, and what a newer daemon says
		}
		return isText && err == nil
	})
	if plain {
		*into = n
	}
	return plain
}

func plainInt(value []byte, into *int) bool {
	n, err := strconv.Atoi(string(value))
	*into = n
	return err == nil
}

// message is one that is written without encoding/json.
type message interface {
	appendTo(text []byte) []byte
}

func (a Attachment) members(text []byte) []byte {
	text = AppendString(append(text, `"network":`...), a.Network)
	text = AppendString(append(text, `,"containerID":`...), a.ContainerID)
	return AppendString(append(text, `,"ifName":`...), a.IfName)
}

func (a Attachment) appendTo(text []byte) []byte { return append(a.members(append(text, '{')), '}') }

func (m DoneRequest) appendTo(text []byte) []byte { return m.Attachment.appendTo(text) }

func (p Pod) appendTo(text []byte) []byte {
	text = AppendString(append(text, `{"namespace":`...), p.Namespace)
	text = AppendString(append(text, `,"name":`...), p.Name)
	if p.UID != "" {
		text = AppendString(append(text, `,"uid":`...), p.UID)
	}
	return append(text, '}')
}

func (m AssignRequest) appendTo(text []byte) []byte {
	text = m.members(append(text, '{'))
	text = m.Pod.appendTo(append(text, `,"pod":`...))
	text = AppendString(append(text, `,"netns":`...), m.NetNS)
	text = strconv.AppendInt(append(text, `,"deadlineMS":`...), m.DeadlineMS, 10)
	return append(text, '}')
}

func (m ReleaseRequest) appendTo(text []byte) []byte {
	text = m.members(append(text, '{'))
	return append(m.Pod.appendTo(append(text, `,"pod":`...)), '}')
}

// appendTo writes the envelope.
func (r request) appendTo(text []byte) []byte {
	text = strconv.AppendInt(append(text, `{"version":`...), int64(*r.Version), 10)
	text = AppendString(append(text, `,"method":`...), r.Method)
	if len(r.Body) > 0 {
		text = append(append(text, `,"body":`...), r.Body...)
	}
	return append(text, '}')
}
