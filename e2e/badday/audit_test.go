package badday

import (
	"strings"
	"testing"
	"time"
)

// The lines are of a real server's log, shortened.
const log = `{"stage":"ResponseComplete","verb":"patch","user":{"username":"d"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-12-01T02:00:00.100000Z","responseObject":{"metadata":{"uid":"a","resourceVersion":"7"}}}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"d"},"objectRef":{"resource":"pods"},"responseStatus":{"code":422},"requestReceivedTimestamp":"2026-12-01T02:00:00.200000Z","responseObject":{"metadata":{}}}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"kubelet"},"objectRef":{"resource":"pods","subresource":"status"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-12-01T02:00:00.300000Z","responseObject":{"metadata":{"uid":"a","resourceVersion":"8"}}}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"d"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-12-01T02:00:00.400000Z","responseObject":{"metadata":{"uid":"a","resourceVersion":"8"}}}
{"stage":"ResponseStarted","verb":"watch","user":{"username":"d"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-12-01T02:00:00.100000Z"}
{"stage":"ResponseComplete","verb":"watch","user":{"username":"d"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-12-01T02:00:00.100000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"d"},"objectRef":{"resource":"events"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-12-01T02:00:00.100000Z"}
{"stage":"ResponseComplete","verb":"li`

func TestAuditLogIsRead(t *testing.T) {
	r, err := Read(strings.NewReader(log), "d")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.String(), "patch 200 2, patch 422 1, watch 1"; got != want || r.Total() != 4 || r.Other != 1 {
		t.Errorf("calls %q, %d others; want %q and one", got, r.Other, want)
	}
	at, known := r.Committed("a", "8")
	if want := time.Date(2026, 12, 1, 2, 0, 0, 300e6, time.UTC); !known || !at.Equal(want) {
		t.Errorf("version 8 at %v, known %t, want %v: the write that made it, not the one that found it", at, known, want)
	}
	if _, known := r.Committed("a", "9"); known {
		t.Error("a version that nobody wrote is known")
	}
	if _, err := Read(strings.NewReader("nonsense\n"), "d"); err == nil {
		t.Error("nonsense is read without an error")
	}
}
