package config

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func entry(t *testing.T, r Report, setting string) Entry {
	t.Helper()
	i := slices.IndexFunc(r.Settings, func(e Entry) bool { return e.Setting == setting })
	if i < 0 {
		t.Fatalf("%s is not listed", setting)
	}
	return r.Settings[i]
}

func TestExplainSaysWhereEachValueCameFrom(t *testing.T) {
	report := Explain([]string{"WARM_IP_TARGET=5", "MAX_ENI=", "AWS_VPC_ENI_MTU=1500", "VPC_CNI_SOCKET=/run/x/cni.sock", "ENABLE_IPv4=true"}, anyKey)
	for _, want := range []Entry{
		{Setting: "WARM_IP_TARGET", Value: "5", Source: FromEnvironment, Unit: "addresses"},
		{Setting: "WARM_ENI_TARGET", Value: "1", Source: FromDefault, Unit: "ENIs"},
		{Setting: "MAX_ENI", Value: "-1", Source: FromDefault, Unit: "ENIs"}, // empty counts as not set
		{Setting: "POD_MTU", Value: "1500", Source: FromSetting, Unit: "bytes", Note: "from AWS_VPC_ENI_MTU"},
		{Setting: "VPC_CNI_HEALTH_SOCKET", Value: "/run/x/ipamd.sock", Source: FromSetting, Note: "from VPC_CNI_SOCKET"},
		{Setting: "ENABLE_IPv4", Value: "true", Source: FromEnvironment, Note: "no effect: IPv4 is always on"},
	} {
		if diff := cmp.Diff(want, entry(t, report, want.Setting)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Setting, diff)
		}
	}
	if len(report.Errors) > 0 {
		t.Errorf("errors: %v", report.Errors)
	}
	var s Settings
	for _, setting := range s.settings(nil) {
		entry(t, report, setting.name) // every one is listed
	}
}

func TestExplainShowsBadSettingsBesideTheGoodOnes(t *testing.T) {
	report := Explain([]string{"WARM_IP_TARGET=five", "ENABLE_IPv6=true", "MAX_ENI=3", "WARM_IP_TARGTE=5"}, anyKey)
	if len(report.Errors) != 2 {
		t.Errorf("errors: %q", report.Errors)
	}
	var out bytes.Buffer
	if err := report.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"CANNOT BE USED: want an integer from 0 to 4096\n", "CANNOT BE USED: want only false, 0, f: IPv6 is not supported yet\n",
		"note: WARM_IP_TARGTE is not a setting",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	lines := strings.Split(out.String(), "\n")
	column := strings.Index(lines[0], "SOURCE")
	for _, line := range lines[1:] {
		if strings.HasPrefix(line, "MAX_ENI ") && !strings.HasPrefix(line[column:], "environment") {
			t.Errorf("the table is not aligned:\n%s", out.String())
		}
	}
}
