package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMisspelledNameIsRemarkedOnWithTheNearestOne(t *testing.T) {
	tests := []struct{ set, near string }{ // near "": no remark
		{"WARM_IP_TARGTE=5", "WARM_IP_TARGET"},
		{"ANNOTATE_POD_IPS=true", "ANNOTATE_POD_IP"},
		{"VPC_CNI_FOO=1", "VPC_CNI_SOCKET"},
		{"ANNOTATE_POD_IP_KEY=a/b", "ANNOTATE_POD_IP_KEYS"},
		{"ANNOTATE_PODS=true", "ANNOTATE_POD_IP"},
		{"MINIMUM_IPS=3", "MINIMUM_IP_TARGET"},
		{"AWS_VPC_K8S_CNI_LOG_LEVEL=WARN", "AWS_VPC_K8S_CNI_LOGLEVEL"},
		{"AWS_VPC_CNI_NODE_PORT_SUPPROT=false", "AWS_VPC_CNI_NODE_PORT_SUPPORT"},
		{"AWS_VPC_CNI_NODE_PORT=false", "AWS_VPC_CNI_NODE_PORT_SUPPORT"},
		{"WRAM_IP_TARGET=5", "WARM_IP_TARGET"},
		{"IP_COOLDOWN_PEROID=5", "IP_COOLDOWN_PERIOD"},
		{"warm_ip_target=5", "WARM_IP_TARGET"},
		{"MAX_ENIS=2", "MAX_ENI"},
		{"MYNODE_NAME=n", "MY_NODE_NAME"},
		{"ENABLE_IPV6=false", "ENABLE_IPv6"},
		{"WARM_IP_TARGTE=", "WARM_IP_TARGET"},

		{"VPC_CNI_PORT_80_TCP=tcp://10.0.0.1:80", ""},
		{"VPC_CNI_PORT_80_TCP_ADDR=10.0.0.1", ""},
		{"VPC_CNI_PORT=tcp://10.0.0.1:80", ""},
		{"VPC_CNI_SERVICE_HOST=10.0.0.1", ""},
		{"VPC_CNI_SERVICE_PORT_METRICS=80", ""},
		{"POD_CPU=1", ""},
		{"AWS_REGION=us-west-2", ""},
		{"AWS_ENDPOINT_URL_EC2=http://10.0.0.1", ""},
		{"PATH=/bin", ""},
		{"KUBERNETES_SERVICE_HOST=10.100.0.1", ""},
		{"=x", ""},
	}
	for _, test := range tests {
		t.Run(test.set, func(t *testing.T) {
			s, err := Load([]string{test.set}, anyKey)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.near != "" {
				name, _, _ := strings.Cut(test.set, "=")
				want = []string{name + " is not a setting of this daemon and has no effect; the nearest one is " + test.near + ": is it misspelled?"}
			}
			if diff := cmp.Diff(want, s.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

// A daemon that does not start has no log, so its error must say it: the bad value may be the smaller mistake.
func TestMisspelledNamesAreToldWithBadValues(t *testing.T) {
	_, err := Load([]string{"WARM_IP_TARGTE=5", "MAX_ENI=two"}, anyKey)
	var bad *Error
	if !errors.As(err, &bad) || len(bad.Problems) != 1 || len(bad.Notes) != 1 || !strings.Contains(err.Error(), "\n  note: WARM_IP_TARGTE is not") {
		t.Errorf("error: %v", err)
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"", "ab", 2}, {"abcd", "badc", 2}, {"kitten", "sitting", 3}} {
		if got, back := distance(test.a, test.b), distance(test.b, test.a); got != test.want || back != test.want {
			t.Errorf("%q, %q: %d and %d, want %d", test.a, test.b, got, back, test.want)
		}
	}
}
