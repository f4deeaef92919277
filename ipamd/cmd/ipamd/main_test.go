package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	bare(t)
	dir := t.TempDir()
	t.Setenv("VPC_CNI_HEALTH_SOCKET", filepath.Join(dir, "nobody.sock"))
	t.Setenv("WARM_IP_TARGET", "5")
	t.Setenv("ANNOTATE_POD_IP", "true") // without a node's name
	tests := []struct {
		args        []string
		code        int
		out, errOut string
	}{
		{[]string{"--help"}, 0, "ipamd settings", ""},
		{[]string{"-h"}, 0, "ipamd settings", ""},
		{[]string{"help"}, 0, "ipamd settings", ""},
		{[]string{"settings"}, 0, "| `WARM_ENI_TARGET` |", ""},
		{[]string{"settings"}, 0, "| `awscni_eni_allocated` |", ""},
		{[]string{"status"}, 1, "", "nobody.sock"},
		{[]string{"status"}, 1, "", "Is the daemon running, and are VPC_CNI_SOCKET"},
		{[]string{"explain"}, 1, "", "Is the daemon running"},
		{[]string{"explain", "-o", "json"}, 1, "", "Is the daemon running"},
		{[]string{"--print-config"}, 1, "MY_NODE_NAME", "1 of the settings cannot be used, and the daemon would not start:\n  MY_NODE_NAME"},
		{[]string{"--print-config", "-o", "json"}, 1, "\"value\": \"5\",\n      \"source\": \"environment\"", "MY_NODE_NAME"},
		{[]string{"-o", "yaml", "status"}, 2, "", "unknown form -o yaml"},
		{[]string{"settings", "-o", "json"}, 2, "", "-o json belongs to"},
		{[]string{"--print-config", "status"}, 2, "", "--print-config is no part of \"status\""},
		{[]string{"serve"}, 2, "", "unknown command \"serve\"\nipamd gives"},
		{[]string{"settings", "all"}, 2, "", "ipamd settings"},
		{[]string{"--verbose"}, 2, "", "flag provided but not defined: -verbose\nipamd gives"},
	}
	for _, test := range tests {
		var out, errOut bytes.Buffer
		code := run(test.args, &out, &errOut)
		if code != test.code || !strings.Contains(out.String(), test.out) || !strings.Contains(errOut.String(), test.errOut) {
			t.Errorf("%v: code %d, out %q, err %q", test.args, code, out.String(), errOut.String())
		}
	}
}

func TestEveryBadSettingIsToldBeforeAnythingStarts(t *testing.T) {
	bare(t)
	t.Setenv("ANNOTATE_POD_IP", "yes")
	t.Setenv("ANNOTATE_POD_IP_KEYS", "a/b/c,kubernetes.io/config.hash")
	t.Setenv("ENABLE_PREFIX_DELEGATION", "true")
	t.Setenv("WARM_IP_TARGET", "five")
	t.Setenv("WARM_IP_TARGTE", "5")
	var out, errOut bytes.Buffer
	if code := run(nil, &out, &errOut); code != 1 || out.Len() > 0 {
		t.Errorf("code %d, out %q", code, out.String())
	}
	for _, want := range []string{
		"4 cannot be used",
		`ANNOTATE_POD_IP="yes": want true or false`,
		`ANNOTATE_POD_IP_KEYS="a/b/c,kubernetes.io/config.hash": want annotation keys`,
		`ENABLE_PREFIX_DELEGATION="true": want only false`,
		`WARM_IP_TARGET="five": want an integer from 0 to 4096`,
		"note: WARM_IP_TARGTE is not a setting of this daemon and has no effect; the nearest one is WARM_IP_TARGET",
	} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("%q is not in:\n%s", want, errOut.String())
		}
	}
	if lines := strings.Count(errOut.String(), "\n"); lines != 6 {
		t.Errorf("%d lines:\n%s", lines, errOut.String())
	}
}

// bare empties the environment: what else is set where the test runs is none of its business.
func bare(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value) // so that it comes back
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADaemonThatHasEndedIsToldFromOneThatIsNotThere(t *testing.T) {
	bare(t)
	path := filepath.Join(t.TempDir(), "ipamd.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VPC_CNI_HEALTH_SOCKET", path)
	t.Setenv("WARM_IP_TARGET", "five") // none of the question's business
	var out, errOut bytes.Buffer
	if code := run([]string{"status"}, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), "has ended and left its socket") {
		t.Errorf("code %d: %s", code, errOut.String())
	}
	t.Setenv("VPC_CNI_HEALTH_SOCKET", "relative")
	errOut.Reset()
	if code := run([]string{"status"}, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), "VPC_CNI_HEALTH_SOCKET") {
		t.Errorf("code %d: %s", code, errOut.String())
	}
}
