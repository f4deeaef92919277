package ec2api

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// keptEntries and keptValue bound the journal: the newest requests at least, and the beginning of a long value.
const (
	keptEntries = 1 << 16
	keptValue   = 1 << 10
)

// Entry is one request and what became of it.
type Entry struct {
	Seq          uint64            `json:"seq"` // 1, 2, 3, ... in the order in which requests ended
	Time         time.Time         `json:"time"`
	Took         time.Duration     `json:"took_ns"`
	Action       string            `json:"action"`
	Params       map[string]string `json:"params"`        // as on the wire, without Action and Version; long values are cut
	Attempt      int               `json:"attempt"`       // 1, 2, ... of the SDK's retries; 0 without the header
	MaxAttempts  int               `json:"max_attempts"`  // 0 where the client does not say
	InvocationID string            `json:"invocation_id"` // equal over the SDK's retries of one call
	AccessKey    string            `json:"access_key"`    // of the credential scope: who called; nothing is verified
	Region       string            `json:"region"`
	UserAgent    string            `json:"user_agent"`
	RequestID    string            `json:"request_id"`
	Status       int               `json:"status"`
	Code         string            `json:"code"`  // EC2's error code; "" for success
	Fault        string            `json:"fault"` // name of the fault rule that decided; "" for none
	Lost         bool              `json:"lost"`  // executed, but the answer was not sent
}

func newEntry(r *http.Request, now time.Time) Entry {
	e := Entry{Time: now, InvocationID: r.Header.Get("Amz-Sdk-Invocation-Id"), UserAgent: r.UserAgent()}
	for part := range strings.SplitSeq(r.Header.Get("Amz-Sdk-Request"), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(value)
		switch {
		case err != nil: // a foreign client's header is its own business
		case name == "attempt":
			e.Attempt = n
		case name == "max":
			e.MaxAttempts = n
		}
	}
	e.scope(r.Header.Get("Authorization"))
	return e
}

// scopePattern finds "<access key>/<date>/<region>/<service>/aws4_request", in the header or in a signed query string.
var scopePattern = regexp.MustCompile(`([^/=\s]+)/\d{8}/([^/]+)/[^/]+/aws4_request`)

func (e *Entry) scope(text string) {
	if found := scopePattern.FindStringSubmatch(text); found != nil {
		e.AccessKey, e.Region = found[1], found[2]
	}
}

func (e *Entry) note(values url.Values) {
	e.Action = clip(values.Get("Action"))
	e.scope(values.Get("X-Amz-Credential"))
	e.Params = make(map[string]string, len(values))
	for key, list := range values {
		if key == "Action" || key == "Version" {
			continue
		}
		value := strings.Join(list, ",")
		if len(value) > keptValue {
			value = strings.ToValidUTF8(value[:keptValue], "")
		}
		e.Params[key] = value
	}
}

func (e *Entry) finish(status int, effect fault.Effect, err error) {
	e.Status, e.Fault, e.Lost = status, effect.Rule, effect.Lost
	var refusal *vpc.Error
	if errors.As(err, &refusal) {
		e.Code = refusal.Code
	}
}

// journal keeps the newest entries. The zero value is empty.
type journal struct {
	mu      sync.Mutex
	seq     uint64
	entries []Entry
}

func (j *journal) add(e Entry) Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.Seq = j.seq
	if len(j.entries) >= 2*keptEntries {
		j.entries = slices.Clone(j.entries[keptEntries:])
	}
	j.entries = append(j.entries, e)
	return e
}

func (j *journal) since(seq uint64) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := sort.Search(len(j.entries), func(i int) bool { return j.entries[i].Seq > seq })
	out := slices.Clone(j.entries[at:])
	for n := range out {
		out[n].Params = maps.Clone(out[n].Params)
	}
	return out
}
