package badday

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/account"
)

// Requests is what an audit log (audit.k8s.io/v1, one object a line) says of the daemons, and of when pods changed.
type Requests struct {
	// Calls are the daemons' requests about pods that were answered, by what they were and what the answer was; a watch counts
	// when it begins.
	Calls map[string]int
	Other int // events, access reviews, the self-check's rehearsals

	commits map[[2]string]time.Time // by UID and resourceVersion
}

// Total counts the calls.
func (r Requests) Total() (sum int) {
	for _, n := range r.Calls {
		sum += n
	}
	return sum
}

// String lists the calls.
func (r Requests) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.Calls)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, r.Calls[what]))
	}
	return strings.Join(parts, ", ")
}

// Committed gives the earliest time at which the server can have made a version of a pod: when it got the request for it.
func (r Requests) Committed(uid, version string) (time.Time, bool) {
	at, known := r.commits[[2]string{uid, version}]
	return at, known
}

// record is what is needed of an audit event.
type record struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received       time.Time `json:"requestReceivedTimestamp"`
	ResponseObject struct {
		Metadata struct {
			UID     string `json:"uid"`
			Version string `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"responseObject"`
}

// Read reads an audit log. The daemons are the user of that name.
func Read(log io.Reader, daemons string) (Requests, error) {
	r := Requests{Calls: map[string]int{}, commits: map[[2]string]time.Time{}}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return r, nil // a line that is not complete is still being written
		}
		if err != nil {
			return r, fmt.Errorf("read audit log: %w", err)
		}
		var e record
		if err := json.Unmarshal(line, &e); err != nil {
			return r, fmt.Errorf("read audit log: %w", err)
		}
		r.take(e, daemons)
	}
}

func (r *Requests) take(e record, daemons string) {
	pods := e.ObjectRef != nil && e.ObjectRef.Resource == "pods"
	if pods && e.Stage == "ResponseComplete" && e.ResponseStatus.Code < http.StatusMultipleChoices {
		if meta := e.ResponseObject.Metadata; meta.UID != "" {
			at := [2]string{meta.UID, meta.Version}
			if old, known := r.commits[at]; !known || e.Received.Before(old) { // a write that changes nothing answers with an old version
				r.commits[at] = e.Received
			}
		}
	}
	switch {
	case e.User.Username != daemons:
	case e.Verb == "watch" && e.Stage == "ResponseStarted":
		r.Calls["watch"]++
	case e.Verb == "watch" || e.Stage != "ResponseComplete" && e.Stage != "Panic":
	case !pods, e.ObjectRef.Namespace == account.DaemonNamespace: // the self-check looks at the daemon's own pod
		r.Other++
	default:
		r.Calls[fmt.Sprintf("%s %d", e.Verb, e.ResponseStatus.Code)]++
	}
}
