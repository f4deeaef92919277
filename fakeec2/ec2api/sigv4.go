package ec2api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// maxSkew is how far a request's time may be from the endpoint's. Source: EC2 API reference, "RequestExpired" (15 minutes).
const maxSkew = 15 * time.Minute

// stampLayout is the form of X-Amz-Date. Source: AWS Signature Version 4.
const stampLayout = "20060102T150405Z"

// Key is what an access key id stands for.
type Key struct {
	Secret  string
	Token   string                  // session token; "" for a long-lived key
	Good    func(token string) bool // where more than one session token is good, in place of Token
	OptedIn bool                    // the account has subscribed; else it gets OptInRequired
}

// signature is what a signed request says of itself.
type signature struct {
	accessKey, date, region, service string
	headers                          []string
	value, stamp, token              string
	query                            bool // it stands in the query string
	ok                               bool
}

func (h *Handler) authFailure() *vpc.Error {
	return &vpc.Error{Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials", Status: h.inferred.AuthFailureStatus}
}

// verify refuses a request that is not signed (Signature Version 4) with a key that the endpoint knows.
func (h *Handler) verify(r request) error {
	s := readSignature(r)
	if !s.ok {
		return h.authFailure()
	}
	key, known := h.keys(s.accessKey)
	stamp, err := time.Parse(stampLayout, s.stamp)
	switch {
	case !known || err != nil || !strings.HasPrefix(s.stamp, s.date) || s.service != "ec2":
		return h.authFailure()
	case key.Good == nil && key.Token != s.token, key.Good != nil && !key.Good(s.token):
		return &vpc.Error{Code: "InvalidClientTokenId", Message: "The security token included in the request is invalid.", Status: http.StatusForbidden}
	case stamp.Sub(h.now()).Abs() > maxSkew:
		return refuse("RequestExpired", "Request has expired.")
	case !hmac.Equal([]byte(s.value), []byte(s.compute(r, key.Secret))):
		return &vpc.Error{Code: "SignatureDoesNotMatch", Message: "The request signature we calculated does not match the signature you provided.", Status: http.StatusForbidden}
	case !key.OptedIn:
		return &vpc.Error{Code: "OptInRequired", Message: "You are not subscribed to this service.", Status: http.StatusUnauthorized}
	}
	return nil
}

func readSignature(r request) signature {
	s := signature{stamp: r.Header.Get("X-Amz-Date"), token: r.Header.Get("X-Amz-Security-Token")}
	scope := ""
	if text, inHeader := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "); inHeader {
		for part := range strings.SplitSeq(text, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch name {
			case "Credential":
				scope = value
			case "SignedHeaders":
				s.headers = strings.Split(value, ";")
			case "Signature":
				s.value = value
			}
		}
	} else {
		s.query = true
		scope, s.value = r.values.Get("X-Amz-Credential"), r.values.Get("X-Amz-Signature")
		s.headers, s.stamp, s.token = strings.Split(r.values.Get("X-Amz-SignedHeaders"), ";"), r.values.Get("X-Amz-Date"), r.values.Get("X-Amz-Security-Token")
	}
	parts := strings.Split(scope, "/")
	if len(parts) != 5 || parts[4] != "aws4_request" || s.value == "" || !slices.Contains(s.headers, "host") {
		return s
	}
	s.accessKey, s.date, s.region, s.service, s.ok = parts[0], parts[1], parts[2], parts[3], true
	return s
}

// compute gives the signature that the request should have. Source: IAM user guide, "Create a signed AWS API request".
func (s signature) compute(r request, secret string) string {
	digest := sha256.Sum256(r.body)
	canonical := strings.Join([]string{r.Method, "/", s.canonicalQuery(r), s.canonicalHeaders(r), strings.Join(s.headers, ";"), hex.EncodeToString(digest[:])}, "\n")
	hashed := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{s.date, s.region, s.service, "aws4_request"}, "/")
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", s.stamp, scope, hex.EncodeToString(hashed[:])}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.date, s.region, s.service, "aws4_request", toSign} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

func (s signature) canonicalHeaders(r request) string {
	var b strings.Builder
	for _, name := range s.headers {
		values := r.Header.Values(name)
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{r.Header.Get("Content-Length")}
			if r.ContentLength >= 0 && values[0] == "" {
				values = []string{strconv.FormatInt(r.ContentLength, 10)}
			}
		}
		for n := range values {
			values[n] = strings.Join(strings.Fields(values[n]), " ")
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	return b.String()
}

// canonicalQuery is the query string in order, without the signature itself.
func (s signature) canonicalQuery(r request) string {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return ""
	}
	if s.query {
		query.Del("X-Amz-Signature")
	}
	return strings.ReplaceAll(query.Encode(), "+", "%20")
}
