// Package fault is a table of faults that a fake service carries out: which request, and what goes wrong with it.
//
// It owns matching and counting. It never waits, answers or drops anything itself: the server asks Next for each request and
// does what the Effect says. Rules may be added, switched and removed while the server runs. Start with Rule and Table.
package fault

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Kind says what goes wrong.
type Kind string

// The kinds of fault.
const (
	Error    Kind = "error"    // refused with Code, nothing executed
	Throttle Kind = "throttle" // refused with 503 RequestLimitExceeded, nothing executed
	Delay    Kind = "delay"    // executed after Delay
	Lost     Kind = "lost"     // executed, then the connection is closed without an answer
	Hang     Kind = "hang"     // neither executed nor answered, until the client gives up or the rule is lifted
	Stale    Kind = "stale"    // a read is answered as of Age ago; changes are executed as always
)

// ThrottleCode is EC2's code for an empty token bucket. Source: EC2 API reference, "Error codes".
const ThrottleCode = "RequestLimitExceeded"

// Rule is one fault. Requests that match Action and Resource are counted for it, whether or not it is switched on.
type Rule struct {
	Name     string        `json:"name"`               // to switch and remove it by; unique
	Action   string        `json:"action,omitempty"`   // "" matches every action
	Resource string        `json:"resource,omitempty"` // "" matches all; else the value of any parameter of the request
	First    int           `json:"first,omitempty"`    // the first matching request that it hits; 1 (and 0) is the first
	Times    int           `json:"times,omitempty"`    // how many it hits from there on; 0 is all of them
	Kind     Kind          `json:"kind"`
	Code     string        `json:"code,omitempty"`    // of Error
	Message  string        `json:"message,omitempty"` // of Error and Throttle
	Status   int           `json:"status,omitempty"`  // HTTP status of Error, default EC2's own for the code
	Delay    time.Duration `json:"delay,omitempty"`   // before the request is executed or refused; any kind may have one
	Jitter   time.Duration `json:"jitter,omitempty"`  // a part of it, drawn from the table's seed, is added to Delay
	Age      time.Duration `json:"age,omitempty"`     // of Stale
	Off      bool          `json:"off,omitempty"`
}

// State is a rule and what became of it.
type State struct {
	Rule
	Matched int `json:"matched"` // requests that it was meant for
	Hits    int `json:"hits"`    // requests that it spoilt

	lifted chan struct{} // of Hang: closed when the rule goes or is switched off
}

// lift lets go of what hangs.
func (s *State) lift() {
	if s.lifted != nil {
		close(s.lifted)
		s.lifted = nil
	}
}

// Effect is what goes wrong with one request. The zero Effect is nothing.
type Effect struct {
	Rule    string // name of the rule that decided; "" for none
	Delay   time.Duration
	Code    string // refuse with this code instead of executing, where not empty
	Message string
	Status  int
	Lost    bool            // close the connection after executing
	Hang    bool            // do nothing, not even answer
	Lifted  <-chan struct{} // of Hang: closed when the rule is lifted
	Stale   time.Duration   // answer a read as of so long ago
}

// Table holds the rules. It is safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	rules  []*State
	random *rand.Rand
}

// Seed begins the draws of jitter anew; the zero table begins with seed 0.
func (t *Table) Seed(seed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.random = rand.New(rand.NewPCG(seed, 1))
}

