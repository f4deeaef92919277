package api

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func deletion(id string, at int64) PendingDel {
	return PendingDel{
		ReleaseRequest: ReleaseRequest{Attachment: sandboxOf(id), Pod: Pod{Namespace: "default", Name: "web-" + id}},
		At:             time.Unix(at, 0).UTC(),
	}
}

func TestRecordsAreLeftCollectedAndRemoved(t *testing.T) {
	socket := folder(t) + "/cni.sock"
	if records, err := CollectPending(socket); err != nil || records != nil {
		t.Errorf("before the first: %v, %v", records, err)
	}
	for _, record := range []PendingDel{deletion("b", 2), deletion("a", 1), deletion("b", 3), deletion("c", 2)} {
		must(t, LeavePending(socket, record))
	}
	got, err := CollectPending(socket)
	must(t, err)
	want := []PendingDel{deletion("a", 1), deletion("c", 2), deletion("b", 3)}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("record %d: %+v, want %+v", i, got[i], want[i])
		}
		must(t, RemovePending(socket, want[i].Attachment))
		must(t, RemovePending(socket, want[i].Attachment))
	}
	if records, err := CollectPending(socket); err != nil || len(records) != 0 {
		t.Errorf("after the last: %v, %v", records, err)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	socket := folder(t) + "/cni.sock"
	const writers, each = 8, maxPending/8 + 5
	full := make(chan int)
	for w := range writers {
		go func() {
			refused := 0
			for i := range each {
				record := deletion(strconv.Itoa(w)+"-"+strconv.Itoa(i), 1)
				err := LeavePending(socket, record)
				for errors.Is(err, syscall.EWOULDBLOCK) { // writers without a pause starve each other; plugins write one record each
					err = LeavePending(socket, record)
				}
				if errors.Is(err, ErrPendingFull) {
					refused++
				} else if err != nil {
					t.Error(err)
				}
			}
			full <- refused
		}()
	}
	refused := 0
	for range writers {
		refused += <-full
	}
	files, err := os.ReadDir(pendingFolder(socket))
	must(t, err)
	if len(files) != maxPending || refused != writers*each-maxPending {
		t.Errorf("%d files, %d refused", len(files), refused)
	}
	records, err := CollectPending(socket)
	if err != nil || len(records) != maxPending {
		t.Fatalf("%d records, %v", len(records), err)
	}
	known := records[0]
	known.At = time.Unix(9, 0).UTC()
	must(t, LeavePending(socket, known)) // replaces its own
	must(t, RemovePending(socket, records[1].Attachment))
	must(t, LeavePending(socket, deletion("new", 1)))
}

func TestUnreadableRecordsGo(t *testing.T) {
	socket := folder(t) + "/cni.sock"
	must(t, LeavePending(socket, deletion("good", 1)))
	inside := func(name string) string { return filepath.Join(pendingFolder(socket), name) }
	must(t, os.WriteFile(inside("new"), []byte(`{"network":`), 0o600)) // of a plugin killed while it wrote
	must(t, os.WriteFile(inside("zz.json"), []byte(`{}`), 0o600))
	must(t, os.WriteFile(inside("big.json"), []byte(strings.Repeat("[", maxRecord*2)), 0o600))
	must(t, os.Mkdir(inside("folder"), 0o700))
	records, err := CollectPending(socket)
	if len(records) != 1 || records[0] != deletion("good", 1) {
		t.Errorf("records %+v", records)
	}
	for _, name := range []string{"new", "zz.json", "big.json", "folder"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error does not name %s: %v", name, err)
		}
	}
	if records, err := CollectPending(socket); err != nil || len(records) != 1 {
		t.Errorf("second time: %+v, %v", records, err)
	}
}

func TestAssignForgetsTheRecordOfItsAttachment(t *testing.T) {
	path, _ := daemon(t, newBook())
	must(t, LeavePending(path, deletion("a", 1)))
	must(t, LeavePending(path, deletion("b", 1)))
	if _, err := dial(t, path).Assign(t.Context(), assignOf("a")); err != nil {
		t.Fatal(err)
	}
	if records, err := CollectPending(path); err != nil || len(records) != 1 || records[0].ContainerID != "b" {
		t.Errorf("%+v, %v", records, err)
	}
}
