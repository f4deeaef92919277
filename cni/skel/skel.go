// Package skel is the plugin's process boundary: the environment and the configuration in, one command called, its error out.
//
// It answers as containernetworking's package of this name does (its test compares the two), at a third of the cost: that
// one compiles a regular expression at each start, reads the configuration three times by
// reflection and enters /proc once more after the work is done. It never prints an error, and knows nothing of this plugin.
package skel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// CmdArgs is what a command is called with.
type CmdArgs struct {
	ContainerID string
	Netns       string
	IfName      string
	Args        string
	Path        string
	StdinData   []byte
}

// CNIFuncs are the commands. Each returns *types.Error or any error.
type CNIFuncs struct {
	Add, Del, Check, GC, Status func(*CmdArgs) error
}

// Process is what a command sees of its process.
type Process struct {
	Getenv         func(string) string
	Stdin          []byte // empty for VERSION and the bare call
	Stdout, Stderr io.Writer
}

// maxName is the longest name of an interface, in bytes. Source: IFNAMSIZ in linux/if.h, without the final zero.
const maxName = 15

// Call runs the command that the process's environment names. about is printed when it names none.
func (p Process) Call(funcs CNIFuncs, supported []string, about string) *types.Error {
	command := p.Getenv("CNI_COMMAND")
	args, missing, refused := p.environment(command)
	switch {
	case refused != nil:
		return refused
	case command == "":
		_, _ = fmt.Fprintf(p.Stderr, "%s\nCNI protocol versions supported: %s\n", about, strings.Join(supported, ", "))
		return nil
	case len(missing) > 0:
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("required env variables [%s] missing", strings.Join(missing, ",")), "")
	case command == "VERSION":
		return p.version(supported)
	}
	confVersion, refused := readConf(p.Stdin)
	if refused != nil {
		return refused
	}
	args.StdinData = p.Stdin
	switch command {
	case "ADD":
		return call(args, confVersion, supported, funcs.Add)
	case "DEL":
		return call(args, confVersion, supported, funcs.Del)
	case "CHECK":
		return later{command, "0.4.0", funcs.Check}.call(args, confVersion, supported)
	case "GC":
		return later{command, "1.1.0", funcs.GC}.call(args, confVersion, supported)
	case "STATUS":
		return later{command, "1.1.0", funcs.Status}.call(args, confVersion, supported)
	}
	return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("unknown CNI_COMMAND: %v", command), "")
}

// environment reads the variables of a command and names those that it lacks.
func (p Process) environment(command string) (args *CmdArgs, missing []string, refused *types.Error) {
	pod := command == "ADD" || command == "DEL" || command == "CHECK"
	any := pod || command == "GC" || command == "STATUS"
	args = &CmdArgs{
		ContainerID: p.Getenv("CNI_CONTAINERID"), Netns: p.Getenv("CNI_NETNS"), IfName: p.Getenv("CNI_IFNAME"),
		Args: p.Getenv("CNI_ARGS"), Path: p.Getenv("CNI_PATH"),
	}
	for _, v := range []struct {
		name, value string
		required    bool
		check       func(string) *types.Error
	}{
		{"CNI_COMMAND", command, true, nil},
		{"CNI_CONTAINERID", args.ContainerID, pod, checkContainerID},
		{"CNI_NETNS", args.Netns, pod && command != "DEL", nil},
		{"CNI_IFNAME", args.IfName, pod, checkIfName},
		{"CNI_PATH", args.Path, any, nil},
	} {
		switch {
		case v.value == "" && v.required:
			missing = append(missing, v.name)
		case v.value != "" && v.required && v.check != nil:
			if refused := v.check(v.value); refused != nil {
				return nil, nil, refused
			}
		}
	}
	return args, missing, nil
}

// version prints what the plugin supports.
func (p Process) version(supported []string) *types.Error {
	text := api.AppendString([]byte(`{"cniVersion":`), version.Current())
	text = append(text, `,"supportedVersions":[`...)
	for i, v := range supported {
		if i > 0 {
			text = append(text, ',')
		}
		text = api.AppendString(text, v)
	}
	if _, err := p.Stdout.Write(append(text, "]}\n"...)); err != nil {
		return types.NewError(types.ErrIOFailure, err.Error(), "")
	}
	return nil
}

// readConf gives the version of a configuration whose name is in order.
func readConf(stdin []byte) (confVersion string, refused *types.Error) {
	var conf struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
	}
	plain := api.Members(stdin, func(name string, value []byte) (ok bool) {
		switch name {
		case "cniVersion":
			conf.CNIVersion, ok = api.PlainString(value)
		case "name":
			conf.Name, ok = api.PlainString(value)
		default:
			ok = !strings.EqualFold(name, "cniVersion") && !strings.EqualFold(name, "name") // as encoding/json matches names
		}
		return ok
	})
	if !plain {
		if err := json.Unmarshal(stdin, &conf); err != nil {
			return "", types.NewError(types.ErrDecodingFailure, fmt.Sprintf("error unmarshall network config: %v", err), "")
		}
	}
	switch {
	case conf.Name == "":
		return "", types.NewError(types.ErrInvalidNetworkConfig, "missing network name", "")
	case !validName(conf.Name):
		return "", types.NewError(types.ErrInvalidNetworkConfig, "invalid characters found in network name", conf.Name)
	case conf.CNIVersion == "":
		return "0.1.0", nil // by the specification, a configuration of before versions
	}
	return conf.CNIVersion, nil
}

// later is a command that the specification knows from a version on.
type later struct {
	name, since string
	run         func(*CmdArgs) error
}

func (l later) call(args *CmdArgs, confVersion string, supported []string) *types.Error {
	known, err := version.GreaterThanOrEqualTo(confVersion, l.since)
	switch {
	case err != nil:
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	case !known:
		return types.NewError(types.ErrIncompatibleCNIVersion, "config version does not allow "+l.name, "")
	}
	for _, v := range supported {
		if enough, err := version.GreaterThanOrEqualTo(v, confVersion); err == nil && enough {
			return call(args, confVersion, supported, l.run)
		}
	}
	return types.NewError(types.ErrIncompatibleCNIVersion, "plugin version does not allow "+l.name, "")
}

func call(args *CmdArgs, confVersion string, supported []string, command func(*CmdArgs) error) *types.Error {
	known := false
	for _, v := range supported {
		known = known || v == confVersion
	}
	if !known {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions",
			fmt.Sprintf("config is %q, plugin supports %q", confVersion, supported))
	}
	err := command(args)
	if err == nil {
		return nil
	}
	var refused *types.Error
	if errors.As(err, &refused) {
		return refused
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}

// validName tells whether a text is letters, digits, "_", "." and "-", and begins with a letter or digit.
func validName(name string) bool {
	for i, c := range []byte(name) {
		alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alphanumeric && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return name != ""
}

func checkContainerID(id string) *types.Error {
	if !validName(id) {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid characters in containerID", id)
	}
	return nil
}

func checkIfName(name string) *types.Error {
	switch {
	case len(name) > maxName:
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name is too long",
			fmt.Sprintf("interface name should be less than %d characters", maxName+1))
	case name == "." || name == "..":
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name is . or ..", "")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }):
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name contains / or : or whitespace characters", "")
	}
	return nil
}
