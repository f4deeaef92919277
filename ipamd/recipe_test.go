package ipamd

import (
	"testing"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func TestHostVeth(t *testing.T) {
	key := pool.Key{Network: "aws-cni", Sandbox: "0123", IfName: "eth0"}
	tests := []struct {
		prefix string
		pod    pool.Pod
		want   string
	}{
		// By hand: printf default.nginx | sha1sum
		{"eni", pool.Pod{Namespace: "default", Name: "nginx"}, "enic440f455693"},
		{"cali", pool.Pod{Namespace: "a.b", Name: "c", UID: "u"}, "cali62322b00c8c"},
		{"eni", pool.Pod{}, "eni04df4fe74e6"},
	}
	for _, test := range tests {
		got := hostVeth(test.prefix, key, test.pod)
		if got != test.want || len(got) > 15 {
			t.Errorf("%v: %s, want %s", test.pod, got, test.want)
		}
	}
}
