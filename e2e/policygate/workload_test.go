package policygate

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var comparePrefixes = cmpopts.EquateComparable(netip.Prefix{})

func TestAddressesFollowTheOrderOfTrust(t *testing.T) {
	ips := func(list ...string) (out []corev1.PodIP) {
		for _, ip := range list {
			out = append(out, corev1.PodIP{IP: ip})
		}
		return out
	}
	tests := []struct {
		name        string
		keys        []string
		annotations map[string]string
		status      corev1.PodStatus
		want        []string
		wantErr     string
	}{
		{name: "nothing known yet"},
		{name: "status.podIPs before all", annotations: map[string]string{calicoPodIPs: "10.0.0.3/32", AWSPodIPs: "10.0.0.5"},
			status: corev1.PodStatus{PodIP: "10.0.0.2", PodIPs: ips("10.0.0.1", "fd00::1")}, want: []string{"10.0.0.1/32", "fd00::1/128"}},
		{name: "then status.podIP", annotations: map[string]string{calicoPodIPs: "10.0.0.3/32", AWSPodIPs: "10.0.0.5"},
			status: corev1.PodStatus{PodIP: "10.0.0.2"}, want: []string{"10.0.0.2/32"}},
		{name: "then Calico's list", annotations: map[string]string{calicoPodIPs: "10.0.0.3/32,10.0.0.4/32", calicoPodIP: "10.0.0.9/32", AWSPodIPs: "10.0.0.5"},
			want: []string{"10.0.0.3/32", "10.0.0.4/32"}},
		{name: "then Calico's single address", annotations: map[string]string{calicoPodIP: "10.0.0.9/32", AWSPodIPs: "10.0.0.5"}, want: []string{"10.0.0.9/32"}},
		{name: "then the CNI's key", annotations: map[string]string{AWSPodIPs: "10.0.0.5"}, want: []string{"10.0.0.5/32"}},
		{name: "a list of addresses and CIDRs", annotations: map[string]string{AWSPodIPs: "10.0.0.5,10.0.0.6/32"}, want: []string{"10.0.0.5/32", "10.0.0.6/32"}},
		{name: "an empty value supplies nothing", annotations: map[string]string{AWSPodIPs: ""}},
		{name: "another key, when told so", keys: []string{"example.org/ip"}, annotations: map[string]string{AWSPodIPs: "10.0.0.5", "example.org/ip": "10.0.0.7"}, want: []string{"10.0.0.7/32"}},
		{name: "keys in their order", keys: []string{"a", "b"}, annotations: map[string]string{"b": "10.0.0.2", "a": "10.0.0.1"}, want: []string{"10.0.0.1/32"}},
		{name: "no key: the annotation is not read", keys: []string{}, annotations: map[string]string{AWSPodIPs: "10.0.0.5"}},
		{name: "one bad item fails all", annotations: map[string]string{AWSPodIPs: "10.0.0.5,nonsense"}, wantErr: "nonsense"},
		{name: "a trailing comma is a bad item", annotations: map[string]string{AWSPodIPs: "10.0.0.5,"}, wantErr: AWSPodIPs},
		{name: "spaces are not forgiven", annotations: map[string]string{AWSPodIPs: "10.0.0.5, 10.0.0.6"}, wantErr: " 10.0.0.6"},
		{name: "a bad CIDR", annotations: map[string]string{AWSPodIPs: "10.0.0.5/33"}, wantErr: "10.0.0.5/33"},
		{name: "a zone", annotations: map[string]string{AWSPodIPs: "fe80::1%eth0"}, wantErr: "zone"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			reader := Reader{Keys: test.keys}
			if test.keys == nil {
				reader.Keys = []string{AWSPodIPs}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: test.annotations}, Status: test.status}
			got, err := reader.Addresses(pod)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || !strings.Contains(err.Error(), "ns/p") {
					t.Fatalf("error = %v, want one that names the pod and %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []netip.Prefix
			for _, item := range test.want {
				want = append(want, netip.MustParsePrefix(item))
			}
			if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFinished(t *testing.T) {
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	tests := []struct {
		name        string
		deleted     *metav1.Time
		annotations map[string]string
		phase       corev1.PodPhase
		want        bool
	}{
		{name: "running", phase: corev1.PodRunning},
		{name: "running with an empty value", annotations: map[string]string{AWSPodIPs: ""}, phase: corev1.PodRunning},
		{name: "being deleted, never had a key", deleted: deleted, phase: corev1.PodRunning},
		{name: "being deleted, still has its address", deleted: deleted, annotations: map[string]string{AWSPodIPs: "10.0.0.5"}},
		{name: "being deleted, network removed", deleted: deleted, annotations: map[string]string{AWSPodIPs: ""}, want: true},
		{name: "the same said by Calico's key", deleted: deleted, annotations: map[string]string{calicoPodIP: ""}, want: true},
		{name: "succeeded", phase: corev1.PodSucceeded, annotations: map[string]string{AWSPodIPs: "10.0.0.5"}, want: true},
		{name: "failed", phase: corev1.PodFailed, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted, Annotations: test.annotations},
				Status:     corev1.PodStatus{Phase: test.phase},
			}
			if got := (Reader{Keys: []string{AWSPodIPs}}).Finished(pod); got != test.want {
				t.Errorf("Finished = %t, want %t", got, test.want)
			}
		})
	}
}

// The name is what a policy engine beside a VPC CNI computes: "eni" and the first eleven digits of sha1("default.nginx").
func TestVethNameIsTheFieldsName(t *testing.T) {
	if got, want := VethName("default", "nginx"), "enic440f455693"; got != want {
		t.Errorf("VethName = %q, want %q", got, want)
	}
}
