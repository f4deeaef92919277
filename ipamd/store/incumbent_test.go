package store

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// The file was written by the incumbent's v1.23.2 on a simulated node of five pods.
func TestIncumbentFileIsReadAsItIs(t *testing.T) {
	list, err := NewIncumbent(OS{}, "testdata/incumbent-v1.23.json").Assignments()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 5 {
		t.Fatalf("%d assignments: %v", len(list), list)
	}
	want := pool.Assignment{
		Key:  pool.Key{Network: "aws-cni", Sandbox: "65755d6db2b629b79e8678d6dad289396fb9ec5432c49669f9b87b9be28f2e3c", IfName: "eth0"},
		Pod:  pool.Pod{Namespace: "default", Name: "eks-a-5"},
		Addr: netip.MustParseAddr("10.0.131.205"), Since: time.Unix(0, 1796095438598978183).UTC(),
	}
	if diff := cmp.Diff(want, list[0], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("first assignment (-want +got):\n%s", diff)
	}
}

func TestIncumbentFileTrouble(t *testing.T) {
	whole, err := os.ReadFile("testdata/incumbent-v1.23.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text  string
		want  string // of the error
		found int
	}{
		"cut off":         {text: string(whole[:len(whole)/2]), want: "decode the incumbent's allocations in /ipam.json"},
		"another version": {text: strings.Replace(string(whole), "ipam/1", "ipam/2", 1), want: `version "vpc-cni-ipam/2" is not`},
		"empty":           {text: "", want: "decode the incumbent's allocations"},
		"no allocation":   {text: `{"version":"vpc-cni-ipam/1","allocations":[]}`},
		"IPv6 only":       {text: `{"version":"vpc-cni-ipam/1","allocations":[{"containerID":"a","ipv6":"fd00::1"},{"containerID":"b","ipv4":"10.0.0.5"}]}`, found: 1},
	} {
		t.Run(name, func(t *testing.T) {
			disk := NewMemory()
			if err := disk.WriteFile("/ipam.json", []byte(c.text), mode); err != nil {
				t.Fatal(err)
			}
			list, err := NewIncumbent(disk, "/ipam.json").Assignments()
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if len(list) != c.found {
				t.Errorf("found %v, want %d", list, c.found)
			}
			if left, err := disk.ReadFile("/ipam.json"); err != nil || string(left) != c.text {
				t.Errorf("the file was touched: %v %q", err, left)
			}
		})
	}
	if list, err := NewIncumbent(NewMemory(), "/ipam.json").Assignments(); err != nil || list != nil {
		t.Errorf("without a file: %v, %v", list, err)
	}
}
