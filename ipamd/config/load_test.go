package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func anyKey(text string) (names, joined []string, err error) {
	return strings.Split(text, ","), nil, nil
}

func TestAnEmptyEnvironmentGivesTheDefaults(t *testing.T) {
	got, err := Load(nil, anyKey)
	if err != nil {
		t.Fatal(err)
	}
	got.Given = nil
	want := Settings{
		WarmENITarget: 1, MaxENI: -1, Cooldown: 30 * time.Second,
		ENIMTU: 9001, PodMTU: 9001, VethPrefix: "eni", NodePort: true,
		AnnotateKeys: []string{"vpc.amazonaws.com/pod-ips"},
		ENITags:      map[string]string{},
		Socket:       "/var/run/aws-node/cni.sock", StateDir: "/var/run/aws-node",
		IncumbentState: "/var/run/aws-node/ipam.json", HealthSocket: "/var/run/aws-node/ipamd.sock",
		ConfDir: "/host/etc/cni/net.d", BinDir: "/host/opt/cni/bin", CacheDir: "/host/var/lib/cni",
		LogLevel: slog.LevelDebug, LogFormat: "json",
		PluginLogFile: "/var/log/aws-routed-eni/plugin.log", PluginLogLevel: "DEBUG",
		IntrospectionAddress: "127.0.0.1:61679", MetricsAddress: ":61678",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	tests := []struct {
		set  string
		want func(Settings) bool
	}{
		{"WARM_ENI_TARGET=0", func(s Settings) bool { return s.WarmENITarget == 0 }},
		{"WARM_IP_TARGET=+5", func(s Settings) bool { return s.WarmIPTarget == 5 }},
		{"WARM_IP_TARGET=", func(s Settings) bool { return s.WarmIPTarget == 0 }},
		{"MAX_ENI=2", func(s Settings) bool { return s.MaxENI == 2 }},
		{"IP_COOLDOWN_PERIOD=0", func(s Settings) bool { return s.Cooldown == 0 }},
		{"IP_COOLDOWN_PERIOD=61", func(s Settings) bool { return s.Cooldown == 61*time.Second }},
		{"AWS_VPC_ENI_MTU=1500", func(s Settings) bool { return s.ENIMTU == 1500 && s.PodMTU == 1500 }},
		{"POD_MTU=1400", func(s Settings) bool { return s.ENIMTU == 9001 && s.PodMTU == 1400 }},
		{"AWS_VPC_K8S_CNI_VETHPREFIX=cali", func(s Settings) bool { return s.VethPrefix == "cali" }},
		{"AWS_VPC_K8S_CNI_EXTERNALSNAT=T", func(s Settings) bool { return s.ExternalSNAT }},
		{"AWS_VPC_CNI_NODE_PORT_SUPPORT=0", func(s Settings) bool { return !s.NodePort }},
		{"ANNOTATE_POD_IP_WAIT=250ms", func(s Settings) bool { return s.AnnotateWait == 250*time.Millisecond }},
		{"ANNOTATE_POD_IP_WAIT=0", func(s Settings) bool { return s.AnnotateWait == 0 }},
		{"ANNOTATE_POD_IP_KEYS=a/b,c/d", func(s Settings) bool { return slices.Equal(s.AnnotateKeys, []string{"a/b", "c/d"}) }},
		{`ADDITIONAL_ENI_TAGS={"team":"net","node.k8s.amazonaws.com/x":"y"}`, func(s Settings) bool {
			return maps.Equal(s.ENITags, map[string]string{"team": "net"}) && len(s.Notes) == 1
		}},
		{"INTROSPECTION_BIND_ADDRESS=unix:/run/x.sock", func(s Settings) bool { return s.IntrospectionAddress == "unix:/run/x.sock" }},
		{"INTROSPECTION_BIND_ADDRESS=[::1]:0", func(s Settings) bool { return s.IntrospectionAddress == "[::1]:0" }},
		{"AWS_VPC_K8S_CNI_LOGLEVEL=warn", func(s Settings) bool { return s.LogLevel == slog.LevelWarn }},
		{"AWS_VPC_K8S_PLUGIN_LOG_FILE=/tmp/x", func(s Settings) bool { return s.PluginLogFile == "/tmp/x" }},
		{"AWS_VPC_K8S_PLUGIN_LOG_LEVEL=Info", func(s Settings) bool { return s.PluginLogLevel == "INFO" }},
		{"ENABLE_NFTABLES=whatever", func(s Settings) bool { return len(s.Notes) == 1 }},
		{"ENABLE_PREFIX_DELEGATION=False", func(s Settings) bool { return len(s.Notes) == 0 }},
		{"ENABLE_IPv4=true", func(s Settings) bool { return len(s.Notes) == 0 }},
		{"ENABLE_POD_ENI=", func(s Settings) bool { return len(s.Notes) == 0 }},
	}
	for _, test := range tests {
		t.Run(test.set, func(t *testing.T) {
			s, err := Load([]string{test.set}, anyKey)
			if err != nil {
				t.Fatal(err)
			}
			if !test.want(s) {
				t.Errorf("settings: %+v", s)
			}
		})
	}
}

func TestWhatCannotBeUsedIsToldByNameValueAndWhatIsAccepted(t *testing.T) {
	tests := []string{
		"WARM_ENI_TARGET=-1", "WARM_ENI_TARGET=one", "WARM_IP_TARGET=5000", "MAX_ENI=1.5",
		"IP_COOLDOWN_PERIOD=30s", "IP_COOLDOWN_PERIOD=-1",
		"AWS_VPC_ENI_MTU=575", "POD_MTU=9002",
		"AWS_VPC_K8S_CNI_VETHPREFIX=eth", "AWS_VPC_K8S_CNI_VETHPREFIX=toolong", "AWS_VPC_K8S_CNI_VETHPREFIX=a/b",
		"ANNOTATE_POD_IP=yes", "ANNOTATE_POD_IP=on", "ANNOTATE_POD_IP= true", "DISABLE_METRICS=2",
		"ANNOTATE_POD_IP_KEYS=a b",
		"ANNOTATE_POD_IP_WAIT=5", "ANNOTATE_POD_IP_WAIT=5m",
		"ADDITIONAL_ENI_TAGS={", `ADDITIONAL_ENI_TAGS={"aws:x":"y"}`, `ADDITIONAL_ENI_TAGS=["a"]`,
		"INTROSPECTION_BIND_ADDRESS=61679", "INTROSPECTION_BIND_ADDRESS=unix:run/x", "VPC_CNI_METRICS_BIND_ADDRESS=node:http",
		"AWS_VPC_K8S_CNI_LOGLEVEL=loud", "AWS_VPC_K8S_PLUGIN_LOG_FILE=stdout", "AWS_VPC_K8S_PLUGIN_LOG_FILE=stderr", "CLUSTER_ENDPOINT=api", "AWS_EC2_ENDPOINT=ec2.local",
		"VPC_CNI_SOCKET=cni.sock", "VPC_CNI_SOCKET=/" + strings.Repeat("a", 103), "VPC_CNI_STATE_DIR=.",
		"ENABLE_PREFIX_DELEGATION=true", "ENABLE_POD_ENI=TRUE", "ENABLE_IPv6=1", "ENABLE_IPv4=false",
		"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true", "ENABLE_MULTI_NIC=true", "ENABLE_IMDS_ONLY_MODE=true",
		"AWS_VPC_K8S_CNI_RANDOMIZESNAT=none", "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS=10.1.0.0/16", "NETWORK_POLICY_ENFORCING_MODE=strict",
	}
	check := func(text string) (names, joined []string, err error) {
		if strings.Contains(text, " ") {
			return nil, nil, errors.New("not a key")
		}
		return []string{text}, nil, nil
	}
	for _, set := range tests {
		t.Run(set, func(t *testing.T) {
			_, err := Load([]string{set}, check)
			var bad *Error
			if !errors.As(err, &bad) || len(bad.Problems) != 1 {
				t.Fatalf("error: %v", err)
			}
			name, value, _ := strings.Cut(set, "=")
			problem := bad.Problems[0]
			if problem.Setting != name || problem.Value != value || problem.Accepts == "" {
				t.Errorf("problem: %+v", problem)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("%s=%q: want ", name, value)) {
				t.Errorf("text: %v", err)
			}
		})
	}
}

func TestAllProblemsAreToldAtOnceInTheOrderOfTheTable(t *testing.T) {
	_, err := Load([]string{"ENABLE_IPv6=true", "DISABLE_METRICS=no", "WARM_ENI_TARGET=x", "ENABLE_IPv6=true"}, anyKey)
	var bad *Error
	if !errors.As(err, &bad) {
		t.Fatalf("error: %v", err)
	}
	var names []string
	for _, problem := range bad.Problems {
		names = append(names, problem.Setting)
	}
	if diff := cmp.Diff([]string{"WARM_ENI_TARGET", "DISABLE_METRICS", "ENABLE_IPv6"}, names); diff != "" {
		t.Errorf("settings named (-want +got):\n%s", diff)
	}
}

func TestAnnotationsNeedTheNodesName(t *testing.T) {
	if _, err := Load([]string{"ANNOTATE_POD_IP=true"}, anyKey); err == nil {
		t.Error("no error without MY_NODE_NAME")
	}
	if _, err := Load([]string{"ANNOTATE_POD_IP=true", "MY_NODE_NAME=a"}, anyKey); err != nil {
		t.Error(err)
	}
}

// The incumbent's manifests must do: the environment that its chart sets by default.
func TestTheIncumbentsDefaultEnvironment(t *testing.T) {
	s, err := Load([]string{
		"ADDITIONAL_ENI_TAGS={}", "ANNOTATE_POD_IP=false", "AWS_VPC_CNI_NODE_PORT_SUPPORT=true", "AWS_VPC_ENI_MTU=9001",
		"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=false", "AWS_VPC_K8S_CNI_EXTERNALSNAT=false",
		"AWS_VPC_K8S_CNI_LOGLEVEL=DEBUG", "AWS_VPC_K8S_CNI_LOG_FILE=/host/var/log/aws-routed-eni/ipamd.log",
		"AWS_VPC_K8S_CNI_RANDOMIZESNAT=prng", "AWS_VPC_K8S_CNI_VETHPREFIX=eni",
		"AWS_VPC_K8S_PLUGIN_LOG_FILE=/var/log/aws-routed-eni/plugin.log", "AWS_VPC_K8S_PLUGIN_LOG_LEVEL=DEBUG",
		"CLUSTER_ENDPOINT=https://example.eks.amazonaws.com", "CLUSTER_NAME=c",
		"DISABLE_INTROSPECTION=false", "DISABLE_METRICS=false", "DISABLE_NETWORK_RESOURCE_PROVISIONING=false",
		"ENABLE_IMDS_ONLY_MODE=false", "ENABLE_IPv4=true", "ENABLE_IPv6=false", "ENABLE_MULTI_NIC=false", "ENABLE_POD_ENI=false",
		"ENABLE_PREFIX_DELEGATION=false", "ENABLE_SUBNET_DISCOVERY=true", "NETWORK_POLICY_ENFORCING_MODE=standard",
		"VPC_CNI_VERSION=v1.23.0", "WARM_ENI_TARGET=1", "WARM_PREFIX_TARGET=1", "MY_NODE_NAME=n", "MY_POD_NAME=aws-node-x",
		"KUBERNETES_SERVICE_HOST=10.100.0.1", "PATH=/bin",
	}, anyKey)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"WARM_PREFIX_TARGET has no effect: matters only with prefix delegation",
		"ENABLE_SUBNET_DISCOVERY has no effect: new ENIs are made in the primary ENI's subnet",
	}
	if diff := cmp.Diff(want, s.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// The README's table must name every setting once, and its rows must be rows.
func TestTable(t *testing.T) {
	table := Table()
	var s Settings
	for _, setting := range s.settings(anyKey) {
		if strings.Count(table, "| `"+setting.name+"` |") != 1 {
			t.Errorf("%s is not there once", setting.name)
		}
		if setting.doc == "" {
			t.Errorf("%s has no meaning", setting.name)
		}
	}
	for _, f := range compatibility() {
		if strings.Count(table, "| `"+f.name+"` |") != 1 {
			t.Errorf("%s is not there once", f.name)
		}
	}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| `") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 6 && strings.Count(line, "|") != 4 {
			t.Errorf("row: %s", line)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("ADDITIONAL_ENI_TAGS", `{"a":"b"}`)
	f.Add("INTROSPECTION_BIND_ADDRESS", "[::]:1")
	f.Add("ANNOTATE_POD_IP_KEYS", ",,")
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := Load([]string{name + "=" + value}, anyKey)
		var bad *Error
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("error of another type: %v", err)
		}
		if err == nil && (s.PodMTU < minMTU || s.ENIMTU > maxMTU || s.Cooldown < 0 || len(s.VethPrefix) > maxVethPrefix) {
			t.Fatalf("settings out of range: %+v", s)
		}
	})
}
