package cni_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadInputIsRefusedByName(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	good := n.conf("")
	cases := []struct {
		name, stdin, args string
		code              uint
		says              []string
	}{
		{"no stdin", "", "", 6, []string{"stdin", "line 1, column 1", "ends too early"}},
		{"cut short", good[:len(good)-1], "", 6, []string{"stdin", "ends too early"}},
		{"only a brace", "{", "", 6, []string{"line 1, column 2", "ends too early"}},
		{"stray character", "{\n  \"name\": !\n}", "", 6, []string{"line 2, column 11", "'!'"}},
		{"not an object", `[1]`, "", 6, []string{"not a JSON object", "array"}},
		{"number as socket", strings.Replace(good, `"socket":"`, `"socket":5,"was":"`, 1), "", 7, []string{"field socket", "number", "line 1"}},
		{"relative socket", strings.Replace(good, `"socket":"`, `"socket":"run/`, 1), "", 7, []string{"field socket", "absolute"}},
		{"long socket", strings.Replace(good, `"socket":"`, `"socket":"/`+strings.Repeat("x", 200), 1), "", 7, []string{"field socket", "107"}},
		{"log on stdout", n.conf(`,"logFile":"stdout"`), "", 7, []string{"field logFile", "stdout"}},
		{"log on /dev/stdout", n.conf(`,"logFile":"/dev/stdout"`), "", 7, []string{"field logFile"}},
		{"unknown level", n.conf(`,"logLevel":"loud"`), "", 7, []string{"field logLevel", "loud", "warn"}},
		{"not first of its list", n.conf(`,"prevResult":{"cniVersion":"1.0.0","ips":[]}`), "", 7, []string{"prevResult", "first"}},
		{"args without =", good, "IgnoreUnknown=1;K8S", 4, []string{"CNI_ARGS", `"K8S"`}},
		{"args without pod", good, "K8S_POD_NAMESPACE=default", 4, []string{"K8S_POD_NAME"}},
		{"args without namespace", good, "K8S_POD_NAME=web-0", 4, []string{"K8S_POD_NAMESPACE"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := n.command("ADD", s, c.stdin)
			if c.args != "" {
				cmd.Env = append(cmd.Env, "CNI_ARGS="+c.args)
			}
			got := refused(t, cmd)
			if got.Code != c.code {
				t.Errorf("code %d, not %d", got.Code, c.code)
			}
			for _, word := range c.says {
				if !strings.Contains(got.Error(), word) {
					t.Errorf("%q does not say %q", got.Error(), word)
				}
			}
		})
	}
	n.clean()
}

func TestUnknownKeysAreIgnored(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	cmd := n.command("ADD", s, n.conf(`,"vethPrefix":"eni","mtu":"9001","ipMasq":{"a":[1]}`))
	cmd.Env = append(cmd.Env, "CNI_ARGS=K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;SOME_KEY=a=b;;")
	if output, err := cmd.Output(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

func TestDelReadsNoMoreThanItNeeds(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	for name, c := range map[string]struct{ more, args string }{
		"result of another release": {`,"prevResult":{"cniVersion":"1.0.0","ips":7,"interfaces":"x"}`, ""},
		"unreadable arguments":      {"", "K8S"},
		"no arguments":              {"", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			n.add(s)
			cmd := n.command("DEL", s, n.conf(c.more))
			if c.args != "" {
				cmd.Env = append(cmd.Env, "CNI_ARGS="+strings.Trim(c.args, "-"))
			}
			if output, err := cmd.Output(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
			n.clean()
		})
	}
}

func TestCheckNamesAnUnreadableResult(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	n.add(s)
	got := refused(t, n.command("CHECK", s, n.conf(`,"prevResult":{"cniVersion":"1.0.0","ips":7}`)))
	if got.Code != 7 || !strings.Contains(got.Msg, "prevResult") {
		t.Errorf("%+v", got)
	}
	got = refused(t, n.command("CHECK", s, n.conf(`,"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.9.9.9/32"}]}`)))
	if got.Code != 105 || !strings.Contains(got.Details, "prevResult lacks 10.0.1.20") {
		t.Errorf("%+v", got)
	}
}

func TestHostsOwnNamespaceIsRefused(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	s.NetNS = "/proc/1/ns/net" // netlab's PID 1 is this test
	if got := refused(t, n.command("ADD", s, n.conf(""))); got.Code != 8 || !strings.Contains(got.Msg, "host") {
		t.Errorf("ADD: %+v", got)
	}
	n.del(s) // there is nothing of the sandbox to remove, and a runtime would try for ever
	await(t, "abort", func() bool { return n.allocator.live() == 0 })
	n.clean()
}

func TestSuccessIsSilent(t *testing.T) {
	n := newNode(t, "1.1.0")
	s := n.sandbox("one", "web-0")
	for _, verb := range []string{"STATUS", "ADD", "CHECK", "DEL"} {
		cmd := n.command(verb, s, n.conf(`,"logFile":"`+n.folder+`/plugin.log"`))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		output, err := cmd.Output()
		if err != nil || stderr.Len() > 0 || (verb != "ADD" && len(output) > 0) {
			t.Errorf("%s: %v, stdout %q, stderr %q", verb, err, output, stderr.String())
		}
	}
	if found, _ := filepath.Glob(n.folder + "/*.log"); len(found) > 0 {
		t.Errorf("log written: %q", found)
	}
}

func TestVersionNeedsNoInput(t *testing.T) {
	n := newNode(t, "1.0.0")
	cmd := exec.Command(filepath.Join(n.bin, "aws-cni"))
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	output, err := cmd.Output()
	if want := `{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}`; err != nil || strings.TrimSpace(string(output)) != want {
		t.Errorf("%v, %s", err, output)
	}
}
