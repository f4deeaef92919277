package hostnet

import (
	"bytes"
	"errors"
)

// errUserData says that a rule's user data are not in the form that this package writes.
var errUserData = errors.New("no statement in user data")

// User data of a rule are a list of type, length, value. Type 0 is the comment that nft shows (libnftnl); nft passes over
// types that it does not know, and ours holds the statement's text.
const (
	userDataComment   = 0
	userDataStatement = 201 // as the route protocol
	userDataMax       = 256 // NFT_USERDATA_MAXLEN
)

// compiled is the edition of the phrases' expressions. It goes up whenever a phrase compiles to something else under the
// same text, so that a new daemon replaces the rules of an older one.
const compiled = "1 "

// userData keeps a statement with its rule in the kernel. Where both do not fit, the comment goes.
func (s Statement) userData() []byte {
	text := compiled + s.Text
	data := append([]byte{userDataStatement, byte(len(text))}, text...)
	comment := s.Why + "\x00"
	if s.Why == "" || len(data)+2+len(comment) > userDataMax {
		return data
	}
	return append(append([]byte{userDataComment, byte(len(comment))}, comment...), data...)
}

// statementOf reads the text back.
func statementOf(data []byte) (string, error) {
	for len(data) >= 2 {
		kind, length := data[0], int(data[1])
		if len(data) < 2+length {
			return "", errUserData
		}
		if kind == userDataStatement {
			text, ok := bytes.CutPrefix(data[2:2+length], []byte(compiled))
			if !ok {
				return "", errUserData
			}
			return string(text), nil
		}
		data = data[2+length:]
	}
	return "", errUserData
}
