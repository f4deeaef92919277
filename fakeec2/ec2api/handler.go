// Package ec2api speaks EC2's Query protocol for a vpc.VPC: forms in, XML out.
//
// It owns the wire: decoding, filters, paging, response and error shapes, the request journal, and carrying out the faults of
// a fault.Table. It never decides a law of the VPC (package vpc does) and never keeps state about resources. Whatever it does
// not know (action, parameter, filter) it refuses loudly; what EC2 knows but this fake does not yet, it refuses by name.
//
// Start with Handler.ServeHTTP here, then actions.go for the table of actions.
package ec2api

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// apiVersion is the only version of the EC2 API that clients speak today.
const apiVersion = "2016-11-15"

// maxBody bounds a request: a value of 1 MB must still be judged by its parameter's own rule, not by the reader.
const maxBody = 4 << 20

// readTimeout bounds the reading of one request: EC2 does not wait for ever for a slow client.
const readTimeout = 20 * time.Second

// Options of a Handler. VPC is required.
type Options struct {
	VPC     *vpc.VPC
	Faults  *fault.Table     // nil: nothing goes wrong
	Buckets *fault.Buckets   // nil: nothing is throttled but by a fault
	Now     func() time.Time // nil: the wall clock
	Log     *slog.Logger     // one debug line for each request; nil: none

	Keys     func(accessKey string) (Key, bool)      // nil: signatures are not looked at
	Denied   func(accessKey, action string) bool     // nil: everybody may do everything
	Account  func(accessKey string) (account string) // whose buckets a request empties; nil: the model's account
	Inferred Inferred

	MaxUnpaged  int           // more ENIs than this are not described without pages or filters; 0: no limit
	ReadTimeout time.Duration // of one request; default 20 s
}

// Inferred has what no source tells of EC2's endpoint. The zero value is what is thought likely.
type Inferred struct {
	AuthFailureStatus int    // HTTP status of AuthFailure; 0 is 401
	GroupNotFound     string // code for an unknown security group; "" is InvalidGroup.NotFound
	PageToken         string // code for a bad page token; "" is InvalidPaginationToken
	PageSize          string // code for a page size out of range; "" is InvalidParameterValue
}

// Handler is the EC2 endpoint. It is safe for concurrent use.
type Handler struct {
	vpc         *vpc.VPC
	faults      *fault.Table
	buckets     *fault.Buckets
	now         func() time.Time
	log         *slog.Logger
	keys        func(accessKey string) (Key, bool)
	denied      func(accessKey, action string) bool
	account     func(accessKey string) string
	inferred    Inferred
	maxUnpaged  int
	readTimeout time.Duration
	actions     map[string]action
	journal     journal
	served      atomic.Uint64
}

// New makes the endpoint of a model.
func New(opts Options) *Handler {
	h := &Handler{
		vpc: opts.VPC, faults: opts.Faults, buckets: opts.Buckets, now: opts.Now, log: opts.Log, keys: opts.Keys, denied: opts.Denied,
		account: opts.Account, inferred: opts.Inferred, maxUnpaged: opts.MaxUnpaged, readTimeout: cmp.Or(opts.ReadTimeout, readTimeout),
		actions: actions(),
	}
	if h.faults == nil {
		h.faults = &fault.Table{}
	}
	if h.buckets == nil {
		h.buckets = fault.NewBuckets(false)
	}
	if h.now == nil {
		h.now = time.Now
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.account == nil {
		h.account = func(string) string { return h.vpc.Account() }
	}
	h.inferred.AuthFailureStatus = cmp.Or(h.inferred.AuthFailureStatus, http.StatusUnauthorized)
	return h
}

// Journal gives the requests after since (an Entry's Seq; 0 for all that are kept), in the order in which they ended.
func (h *Handler) Journal(since uint64) []Entry { return h.journal.since(since) }

// ServeHTTP answers one request. It is in the journal before the client has the answer.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.now()
	entry := newEntry(r, began)
	entry.RequestID = requestID(h.served.Add(1))

	values, body, err := h.readForm(w, r)
	var effect fault.Effect
	var answer response
	if err == nil {
		entry.note(values)
		answer, effect, err = h.carryOut(request{r, values, body, entry.AccessKey})
	}
	status, page := render(values.Get("Action"), entry.RequestID, answer, err)

	entry.finish(status, effect, err)
	entry.Took = h.now().Sub(began)
	entry = h.journal.add(entry)
	h.log.Debug("request served", "action", entry.Action, "status", status, "code", entry.Code, "fault", entry.Fault, "request", entry.RequestID)
	if effect.Lost || effect.Hang {
		hangUp(w)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/xml;charset=UTF-8")
	header.Set("X-Amzn-Requestid", entry.RequestID)
	header.Set("Server", "AmazonEC2")
	header.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page) // the client may have gone: nobody is left to tell
}

// request is what came over the wire.
type request struct {
	*http.Request
	values    url.Values
	body      []byte
	accessKey string
}

