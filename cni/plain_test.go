package cni

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// TestResultIsWhatTheLibraryPrints compares the result as it is printed with the library's, in every version.
func TestResultIsWhatTheLibraryPrints(t *testing.T) {
	mac := net.HardwareAddr{2, 3, 4, 5, 6, 7}
	four := api.PodNetwork{HostVeth: "eni1", Addr: netip.MustParsePrefix("10.0.1.20/32"), Gateway: netip.MustParseAddr("169.254.1.1")}
	routed := four
	routed.Routes = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("10.8.0.0/16")}
	six := api.PodNetwork{HostVeth: `eni"1`, Addr: netip.MustParsePrefix("2001:db8::1/128"), Gateway: netip.MustParseAddr("fe80::1")}
	for _, version := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		for _, recipe := range []api.PodNetwork{four, routed, six} {
			result := resultOf(&skel.CmdArgs{IfName: "eth0", Netns: "/run/netns/<x>"}, recipe, podnet.Pair{HostMAC: mac, PodMAC: mac})
			var got, want any
			if err := json.Unmarshal(appendResult(nil, result, version), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(libraryText(t, result, version), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, not %v", version, got, want)
			}
		}
	}
}

func libraryText(t *testing.T, result *current.Result, version string) []byte {
	t.Helper()
	var converted types.Result
	converted, err := result.GetAsVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(converted)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzPlainConf compares what is read without encoding/json with what that reads.
func FuzzPlainConf(f *testing.F) {
	for _, seed := range []string{
		`{"cniVersion":"1.0.0","name":"a","socket":"/s","logFile":"/l","logLevel":"info","type":"aws-cni"}`,
		`{"name":"a","prevResult":{"ips":[{"address":"10.0.0.1/32"}]}}`, `{"name":"a","prevResult":null}`, `{ "prevResult" : { "a" : [ 1 ] } , "name":"a" } `, `{"NAME":"a"}`, `{"PrevResult":{}}`,
		`{"name":"a","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`, `{"name":1}`, `{"name":"a","name":null}`, `[]`, `{"name":"a"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stdin []byte) {
		got, plain := plainConf(stdin)
		if !plain {
			return
		}
		var want rawConf
		if err := json.Unmarshal(stdin, &want); err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("%s: %q, not %q, %v", stdin, got, want, err)
		}
	})
}
