// Package crash ends a program at one of its effects, or holds it up there.
//
// It owns the orders that a test gives to the programs under test, as files in a folder, and the list of the effects that
// they passed. The programs call Around wherever they act on the world. It never decides where to crash: the test does.
// Start with Role.
package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The two moments of an effect: nothing is done yet, and all is done but nobody knows.
const (
	Before = "before"
	After  = "after"
)

// Any is every point, or either moment.
const Any = "*"

// heldPace is the pace at which a program that is held up looks whether it may go on.
const heldPace = 2 * time.Millisecond

// Order names a moment: the process that passes it for the Hit-th time (from 1) is the one that is meant.
type Order struct {
	Point string // a name, or Any
	When  string // Before, After or Any
	Hit   int
}

func (o Order) String() string { return fmt.Sprintf("%s %s, hit %d", o.When, o.Point, o.Hit) }

func (o Order) text() string { return o.When + "\n" + strconv.Itoa(o.Hit) + "\n" + o.Point }

func parse(text string) (Order, bool) {
	parts := strings.SplitN(text, "\n", 3)
	if len(parts) != 3 {
		return Order{}, false
	}
	hit, err := strconv.Atoi(parts[1])
	return Order{When: parts[0], Hit: hit, Point: parts[2]}, err == nil
}

func (o Order) means(point, when string) bool {
	return (o.Point == Any || o.Point == point) && (o.When == Any || o.When == when)
}

// Role is a kind of program and the folder by which it and the test speak.
type Role struct {
	Dir, Name string
}

func (r Role) file(kind string) string { return filepath.Join(r.Dir, r.Name+"."+kind) }

// Kinds of files.
const (
	killFile  = "kill"  // an order
	holdFile  = "hold"  // an order
	firedFile = "fired" // the point at which a process was killed
	heldFile  = "held"  // the point at which a process is held up, until the file goes
	traceFile = "trace" // names of all points that were passed
)

// Kill orders the death of the process that passes the moment first. An earlier order is replaced.
func (r Role) Kill(order Order) error {
	return errors.Join(remove(r.file(firedFile)), replace(r.file(killFile), order.text()))
}

// Hold orders the process that passes the moment first to wait there for Release.
func (r Role) Hold(order Order) error {
	return errors.Join(remove(r.file(heldFile)), replace(r.file(holdFile), order.text()))
}

// Release takes a hold back and lets a process that waits go on.
func (r Role) Release() error { return errors.Join(remove(r.file(holdFile)), remove(r.file(heldFile))) }

// Death is which process was killed, and where.
type Death struct {
	PID   int
	Where string // moment and point
}

// Fired gives the death since the last Kill; false: there was none.
func (r Role) Fired() (Death, bool) {
	text, ok := read(r.file(firedFile))
	pid, where, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(pid)
	return Death{n, where}, ok && err == nil
}

// Forget takes back an order to kill and forgets the death.
func (r Role) Forget() error { return errors.Join(remove(r.file(killFile)), remove(r.file(firedFile))) }

// Held tells whether a process waits.
func (r Role) Held() bool { _, ok := read(r.file(heldFile)); return ok }

// Passed gives the names of the points that were passed since the last call, sorted.
func (r Role) Passed() ([]string, error) {
	text, err := os.ReadFile(r.file(traceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read passed points: %w", err)
	}
	if err := os.Truncate(r.file(traceFile), 0); err != nil {
		return nil, fmt.Errorf("forget passed points: %w", err)
	}
	names := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" }), nil
}

// Around is for the program: it carries out effects, keeps account of their names, and obeys.
func (r Role) Around() func(point string, run func() error) error {
	p := &process{role: r, hits: map[string]int{}}
	return func(point string, run func() error) error {
		p.trace(point)
		p.pass(point, Before)
		err := run()
		p.pass(point, After)
		return err
	}
}

// process is the program's own side.
type process struct {
	role Role

	mu   sync.Mutex
	hits map[string]int // by kind of order and its text
	file *os.File
}

func (p *process) trace(point string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		file, err := os.OpenFile(p.role.file(traceFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return // the test misses the name then
		}
		p.file = file
	}
	_, _ = p.file.WriteString(point + "\n")
}

func (p *process) pass(point, when string) {
	if p.claims(holdFile, point, when) {
		p.wait(when + " " + point)
	}
	if p.claims(killFile, point, when) {
		_ = replace(p.role.file(firedFile), fmt.Sprint(os.Getpid(), " ", when, " ", point))
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it comes at once
	}
}

// claims tells whether an order means this process at this moment. Of several processes one gets it.
func (p *process) claims(kind, point, when string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, ok := read(p.role.file(kind))
	if !ok {
		return false
	}
	order, ok := parse(text)
	if !ok || !order.means(point, when) {
		return false
	}
	p.hits[kind+text]++
	if p.hits[kind+text] < order.Hit {
		return false
	}
	delete(p.hits, kind+text)
	return os.Remove(p.role.file(kind)) == nil
}

func (p *process) wait(where string) {
	if replace(p.role.file(heldFile), where) != nil {
		return
	}
	tick := time.NewTicker(heldPace)
	defer tick.Stop()
	for p.role.Held() {
		<-tick.C
	}
}

func read(path string) (string, bool) {
	text, err := os.ReadFile(path)
	return string(text), err == nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back: %w", err)
	}
	return nil
}

// replace writes a file that is whole whenever somebody reads it.
func replace(path, text string) error {
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
