// Package event is what the harness's per-node programs tell about pods: one JSON object a line, on their standard output.
//
// It owns the words and the wire. Times are wall-clock times of one machine, taken where the thing happened, so that
// stages seen by different programs can be subtracted from each other.
package event

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Kind says what happened.
type Kind string

// Kinds of the sandbox.
const (
	Ready            Kind = "ready"             // the program serves: its watch is synced
	NetworkReady     Kind = "network_ready"     // a network configuration was found, the node is Ready
	AddExec          Kind = "add_exec"          // the plugin is about to be exec'd for ADD
	AddDone          Kind = "add_done"          // ADD succeeded; Address is the result's
	AddFailed        Kind = "add_failed"        // ADD failed; Detail says why, a new sandbox follows
	ContainerStarted Kind = "container_started" // the pod's container runs from now on
	ContainerStopped Kind = "container_stopped" // it does not any more
	StatusPosted     Kind = "status_posted"     // the API has acknowledged status.podIP
	DelExec          Kind = "del_exec"          // the plugin is about to be exec'd for DEL
	DelDone          Kind = "del_done"          // DEL succeeded
	DelFailed        Kind = "del_failed"        // DEL failed; Detail says why, it is tried again
	PodGone          Kind = "pod_gone"          // namespace removed, pod object deleted
	Trouble          Kind = "trouble"           // anything else that went wrong; Detail says what
)

// Kinds of the policy agent.
const (
	Programmed Kind = "programmed" // the kernel lets this address of the pod pass
	Removed    Kind = "removed"    // it does not any more
	Unreadable Kind = "unreadable" // the pod's addresses could not be read; Detail says why
	View       Kind = "view"       // Reader now takes Address (joined by commas; "": none) for the pod's, from Source
)

// Event is one thing that happened to one pod (or, without a pod, to the node).
type Event struct {
	At        time.Time `json:"at"`
	Kind      Kind      `json:"kind"`
	Node      string    `json:"node"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	UID       string    `json:"uid,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"`
	Address   string    `json:"address,omitempty"`
	Detail    string    `json:"detail,omitempty"`
	Reader    string    `json:"reader,omitempty"`
	Source    string    `json:"source,omitempty"`
	Version   string    `json:"version,omitempty"` // resourceVersion of the object that a View comes from
}

// Log writes events, one line each. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	out io.Writer
	err error
}

// NewLog makes a log that writes to out.
func NewLog(out io.Writer) *Log {
	return &Log{out: out}
}

// Emit writes one event; At is set to now when it is zero. The first failure to write is kept for Err: a reader that went
// away must not stop the program.
func (l *Log) Emit(e Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if l.err == nil && err != nil {
		l.err = fmt.Errorf("write event %s: %w", e.Kind, err)
	}
}

// Err gives the first failure to write.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Follow hands every event of a stream to f until the stream ends. A line that is not an event is an error that quotes it.
func Follow(in io.Reader, f func(Event)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read event %q: %w", lines.Text(), err)
		}
		f(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return nil
}
