package store

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// result is a file as libcni 1.3 writes it, of a pod whose name is the sandbox's id.
func result(network, sandbox, addr string) string {
	return fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":"e30=","ifName":"eth0","networkName":%q,"netns":"/run/netns/%s",`+
		`"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","ns"],["K8S_POD_NAME",%q],["K8S_POD_UID","u-%s"]],`+
		`"result":{"cniVersion":"0.4.0","interfaces":[{"name":"eni1"}],"ips":[{"version":"4","interface":1,"address":"%s/32","gateway":"169.254.1.1"}]}}`,
		sandbox, network, sandbox, sandbox, sandbox, addr)
}

func TestResultsOfTheRuntime(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "results")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)
	write := func(name, text string, age time.Duration) {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at.Add(-age), at.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	write("net-young-eth0", result("net", "young", "10.0.1.7"), 0)
	write("net-old-eth0", result("net", "old", "10.0.1.8"), time.Hour)
	write("net-stale-eth0", result("net", "stale", "10.0.1.7"), 2*time.Hour) // its address is another's by now
	write("other-x-eth0", result("other", "x", "10.0.1.9"), 0)
	write("net-b-x-eth0", result("net-b", "x", "10.0.1.10"), 0)
	write("net-cut-eth0", result("net", "cut", "10.0.1.11")[:100], 0)
	write("net-none-eth0", `{"kind":"cniCacheV1","containerId":"none","ifName":"eth0","networkName":"net","result":{}}`, 0)
	write("net-v0-eth0", `{"cniVersion":"0.4.0","ips":[]}`, 0)
	if err := syscall.Mkfifo(filepath.Join(folder, "net-pipe-eth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Results{Dir: dir, Network: "net"}.Assignments(anyResult)
	want := func(sandbox, addr string, age time.Duration) pool.Assignment {
		return pool.Assignment{
			Key:  pool.Key{Network: "net", Sandbox: sandbox, IfName: "eth0"},
			Pod:  pool.Pod{Namespace: "ns", Name: sandbox, UID: "u-" + sandbox},
			Addr: netip.MustParseAddr(addr), NetNS: "/run/netns/" + sandbox, Since: at.Add(-age),
		}
	}
	list := []pool.Assignment{want("old", "10.0.1.8", time.Hour), want("young", "10.0.1.7", 0)}
	if diff := cmp.Diff(list, got, sameAddr); diff != "" {
		t.Error(diff)
	}
	if err == nil {
		t.Fatal("files that cannot be read are passed over in silence")
	}
	for _, name := range []string{"net-cut-eth0", "net-none-eth0", "net-v0-eth0"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

func TestMissingResultsAreNone(t *testing.T) {
	if got, err := (Results{Dir: filepath.Join(t.TempDir(), "none"), Network: "net"}).Assignments(anyResult); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func anyResult(pool.Assignment) bool { return true }

func TestDisbelievedResultDoesNotHideAnOlderOne(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "results")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)
	for sandbox, at := range map[string]time.Time{"right": old, "liar": old.Add(time.Hour)} {
		path := filepath.Join(folder, "net-"+sandbox+"-eth0")
		if err := os.WriteFile(path, []byte(result("net", sandbox, "10.0.1.7")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Results{Dir: dir, Network: "net"}.Assignments(func(a pool.Assignment) bool { return a.Key.Sandbox != "liar" })
	if err != nil || len(got) != 1 || got[0].Key.Sandbox != "right" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestManyUnreadableResultsMakeAShortError(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "results")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("net-x%d-eth0", i)), []byte("{garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Results{Dir: dir, Network: "net"}.Assignments(anyResult)
	if err == nil || !strings.Contains(err.Error(), "and 995 more") || len(err.Error()) > 1000 {
		t.Errorf("%v", err)
	}
}
