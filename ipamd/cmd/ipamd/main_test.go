package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	t.Setenv("INTROSPECTION_BIND_ADDRESS", "unix:"+filepath.Join(t.TempDir(), "nobody.sock"))
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
		{[]string{"status"}, 1, "", "Is the daemon running"},
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
	for _, variable := range os.Environ() { // what else is set where the test runs is none of its business
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value) // so that it comes back
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
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
