package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// program is what to run and where.
type program struct {
	name   string // also of its log
	in     *netlab.Namespace
	path   string
	args   []string
	env    []string
	nice   int               // added to the niceness of the program and of all that it starts; 0: as the harness
	events func(event.Event) // for programs whose standard output is events; nil: it goes to the log
}

// command is the program as it is started; the nice program execs it, so that the process is the program's own.
func (p program) command() *exec.Cmd {
	if p.nice == 0 {
		return exec.Command(p.path, p.args...)
	}
	return exec.Command("nice", append([]string{"-n", strconv.Itoa(p.nice), p.path}, p.args...)...)
}

// process is a running program of the cluster.
type process struct {
	name  string
	log   string
	cmd   *exec.Cmd
	ready chan struct{} // closed at its event "ready" (programs with events only)
	ended chan struct{} // closed when it has ended and its output is read
	err   error         // why it ended; valid after ended

	mu       sync.Mutex
	stopping bool
}

// DiedError says that a process of the cluster ended by itself, with the end of its log and where the rest is.
type DiedError struct {
	Process, Log string
	Tail         string // the last lines of the log
	Err          error  // how it ended; nil: with code 0
}

func (e *DiedError) Error() string {
	how := "with code 0"
	if e.Err != nil {
		how = e.Err.Error()
	}
	return fmt.Sprintf("%s ended by itself: %s; its last lines:\n%sthe rest is in %s", e.Process, how, e.Tail, e.Log)
}

func (e *DiedError) Unwrap() error { return e.Err }

// launch starts a program. Its log is appended to <logs>/<name>.log, its events to <logs>/<name>.events.
func launch(logs string, p program) (*process, error) {
	started := &process{
		name: p.name, log: filepath.Join(logs, p.name+".log"),
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
	log, err := os.OpenFile(started.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", p.name, err)
	}
	started.cmd = p.command()
	started.cmd.Env = p.env
	started.cmd.Stderr = log
	started.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for the harness, which stops its programs in order
	read := func() error { return nil }
	if p.events == nil {
		started.cmd.Stdout = log
	} else if read, err = started.events(logs, p); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := p.in.Start(started.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.name, err), log.Close())
	}
	go func() {
		defer close(started.ended)
		readErr := read()
		started.err = errors.Join(readErr, started.cmd.Wait(), log.Close())
	}()
	return started, nil
}

// events makes the pipe that the program's events come through, and gives what reads it to its end.
func (s *process) events(logs string, p program) (read func() error, err error) {
	file, err := os.OpenFile(filepath.Join(logs, p.name+".events"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open events of %s: %w", p.name, err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open pipe to %s: %w", p.name, err), file.Close())
	}
	var once sync.Once
	return func() error {
		followed := event.Follow(io.TeeReader(out, file), func(e event.Event) {
			if e.Kind == event.Ready {
				once.Do(func() { close(s.ready) })
			}
			p.events(e)
		})
		return errors.Join(followed, file.Close())
	}, nil
}

// died describes the end of a process that was not asked to end.
func (s *process) died() *DiedError {
	return &DiedError{Process: s.name, Log: s.log, Tail: tail(s.log), Err: s.err}
}

// stopGrace is what a process gets to end by itself: ipamd lets open transactions end for five seconds.
const stopGrace = 15 * time.Second

// stop ends a process: SIGTERM, and SIGKILL when it takes too long. It is an error when it had to be killed.
func (s *process) stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", s.name, err)
	}
	<-s.ended
	return fmt.Errorf("stop %s: it did not end on SIGTERM and was killed; its log is %s", s.name, s.log)
}

func (s *process) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// tailLines is how much of a log is shown with a failure.
const tailLines = 15

// tailBytes bounds what is read for that.
const tailBytes = 16 << 10

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("    (unreadable: %v)\n", err)
	}
	text = bytes.TrimRight(text[max(0, len(text)-tailBytes):], "\n")
	lines := bytes.Split(text, []byte("\n"))
	var out bytes.Buffer
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		fmt.Fprintf(&out, "    %s\n", line)
	}
	return out.String()
}