// New makes a table with the given rules.
func New(rules ...Rule) (*Table, error) {
	t := &Table{}
	for _, r := range rules {
		if err := t.Add(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Add adds a rule after the others. An earlier rule decides before a later one; delays add up.
func (t *Table) Add(r Rule) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("add fault %q: %w", r.Name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(r.Name) >= 0 {
		return fmt.Errorf("add fault %q: name is taken", r.Name)
	}
	t.rules = append(t.rules, &State{Rule: r})
	return nil
}

func (r Rule) check() error {
	kinds := []Kind{Error, Throttle, Delay, Lost, Hang, Stale}
	switch {
	case r.Name == "":
		return fmt.Errorf("name is missing")
	case strings.ContainsFunc(r.Name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return fmt.Errorf("a name is one line without tabs: it is a column of lists")
	case !slices.Contains(kinds, r.Kind):
		return fmt.Errorf("kind %q is unknown: want one of %v", r.Kind, kinds)
	case r.First < 0 || r.Times < 0 || r.Delay < 0 || r.Jitter < 0 || r.Age < 0:
		return fmt.Errorf("first, times, delay, jitter and age must not be negative")
	case r.Kind == Error && r.Code == "":
		return fmt.Errorf("kind %q needs a code", r.Kind)
	case r.Kind == Delay && r.Delay+r.Jitter == 0:
		return fmt.Errorf("kind %q needs a delay", r.Kind)
	case r.Status != 0 && (r.Status < 300 || r.Status > 599):
		return fmt.Errorf("status %d is no error", r.Status)
	case r.Kind != Error && (r.Code != "" || r.Status != 0):
		return fmt.Errorf("code and status belong to kind %q, not to %q", Error, r.Kind)
	case (r.Kind == Stale) != (r.Age > 0):
		return fmt.Errorf("kind %q, and no other, needs an age", Stale)
	case r.Kind != Error && r.Kind != Throttle && r.Message != "":
		return fmt.Errorf("kind %q has no answer that a message could be in", r.Kind)
	}
	return nil
}

// Switch turns a rule on or off; false where there is none of that name.
func (t *Table) Switch(name string, on bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.find(name)
	if at < 0 {
		return false
	}
	if t.rules[at].Off = !on; !on {
		t.rules[at].lift()
	}
	return true
}

// Remove takes a rule out; false where there is none of that name.
func (t *Table) Remove(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.find(name)
	if at < 0 {
		return false
	}
	t.rules[at].lift()
	t.rules = slices.Delete(t.rules, at, at+1)
	return true
}

// Clear takes all rules out.
func (t *Table) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.rules {
		s.lift()
	}
	t.rules = nil
}

// States gives the rules in order with their counts.
func (t *Table) States() []State {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]State, len(t.rules))
	for n, s := range t.rules {
		out[n] = *s
		out[n].lifted = nil
	}
	return out
}

// Next counts a request and says what goes wrong with it. mentions tells whether a parameter of the request has a value; it
// is asked only for rules that name a resource.
func (t *Table) Next(action string, mentions func(value string) bool) Effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	var e Effect
	for _, s := range t.rules {
		if s.Action != "" && s.Action != action || s.Resource != "" && !mentions(s.Resource) {
			continue
		}
		s.Matched++
		first := max(1, s.First)
		if s.Off || s.Matched < first || s.Times > 0 && s.Matched >= first+s.Times {
			continue
		}
		if s.Kind != Delay && e.decided() {
			continue // an earlier rule has this request
		}
		s.Hits++
		s.apply(&e, t.jitter(s.Jitter))
	}
	return e
}

func (t *Table) jitter(most time.Duration) time.Duration {
	if most == 0 {
		return 0
	}
	if t.random == nil {
		t.random = rand.New(rand.NewPCG(0, 1))
	}
	return time.Duration(t.random.Int64N(int64(most) + 1))
}

func (e *Effect) decided() bool { return e.Code != "" || e.Lost || e.Hang || e.Stale > 0 }

func (s *State) apply(e *Effect, jitter time.Duration) {
	e.Delay += s.Delay + jitter
	if e.Rule == "" || !e.decided() {
		e.Rule = s.Name
	}
	switch s.Kind {
	case Error:
		e.Code, e.Message, e.Status = s.Code, s.Message, s.Status
		if e.Status == 0 {
			e.Status = statusOf(s.Code)
		}
	case Throttle:
		e.Code, e.Message, e.Status = ThrottleCode, "Request limit exceeded.", http.StatusServiceUnavailable
	case Lost:
		e.Lost = true
	case Hang:
		if s.lifted == nil {
			s.lifted = make(chan struct{})
		}
		e.Hang, e.Lifted = true, s.lifted
	case Stale:
		e.Stale = s.Age
	}
	if s.Message != "" {
		e.Message = s.Message
	}
}

func (t *Table) find(name string) int {
	return slices.IndexFunc(t.rules, func(s *State) bool { return s.Name == name })
}

// statusOf is the HTTP status with which EC2 gives a code: clients look at it to know whether to try again. Source: EC2 API
// reference, "Error codes".
func statusOf(code string) int {
	switch code {
	case "InternalError", "InternalFailure", "InsufficientAddressCapacity", "InsufficientCapacity":
		return http.StatusInternalServerError
	case ThrottleCode, "Unavailable", "ServiceUnavailable", "SlowDown":
		return http.StatusServiceUnavailable
	case "AuthFailure", "OptInRequired":
		return http.StatusUnauthorized
	case "UnauthorizedOperation", "SignatureDoesNotMatch", "InvalidClientTokenId":
		return http.StatusForbidden
	case "DryRunOperation":
		return http.StatusPreconditionFailed
	}
	return http.StatusBadRequest
}
