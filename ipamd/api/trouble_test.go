package api

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestFrozenHolderOfTheFoldersLockStopsNobody: a plugin was stopped while it wrote its record.
func TestFrozenHolderOfTheFoldersLockStopsNobody(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cni.sock")
	must(t, LeavePending(socket, deletion("a", 1)))
	frozen, err := os.Open(pendingFolder(socket))
	must(t, err)
	must(t, syscall.Flock(int(frozen.Fd()), syscall.LOCK_EX))
	began := time.Now()
	if err := LeavePending(socket, deletion("b", 1)); err == nil {
		t.Error("a record was written without the lock")
	}
	if _, err := CollectPending(socket); err == nil {
		t.Error("records were read without the lock")
	}
	if took := time.Since(began); took > 2*lockPatience+time.Second {
		t.Errorf("both waited %s", took)
	}
	must(t, frozen.Close())
	if records, err := CollectPending(socket); err != nil || len(records) != 1 {
		t.Errorf("%v, %v", records, err)
	}
}

func TestPathsOfRecordsThatAreSomethingElse(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "cni.sock")
		must(t, os.WriteFile(pendingFolder(socket), []byte("x"), 0o600))
		if records, err := CollectPending(socket); err == nil || len(records) != 0 {
			t.Errorf("%v, %v", records, err)
		}
		must(t, LeavePending(socket, deletion("a", 1)))
		if records, err := CollectPending(socket); err != nil || len(records) != 1 {
			t.Errorf("%v, %v", records, err)
		}
	})
	t.Run("record", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "cni.sock")
		must(t, LeavePending(socket, deletion("a", 1)))
		must(t, syscall.Mkfifo(filepath.Join(pendingFolder(socket), "pipe"), 0o600))
		if records, err := CollectPending(socket); err == nil || len(records) != 1 {
			t.Errorf("%v, %v", records, err)
		}
	})
}

// serving runs a server of a book at a socket of its own, until the test ends.
func serving(t *testing.T) *Listener {
	t.Helper()
	listener, err := Listen(filepath.Join(t.TempDir(), "cni.sock"))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	b := newBook()
	server := NewServer(b, b, slog.New(slog.DiscardHandler))
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(listener.path); err == nil {
			t.Error("the socket stays")
		}
	})
	return listener
}

func TestAssignGoesOnWithoutAFolderOfRecords(t *testing.T) {
	listener := serving(t)
	must(t, os.WriteFile(pendingFolder(listener.path), []byte("x"), 0o600))
	client, err := Dial(t.Context(), listener.path)
	must(t, err)
	defer client.Close()
	if _, err := client.Assign(t.Context(), assignOf("a")); err != nil {
		t.Error(err)
	}
}

func TestRemovedSocketIsMadeAgain(t *testing.T) {
	listener := serving(t)
	open, err := Dial(t.Context(), listener.path)
	must(t, err)
	defer open.Close()
	if _, err := open.Assign(t.Context(), assignOf("a")); err != nil {
		t.Fatal(err)
	}
	if restored, err := listener.Restore(); restored || err != nil {
		t.Errorf("nothing is wrong: %v %v", restored, err)
	}
	for range 2 {
		must(t, os.Remove(listener.path))
		if restored, err := listener.Restore(); !restored || err != nil {
			t.Fatalf("%v %v", restored, err)
		}
		client, err := Dial(t.Context(), listener.path)
		must(t, err)
		if err := client.Status(t.Context()); err != nil {
			t.Error(err)
		}
		must(t, client.Close())
	}
	if err := open.Done(t.Context(), doneOf("a")); err != nil {
		t.Errorf("a transaction that was open: %v", err)
	}
}

func TestSocketOfAnotherServerIsLeftToIt(t *testing.T) {
	listener := serving(t)
	must(t, os.Remove(listener.path))
	other, err := net.Listen("unix", listener.path)
	must(t, err)
	if restored, err := listener.Restore(); restored || err == nil {
		t.Errorf("%v %v", restored, err)
	}
	must(t, other.Close())
}
