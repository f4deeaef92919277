package ipamd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lines collects log lines and tells of each.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestTheSecondDaemonWaitsAndSaysSo(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "by", "lock")
	said := &lines{wrote: make(chan struct{}, 1)}
	log := slog.New(slog.NewTextHandler(said, nil))
	first, err := lock(t.Context(), folder, log)
	if err != nil {
		t.Fatal(err)
	}
	if text := said.String(); text != "" {
		t.Errorf("the first one said %q", text)
	}
	locked := make(chan *nodeLock, 1)
	go func() {
		second, err := lock(t.Context(), folder, log)
		if err != nil {
			t.Error(err)
		}
		locked <- second
	}()
	select {
	case <-said.wrote:
	case <-time.After(10 * time.Second):
		t.Fatal("the second one says nothing")
	}
	if text := said.String(); !strings.Contains(text, "waiting for another daemon") || !strings.Contains(text, "holder="+strconv.Itoa(os.Getpid())) {
		t.Errorf("it said %q", text)
	}
	select {
	case <-locked:
		t.Fatal("two daemons have the lock")
	default:
	}
	first.release()
	select {
	case second := <-locked:
		second.release()
	case <-time.After(10 * time.Second):
		t.Fatal("the lock is not passed on")
	}
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

func TestAWaitingDaemonCanBeToldToEnd(t *testing.T) {
	folder := t.TempDir()
	first, err := lock(t.Context(), folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, folder, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}

// A cleaner of /run removes the file, not the lock.
func TestARemovedLockFileIsMadeAgainAndStillLocks(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	first, err := lock(t.Context(), folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	if restored, err := first.restore(); restored || err != nil {
		t.Errorf("nothing is wrong: %v %v", restored, err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	second := &nodeLock{path: first.path}
	if err := second.take(); !errors.Is(err, syscall.EWOULDBLOCK) { // before the first one looks
		t.Errorf("without the file a second daemon gets %v", err)
	}
	if restored, err := first.restore(); !restored || err != nil {
		t.Fatalf("restored %v, %v", restored, err)
	}
	if _, err := tryLock(first.path); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("a second daemon gets %v", err)
	}
}

// A daemon that knows no names made the file while it was missing.
func TestOfTwoDaemonsTheOneWithoutTheFileEnds(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	first, err := lock(t.Context(), folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	other, err := tryLock(first.path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := first.restore(); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("it goes on: %v", err)
	}
}

// A name is anybody's to take who may run in the node's namespace.
func TestAStrangerWithTheNameStopsNobody(t *testing.T) {
	stranger, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockName, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	first := &nodeLock{path: filepath.Join(folder, lockFile), asked: time.Now(), stranger: true} // as the kernel says of another user's
	if err := first.take(); err != nil || first.name != nil {
		t.Fatalf("it gets %v", err)
	}
	defer first.release()
	second := &nodeLock{path: first.path, asked: time.Now(), stranger: true}
	if err := second.take(); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("a second daemon gets %v", err)
	}
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.restore(); err != nil || first.name == nil {
		t.Errorf("the name is free, and not taken: %v", err)
	}
}

// With neither a name nor a file nothing would keep a second daemon out.
func TestWithoutNameAndFileADaemonWaits(t *testing.T) {
	stranger, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockName, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	file := filepath.Join(t.TempDir(), "x")
	if err := os.Symlink("nowhere/at/all", file); err != nil {
		t.Fatal(err)
	}
	l := &nodeLock{path: filepath.Join(file, lockFile), asked: time.Now(), stranger: true}
	if err := l.take(); err == nil {
		t.Error("it has a lock")
	}
}

func TestAFileInTheFoldersPlaceIsMovedAside(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	for range 2 { // an earlier one that was put aside is not in the way
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(folder, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := lock(t.Context(), folder, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if problem := l.problem(); problem != "" {
			t.Error(problem)
		}
		l.release()
	}
	for _, aside := range []string{".unreadable", ".unreadable-2"} {
		if text, err := os.ReadFile(folder + aside); err != nil || string(text) != "x" {
			t.Errorf("%s: %q, %v", aside, text, err)
		}
	}
}

func TestBootIDIsOneLine(t *testing.T) {
	id, err := readBootID()
	if err != nil || len(id) != 36 {
		t.Errorf("%q, %v", id, err)
	}
}
