package api

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// silent is a listener that never answers, with room for a few connections.
func silent(t *testing.T, backlog int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	must(t, syscall.Listen(fd, backlog))
	return path
}

// short is a deadline that a test waits for.
const short = 50 * time.Millisecond

func TestCallEndsAtItsDeadline(t *testing.T) {
	client, err := Dial(t.Context(), silent(t, 1))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if err := client.Status(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := client.Status(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}

func TestCancelledCallEnds(t *testing.T) {
	client, err := Dial(t.Context(), silent(t, 1))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(short, cancel).Stop()
	if err := client.Status(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestDialWaitsForRoomInTheBacklog(t *testing.T) {
	path := silent(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for range 8 { // the first ones find room
		client, err := Dial(ctx, path)
		if err == nil {
			defer client.Close()
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(deadline) {
			t.Errorf("%v, %s before the deadline", err, time.Until(deadline))
		}
		return
	}
	t.Error("a full backlog took eight connections")
}

func TestDialFindsNoListener(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
}