// carryOut finds the action, lets faults have their way and runs it.
func (h *Handler) carryOut(r request) (response, fault.Effect, error) {
	name := r.values.Get("Action")
	act, known := h.actions[name]
	switch {
	case name == "":
		return nil, fault.Effect{}, refuse("MissingAction", "The request is missing an action or a required parameter.")
	case r.values.Get("Version") == "":
		return nil, fault.Effect{}, missing("Version")
	case r.values.Get("Version") != apiVersion:
		return nil, fault.Effect{}, refuse("NoSuchVersion", "The requested version (%s) of service AmazonEC2 does not exist", clip(r.values.Get("Version")))
	case !known:
		return nil, fault.Effect{}, refuse("InvalidAction", "The action %s is not valid for this web service.", clip(name))
	}
	if h.keys != nil {
		if err := h.verify(r); err != nil {
			return nil, fault.Effect{}, err
		}
	}
	if !h.buckets.Take(h.now(), h.account(r.accessKey), name, plain(r.values), asked(name, r.values)) {
		return nil, fault.Effect{Rule: "token bucket"}, &vpc.Error{Code: fault.ThrottleCode, Message: "Request limit exceeded.", Status: http.StatusServiceUnavailable}
	}
	effect := h.faults.Next(name, func(wanted string) bool { return mentions(r.values, wanted) })
	wait(r.Request, effect.Delay)
	if effect.Hang {
		select {
		case <-r.Context().Done():
		case <-effect.Lifted:
		}
		return nil, effect, refuse("RequestTimeout", "The fault %q kept the request.", effect.Rule)
	}
	if effect.Code != "" {
		return nil, effect, &vpc.Error{Code: effect.Code, Message: cmp.Or(effect.Message, "Injected fault."), Status: effect.Status}
	}
	h.vpc.Advance(h.now())
	answer, err := act.run(&call{Handler: h, accessKey: r.accessKey, stale: effect.Stale}, name, r.values)
	return answer, effect, h.inferred.renamed(err)
}

// plain tells whether a request neither filters nor pages: some describes then cost from a smaller bucket.
func plain(values url.Values) bool {
	if values.Has("MaxResults") || values.Has("NextToken") {
		return false
	}
	for key := range values {
		if strings.HasPrefix(key, "Filter.") {
			return false
		}
	}
	return true
}

// asked is how many instances a request starts or ends, for the buckets that count resources.
func asked(name string, values url.Values) int {
	switch name {
	case "RunInstances":
		n, err := strconv.Atoi(values.Get("MaxCount"))
		if err != nil {
			return 0
		}
		return n
	case "TerminateInstances", "StartInstances":
		n := 0
		for key := range values {
			if strings.HasPrefix(key, "InstanceId.") {
				n++
			}
		}
		return n
	}
	return 0
}

// wait lets a fault's delay pass. A client that gives up ends it early: its request is carried out all the same, as EC2 does.
func wait(r *http.Request, delay time.Duration) {
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's own way to drop a connection that cannot be hijacked (HTTP/2)
	}
	_ = conn.Close() // dropping it is the point
}

// readForm gives the parameters of the query string and, for POST, the body; and the body as it came. The values are never nil.
func (h *Handler) readForm(w http.ResponseWriter, r *http.Request) (url.Values, []byte, error) {
	none := url.Values{}
	if r.Method != http.MethodPost && r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, POST")
		return none, nil, &vpc.Error{Code: "MethodNotAllowed", Message: "The method " + clip(r.Method) + " is not allowed.", Status: http.StatusMethodNotAllowed}
	}
	if r.URL.Path != "/" && r.URL.Path != "" {
		return none, nil, &vpc.Error{Code: "InvalidAction", Message: "The path " + clip(r.URL.Path) + " is not part of this web service.", Status: http.StatusNotFound}
	}
	query := r.URL.RawQuery
	var body []byte
	if r.Method == http.MethodPost {
		kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		if kind = strings.TrimSpace(kind); kind != "application/x-www-form-urlencoded" {
			return none, nil, refuse("UnsupportedProtocol", "The content type %q is not supported.", clip(kind))
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.readTimeout)) // a recorder in a test has none
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
			return none, nil, unread(err)
		}
		query += "&" + string(body)
	}
	values, ok := parseQuery(query)
	if !ok {
		return none, nil, refuse("MalformedQueryString", "The query string contains a syntax error.")
	}
	return values, body, nil
}

// unread says why a body could not be read to its end.
func unread(err error) *vpc.Error {
	if _, tooBig := errors.AsType[*http.MaxBytesError](err); tooBig {
		return &vpc.Error{Code: "RequestEntityTooLarge", Message: fmt.Sprintf("The request is larger than %d bytes.", maxBody), Status: http.StatusRequestEntityTooLarge}
	}
	return refuse("RequestTimeout", "Your socket connection to the server was not read from or written to within the timeout period.")
}

func mentions(values url.Values, wanted string) bool {
	for _, list := range values {
		for _, value := range list {
			if value == wanted {
				return true
			}
		}
	}
	return false
}

// requestID has the form of EC2's (a UUID) and counts up, so that runs compare.
func requestID(n uint64) string {
	return fmt.Sprintf("%08x-%04x-4000-8000-%012x", n>>32, n>>16&0xffff, n)
}
