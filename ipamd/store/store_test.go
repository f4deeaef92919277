package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

var sameAddr = cmpopts.EquateComparable(netip.Addr{})

func sample() pool.Snapshot {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	p := pool.Pod{Namespace: "ns", Name: "web-0", UID: "u-1"}
	return pool.Snapshot{
		BootID: "boot-1",
		Assignments: []pool.Assignment{{
			Key: pool.Key{Network: "aws-cni", Sandbox: "s1", IfName: "eth0"}, Pod: p, Addr: netip.MustParseAddr("10.0.1.7"),
			ENI: "eni-1", NetNS: "/run/netns/x", Done: true, Since: at, Seq: 7,
		}},
		Cooling: []pool.Cooling{{Addr: netip.MustParseAddr("10.0.1.8"), Pod: p, Until: at}},
		Annotations: []pool.Annotation{{
			Owner: pool.Owner{Pod: p, Sandbox: "s1", Addr: netip.MustParseAddr("10.0.1.7")},
			Keys:  []string{"a/b"}, Stale: []string{"c/d"}, Emptied: []string{"c/d"}, Wish: pool.WishPresent, Since: at,
		}},
		Emptied: []pool.Emptied{{Pod: p, Keys: []string{"a/b"}, Since: at}},
	}
}

func TestSaveLoadOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s := New(OS{}, path)
	if _, found, err := s.Load(); found || err != nil {
		t.Fatalf("empty folder: found %v, err %v", found, err)
	}
	for range 2 { // the second save replaces
		if err := s.Save(sample()); err != nil {
			t.Fatal(err)
		}
	}
	got, found, err := s.Load()
	if err != nil || !found {
		t.Fatalf("found %v, err %v", found, err)
	}
	if diff := cmp.Diff(sample(), got, sameAddr); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, err %v; want 0600", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestUnreadableFilesAreQuarantined(t *testing.T) {
	good, err := encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		"empty":           "",
		"truncated":       string(good[:len(good)/2]),
		"not json":        "{\"ver",
		"no version":      `{"bootID":"x"}`,
		"newer version":   `{"version":99}`,
		"version 0":       `{"version":0}`,
		"version a word":  `{"version":"vpc-cni-ipam/1"}`,
		"bad address":     strings.Replace(string(good), "10.0.1.8", "10.0.1.800", 1),
		"unknown wish":    strings.Replace(string(good), `"present"`, `"perhaps"`, 1),
		"missing address": `{"version":1,"assignments":[{"sandbox":"x"}]}`,
		"trailing text":   string(good) + "x",
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := New(OS{}, path)
			_, found, err := s.Load()
			var bad *QuarantinedError
			if found || !errors.As(err, &bad) {
				t.Fatalf("found %v, err %v; want a QuarantinedError", found, err)
			}
			kept, readErr := os.ReadFile(bad.MovedTo)
			if readErr != nil || string(kept) != content {
				t.Errorf("content not kept at %q: %v", bad.MovedTo, readErr)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), bad.MovedTo) {
				t.Errorf("error does not say where: %v", err)
			}
			if err := s.Save(sample()); err != nil {
				t.Fatal(err)
			}
			if _, found, err := s.Load(); !found || err != nil {
				t.Errorf("after the next save: found %v, err %v", found, err)
			}
		})
	}
}

func TestCrashDuringSaveLeavesOldOrNew(t *testing.T) {
	boom := errors.New("disk full")
	for _, op := range []string{"write", "written", "rename"} {
		t.Run(op, func(t *testing.T) {
			m := NewMemory()
			s := New(m, "/run/state.json")
			if err := s.Save(sample()); err != nil {
				t.Fatal(err)
			}
			m.Fail = func(o, _ string) error {
				if o == op || o == "remove" { // a crash cleans nothing up
					return boom
				}
				return nil
			}
			if err := s.Save(pool.Snapshot{BootID: "boot-2"}); !errors.Is(err, boom) {
				t.Fatalf("err %v, want the disk's", err)
			}
			m.Fail = nil
			got, found, err := s.Load()
			if !found || err != nil || got.BootID != "boot-1" {
				t.Errorf("found %v, err %v, boot %q; want the old content", found, err, got.BootID)
			}
			if err := s.Save(pool.Snapshot{BootID: "boot-3"}); err != nil {
				t.Fatal(err)
			}
			if names := m.Names(); len(names) != 1 {
				t.Errorf("files left: %v", names)
			}
		})
	}
}

func TestFileThatCannotBeReadIsNotQuarantined(t *testing.T) {
	m := NewMemory()
	m.Fail = func(op, _ string) error {
		if op == "read" {
			return fs.ErrPermission
		}
		return nil
	}
	_, found, err := New(m, "/x").Load()
	var bad *QuarantinedError
	if found || !errors.Is(err, fs.ErrPermission) || errors.As(err, &bad) {
		t.Errorf("found %v, err %v", found, err)
	}
}

func TestMigrateWalksEveryStep(t *testing.T) {
	steps := []step{
		func(doc map[string]any) error { doc["two"] = true; return nil },
		func(doc map[string]any) error { doc["three"] = doc["two"]; return nil },
	}
	for from, want := range map[int]string{
		1: `{"three":true,"two":true,"version":3}`,
		2: `{"three":null,"version":3}`,
		3: `{"version":3}`,
	} {
		in, _ := json.Marshal(map[string]any{"version": from})
		out, err := migrate(in, from, steps)
		if err != nil || string(out) != want {
			t.Errorf("from %d: %s, %v; want %s", from, out, err, want)
		}
	}
	if _, err := migrate(nil, 4, steps); err == nil {
		t.Error("a version from the future was taken")
	}
}

func TestStepsLeadToTheVersionThatIsWritten(t *testing.T) {
	if n := len(steps()); n != version-1 {
		t.Errorf("%d steps lead to version %d", n, version)
	}
}

func FuzzDecode(f *testing.F) {
	good, err := encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"cooling":[{"address":"10.0.0.1","until":"9999-12-31T23:59:59-10:00"}]}`))
	f.Add([]byte(`{"version":1,"assignments":[{"address":"10.0.0.1","sandbox":"a","since":"0000-01-01T00:00:00+10:00"}]}`))
	f.Add([]byte(`{"version":1,"cooling":[{"address":"fe80::1%eth0"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		snap, err := decode(data, steps())
		if err != nil {
			return
		}
		again, err := encode(snap)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := decode(again, steps())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(snap, back, sameAddr, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
