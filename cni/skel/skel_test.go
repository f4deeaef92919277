package skel

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	original "github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

var supported = []string{"0.4.0", "1.0.0", "1.1.0"}

// outcome is what a runtime sees of a call.
type outcome struct {
	called         string // the command and what it was given
	code           uint
	msg, details   string
	stdout, stderr string
}

// ours is the call by this package.
func ours(env map[string]string, stdin string, failure error) outcome {
	var out outcome
	note := func(name string) func(*CmdArgs) error {
		return func(a *CmdArgs) error {
			out.called = strings.Join([]string{name, a.ContainerID, a.Netns, a.IfName, a.Args, a.Path, string(a.StdinData)}, "|")
			return failure
		}
	}
	var stdout, stderr bytes.Buffer
	process := Process{Getenv: func(name string) string { return env[name] }, Stdin: []byte(stdin), Stdout: &stdout, Stderr: &stderr}
	funcs := CNIFuncs{Add: note("ADD"), Del: note("DEL"), Check: note("CHECK"), GC: note("GC"), Status: note("STATUS")}
	return out.with(process.Call(funcs, supported, "about"), stdout.String(), stderr.String())
}

// theirs is the call by containernetworking's, in this process.
func theirs(t *testing.T, env map[string]string, stdin string, failure error) outcome {
	t.Helper()
	for _, name := range []string{"COMMAND", "CONTAINERID", "NETNS", "IFNAME", "ARGS", "PATH"} {
		t.Setenv("CNI_"+name, env["CNI_"+name])
	}
	t.Setenv("CNI_NETNS_OVERRIDE", "TRUE") // podnet refuses the host's namespace, before anything is made there
	var out outcome
	note := func(name string) func(*original.CmdArgs) error {
		return func(a *original.CmdArgs) error {
			out.called = strings.Join([]string{name, a.ContainerID, a.Netns, a.IfName, a.Args, a.Path, string(a.StdinData)}, "|")
			return failure
		}
	}
	funcs := original.CNIFuncs{Add: note("ADD"), Del: note("DEL"), Check: note("CHECK"), GC: note("GC"), Status: note("STATUS")}
	var refused *types.Error
	stdout, stderr := captured(t, stdin, func() {
		refused = original.PluginMainFuncsWithError(funcs, version.PluginSupports(supported...), "about")
	})
	return out.with(refused, stdout, stderr)
}

func (o outcome) with(refused *types.Error, stdout, stderr string) outcome {
	o.stdout, o.stderr = stdout, stderr
	if refused != nil {
		o.code, o.details = refused.Code, refused.Details
		o.msg, _, _ = strings.Cut(refused.Msg, " of type struct") // what follows is Go's, of either package
	}
	return o
}

// captured runs f with other standard files.
func captured(t *testing.T, stdin string, f func()) (stdout, stderr string) {
	t.Helper()
	file := func(content string) *os.File {
		file, err := os.CreateTemp(t.TempDir(), "std")
		if err == nil {
			_, err = file.WriteString(content)
		}
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	in, out, errs := os.Stdin, os.Stdout, os.Stderr
	defer func() { os.Stdin, os.Stdout, os.Stderr = in, out, errs }()
	os.Stdin, os.Stdout, os.Stderr = file(stdin), file(""), file("")
	f()
	read := func(file *os.File) string {
		content, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		return string(content)
	}
	_ = os.Stdin.Close()
	return read(os.Stdout), read(os.Stderr)
}

// TestAnswersAsTheOriginal puts every command before both, with each variable in turn missing or odd, and with odd
// configurations.
func TestAnswersAsTheOriginal(t *testing.T) {
	whole := map[string]string{
		"CNI_CONTAINERID": "sb-1", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "eth0", "CNI_ARGS": "K8S_POD_NAME=x", "CNI_PATH": "/opt/cni/bin",
	}
	odd := map[string][]string{
		"CNI_CONTAINERID": {"", "-x", "a b", "a\n", "ü", "_", "a.b-c_d"},
		"CNI_NETNS":       {""},
		"CNI_IFNAME":      {"", ".", "..", "a/b", "a:b", "a b", "a\u00a0b", "0123456789abcdef", "0123456789abcde", "\xff"},
		"CNI_ARGS":        {"", ";;"},
		"CNI_PATH":        {""},
	}
	const good = `{"cniVersion":"1.1.0","name":"aws-cni"}`
	confs := []string{
		good, ` {"name" : "a.b" , "cniVersion":"1.0.0", "x":[1.5,{"y":"z\n"}]} `, `{"cniVersion":"0.4.0","name":"a"}`, `{"name":"a"}`,
		`{"cniVersion":"","name":"a"}`, `{"cniVersion":"1.2.0","name":"a"}`, `{"cniVersion":"x","name":"a"}`, `{"cniVersion":"1.0.0.0","name":"a"}`,
		`{"cniVersion":"0.3.1","name":"a"}`, `{"cniVersion":"1.1.0"}`, `{"cniVersion":"1.1.0","name":""}`, `{"cniVersion":"1.1.0","name":"-"}`,
		`{"CNIVERSION":"1.1.0","Name":"a"}`, `{"cniVersion":"1.1.0","name":"a\u0062"}`, `{"cniVersion":null,"name":"a"}`, `{"cniVersion":"1.1.0","name":"a","name":"b"}`,
		`{"cniVersion":"1.1.0","name":1}`, `{"cniVersion":"1.1.0","name":"a"`, ``, `[]`, `null`, `"x"`, `{"cniVersion":"1.1.0","name":"a"} x`,
	}
	try := func(env map[string]string, stdin string, failure error) {
		t.Helper()
		got, want := ours(env, stdin, failure), theirs(t, env, stdin, failure)
		if got != want {
			t.Errorf("%v, %s:\n%+v, not\n%+v", env, stdin, got, want)
		}
	}
	for _, command := range []string{"", "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "add", "REBOOT"} {
		with := func(name, value string) map[string]string {
			env := map[string]string{"CNI_COMMAND": command}
			for name, value := range whole {
				env[name] = value
			}
			env[name] = value
			return env
		}
		for name, values := range odd {
			for _, value := range values {
				try(with(name, value), good, nil)
			}
		}
		for _, conf := range confs {
			try(with("CNI_ARGS", "x"), conf, nil)
		}
		try(map[string]string{"CNI_COMMAND": command}, good, nil)
		for _, failure := range []error{errors.New("no"), types.NewError(11, "later", "why"), errors.Join(types.NewError(7, "a", "b"))} {
			try(with("CNI_ARGS", "x"), good, failure)
		}
	}
}
