package ec2api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const namespace = "http://ec2.amazonaws.com/doc/" + apiVersion + "/"

// response is a struct whose fields are the elements of an <ActionResponse>; it embeds head.
type response interface{ stamp(requestID string) }

// head is what every successful response begins with.
type head struct {
	XMLNS     string `xml:"xmlns,attr"`
	RequestID string `xml:"requestId"`
}

func (h *head) stamp(requestID string) { h.XMLNS, h.RequestID = namespace, requestID }

// done answers an action that gives nothing back.
type done struct {
	head
	Return bool `xml:"return"`
}

// set is a list as EC2 writes it: a wrapper, also when empty, with <item> elements.
type set[T any] struct {
	Items []T `xml:"item"`
}

func setOf[From, To any](from []From, convert func(From) To) set[To] {
	s := set[To]{Items: make([]To, len(from))}
	for n, f := range from {
		s.Items[n] = convert(f)
	}
	return s
}

// failure is the body of an error. EC2 writes RequestID here and requestId in a success.
type failure struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

// render gives status and body of an answer or an error.
func render(action, requestID string, answer response, err error) (int, []byte) {
	if err != nil {
		return renderFailure(requestID, err)
	}
	answer.stamp(requestID)
	var body bytes.Buffer
	body.WriteString(xml.Header)
	if err := xml.NewEncoder(&body).EncodeElement(answer, xml.StartElement{Name: xml.Name{Local: action + "Response"}}); err != nil {
		return renderFailure(requestID, err)
	}
	return http.StatusOK, body.Bytes()
}

func renderFailure(requestID string, err error) (int, []byte) {
	refusal := &vpc.Error{Code: "InternalError", Message: "An internal error has occurred", Status: http.StatusInternalServerError}
	errors.As(err, &refusal)
	var body bytes.Buffer
	body.WriteString(xml.Header)
	// Encoding three strings into memory cannot fail.
	_ = xml.NewEncoder(&body).Encode(failure{Code: refusal.Code, Message: refusal.Message, RequestID: requestID})
	return refusal.Status, body.Bytes()
}

// stamp3339 is a time as EC2 writes it: UTC with milliseconds.
func stamp3339(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
