package store

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// golden is the content of testdata/state-v1.json. The file was written by the first release and must always load: it is never
// written anew, whatever the format becomes.
func golden() pool.Snapshot {
	web := pool.Pod{Namespace: "shop", Name: "web-0", UID: "7b8f2f0e-6d4e-4a8a-9c39-0d4b7f1f7a01"}
	job := pool.Pod{Namespace: "shop", Name: "job-x", UID: "0f9d1c52-1111-4a8a-9c39-0d4b7f1f7a02"}
	at := time.Date(2026, 11, 30, 22, 53, 52, 661123456, time.UTC)
	return pool.Snapshot{
		BootID: "77bc78bd-f32d-4371-b654-eb3c465fe079",
		Assignments: []pool.Assignment{
			{
				Key: pool.Key{Network: "aws-cni", Sandbox: "5f1c", IfName: "eth0"}, Pod: web, Addr: netip.MustParseAddr("10.0.1.15"),
				ENI: "eni-03db718a2fa1fb72f", NetNS: "/var/run/netns/cni-1", Done: true, Since: at, Seq: 41,
			},
			{ // in progress, of a runtime that passes no UID, from before assignments were numbered
				Key:  pool.Key{Network: "aws-cni", Sandbox: "6a2d", IfName: "eth0"},
				Pod:  pool.Pod{Namespace: "shop", Name: "web-1"},
				Addr: netip.MustParseAddr("10.0.1.16"), ENI: "eni-03db718a2fa1fb72f", Since: at.Add(time.Second),
			},
		},
		Cooling: []pool.Cooling{{Addr: netip.MustParseAddr("10.0.1.17"), Pod: job, Until: at.Add(30 * time.Second)}},
		Annotations: []pool.Annotation{
			{
				Owner: pool.Owner{Pod: web, Sandbox: "5f1c", Addr: netip.MustParseAddr("10.0.1.15")},
				Keys:  []string{"vpc.amazonaws.com/pod-ips"}, Stale: []string{"example.org/ip"}, Wish: pool.WishPresent, Since: at,
			},
			{
				Owner: pool.Owner{Pod: job, Sandbox: "0c77", Addr: netip.MustParseAddr("10.0.1.17")},
				Keys:  []string{"vpc.amazonaws.com/pod-ips"}, Wish: pool.WishEmpty, Since: at,
			},
			{
				Owner: pool.Owner{Pod: job, Sandbox: "0c78", Addr: netip.MustParseAddr("10.0.1.18")},
				Keys:  []string{"example.org/ip"}, Wish: pool.WishAbsent, Since: at,
			},
		},
	}
}

const goldenFile = "testdata/state-v1.json"

func TestVersionOneLoadsForEver(t *testing.T) {
	got, found, err := New(OS{}, goldenFile).Load()
	if err != nil || !found {
		t.Fatalf("found %v, err %v", found, err)
	}
	if diff := cmp.Diff(golden(), got, sameAddr); diff != "" {
		t.Error(diff)
	}
}

// made is a store whose format has gone two versions further than the real one: to a document that calls its assignments
// "leases", and back again.
func made(t *testing.T) *Store {
	t.Helper()
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(OS{}, path)
	s.steps = append(s.steps,
		func(doc map[string]any) error {
			doc["leases"] = doc["assignments"]
			delete(doc, "assignments")
			return nil
		},
		func(doc map[string]any) error {
			leases, ok := doc["leases"].([]any)
			if !ok {
				return fmt.Errorf("no leases")
			}
			for _, lease := range leases {
				lease.(map[string]any)["netns"] = "/migrated"
			}
			doc["assignments"] = leases
			return nil
		})
	return s
}

func TestOlderVersionIsMigratedOnLoad(t *testing.T) {
	got, found, err := made(t).Load()
	if err != nil || !found {
		t.Fatalf("found %v, err %v", found, err)
	}
	want := golden()
	for i := range want.Assignments {
		want.Assignments[i].NetNS = "/migrated"
	}
	if diff := cmp.Diff(want, got, sameAddr); diff != "" {
		t.Error(diff)
	}
}

func TestFailedMigrationIsQuarantined(t *testing.T) {
	s := made(t)
	s.steps[0] = func(doc map[string]any) error { delete(doc, "assignments"); return nil }
	_, found, err := s.Load()
	var bad *QuarantinedError
	if found || !errors.As(err, &bad) || !strings.Contains(err.Error(), "migrate state from version 2: no leases") {
		t.Fatalf("found %v, err %v", found, err)
	}
	kept, readErr := os.ReadFile(bad.MovedTo)
	original, _ := os.ReadFile(goldenFile)
	if readErr != nil || string(kept) != string(original) {
		t.Errorf("what was put aside is not the original: %v", readErr)
	}
}
