package ipamd

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	unlock, err := lock(t.Context(), folder, log)
	if err != nil {
		t.Fatal(err)
	}
	if text := said.String(); text != "" {
		t.Errorf("the first one said %q", text)
	}
	locked := make(chan func(), 1)
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
	unlock()
	select {
	case second := <-locked:
		second()
	case <-time.After(10 * time.Second):
		t.Fatal("the lock is not passed on")
	}
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

func TestAWaitingDaemonCanBeToldToEnd(t *testing.T) {
	folder := t.TempDir()
	unlock, err := lock(t.Context(), folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, folder, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}

func TestBootIDIsOneLine(t *testing.T) {
	id, err := readBootID()
	if err != nil || len(id) != 36 {
		t.Errorf("%q, %v", id, err)
	}
}
