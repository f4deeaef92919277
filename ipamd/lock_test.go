package ipamd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

// A cleaner of /run removes the file, not the lock: without a look at the path two daemons would run.
func TestARemovedLockFileIsMadeAgainAndStillLocks(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	first, err := lock(t.Context(), folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { first.release() }()
	if restored, err := first.restore(); restored || err != nil {
		t.Errorf("nothing is wrong: %v %v", restored, err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if restored, err := first.restore(); !restored || err != nil {
		t.Fatalf("restored %v, %v", restored, err)
	}
	if _, err := tryLock(first.path); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("a second daemon gets %v", err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	second, err := tryLock(first.path) // before the first one looks
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if _, err := first.restore(); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("the first one goes on beside it: %v", err)
	}
}

func TestBootIDIsOneLine(t *testing.T) {
	id, err := readBootID()
	if err != nil || len(id) != 36 {
		t.Errorf("%q, %v", id, err)
	}
}
