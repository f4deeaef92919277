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

// Options of a Handler. VPC is required.
type Options struct {
	VPC    *vpc.VPC
	Faults *fault.Table     // nil: nothing goes wrong
	Now    func() time.Time // nil: the wall clock
	Log    *slog.Logger     // one debug line for each request; nil: none
}

// Handler is the EC2 endpoint. It is safe for concurrent use.
type Handler struct {
	vpc     *vpc.VPC
	faults  *fault.Table
	now     func() time.Time
	log     *slog.Logger
	actions map[string]action
	journal journal
	served  atomic.Uint64
}

// New makes the endpoint of a model.
func New(opts Options) *Handler {
	h := &Handler{vpc: opts.VPC, faults: opts.Faults, now: opts.Now, log: opts.Log, actions: actions()}
	if h.faults == nil {
		h.faults = &fault.Table{}
	}
	if h.now == nil {
		h.now = time.Now
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	return h
}

// Journal gives the requests after since (an Entry's Seq; 0 for all that are kept), in the order in which they ended.
func (h *Handler) Journal(since uint64) []Entry { return h.journal.since(since) }

// ServeHTTP answers one request. It is in the journal before the client has the answer.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.now()
	entry := newEntry(r, began)
	entry.RequestID = requestID(h.served.Add(1))

	values, err := readForm(w, r)
	var effect fault.Effect
	var answer response
	if err == nil {
		entry.note(values)
		answer, effect, err = h.carryOut(r, values)
	}
	status, body := render(values.Get("Action"), entry.RequestID, answer, err)

	entry.finish(status, effect, err)
	entry.Took = h.now().Sub(began)
	entry = h.journal.add(entry)
	h.log.Debug("request served", "action", entry.Action, "status", status, "code", entry.Code, "fault", entry.Fault, "request", entry.RequestID)
	if effect.Lost {
		hangUp(w)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/xml;charset=UTF-8")
	header.Set("X-Amzn-Requestid", entry.RequestID)
	header.Set("Server", "AmazonEC2")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone: nobody is left to tell
}

// carryOut finds the action, lets faults have their way and runs it.
func (h *Handler) carryOut(r *http.Request, values url.Values) (response, fault.Effect, error) {
	name := values.Get("Action")
	act, known := h.actions[name]
	switch {
	case name == "":
		return nil, fault.Effect{}, refuse("MissingAction", "The request is missing an action or a required parameter.")
	case values.Get("Version") == "":
		return nil, fault.Effect{}, missing("Version")
	case values.Get("Version") != apiVersion:
		return nil, fault.Effect{}, refuse("NoSuchVersion", "The requested version (%s) of service AmazonEC2 does not exist", clip(values.Get("Version")))
	case !known:
		return nil, fault.Effect{}, refuse("InvalidAction", "The action %s is not valid for this web service.", clip(name))
	}
	effect := h.faults.Next(name, func(wanted string) bool { return mentions(values, wanted) })
	wait(r, effect.Delay)
	if effect.Code != "" {
		return nil, effect, &vpc.Error{Code: effect.Code, Message: cmp.Or(effect.Message, "Injected fault."), Status: effect.Status}
	}
	h.vpc.Advance(h.now())
	answer, err := act.run(h, values)
	return answer, effect, err
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

// readForm gives the parameters of the query string and, for POST, the body. The values are never nil.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	none := url.Values{}
	if r.Method != http.MethodPost && r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, POST")
		return none, &vpc.Error{Code: "MethodNotAllowed", Message: "The method " + clip(r.Method) + " is not allowed.", Status: http.StatusMethodNotAllowed}
	}
	if r.URL.Path != "/" && r.URL.Path != "" {
		return none, &vpc.Error{Code: "InvalidAction", Message: "The path " + clip(r.URL.Path) + " is not part of this web service.", Status: http.StatusNotFound}
	}
	query := r.URL.RawQuery
	if r.Method == http.MethodPost {
		kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		if kind = strings.TrimSpace(kind); kind != "application/x-www-form-urlencoded" {
			return none, refuse("UnsupportedProtocol", "The content type %q is not supported.", clip(kind))
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return none, &vpc.Error{Code: "RequestEntityTooLarge", Message: fmt.Sprintf("The request could not be read up to its end within %d bytes.", maxBody), Status: http.StatusRequestEntityTooLarge}
		}
		query += "&" + string(body)
	}
	values, ok := parseQuery(query)
	if !ok {
		return none, refuse("MalformedQueryString", "The query string contains a syntax error.")
	}
	return values, nil
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
