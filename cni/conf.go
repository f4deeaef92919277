package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// maxSocketPath is the room for a path in sockaddr_un, in bytes. Source: unix(7).
const maxSocketPath = 107

// conf is a network configuration, checked.
type conf struct {
	cniVersion string
	network    string
	socket     string
	logFile    string
	logLevel   string
	previous   json.RawMessage  // nil without prevResult; only CHECK reads it: DEL must not fail on another release's result
	valid      []api.Attachment // GC
	hasValid   bool             // cni.dev/valid-attachments was there, and was a list
	around     Around           // of the process, not of the configuration
}

// rawConf is the configuration as the runtime passes it; keys that are not ours are ignored.
type rawConf struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	Socket     string          `json:"socket"`
	LogFile    string          `json:"logFile"`
	LogLevel   string          `json:"logLevel"`
	PrevResult json.RawMessage `json:"prevResult"`
	Valid      []validEntry    `json:"cni.dev/valid-attachments"`
}

type validEntry struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// parseConf reads a network configuration. Every refusal has CNI's code 7 and names the field.
func (a Around) parseConf(stdin []byte) (conf, *types.Error) {
	raw, plain := plainConf(stdin)
	var err error
	if !plain {
		raw = rawConf{}
		err = json.Unmarshal(stdin, &raw)
	}
	if err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			line, column := place(stdin, kind.Offset)
			return conf{}, badField(kind.Field, fmt.Sprintf("a JSON %s does not fit; line %d, column %d", kind.Value, line, column))
		}
		return conf{}, types.NewError(types.ErrDecodingFailure, "network configuration is not JSON", err.Error())
	}
	c := conf{
		around: a, cniVersion: raw.CNIVersion, network: raw.Name,
		socket: raw.Socket, logFile: raw.LogFile, logLevel: raw.LogLevel,
		hasValid: raw.Valid != nil, // null is what a caller without a list sends: not the same as an empty list
	}
	if c.socket == "" {
		c.socket = api.DefaultSocket
	}
	for _, entry := range raw.Valid {
		c.valid = append(c.valid, api.Attachment{Network: c.network, ContainerID: entry.ContainerID, IfName: entry.IfName})
	}
	if err := c.check(); err != nil {
		return conf{}, err
	}
	if len(raw.PrevResult) > 0 && string(raw.PrevResult) != "null" {
		c.previous = raw.PrevResult
	}
	return c, nil
}

// plainConf reads a configuration without encoding/json, where that is easy.
func plainConf(stdin []byte) (raw rawConf, plain bool) {
	texts := map[string]*string{
		"cniVersion": &raw.CNIVersion, "name": &raw.Name, "socket": &raw.Socket, "logFile": &raw.LogFile, "logLevel": &raw.LogLevel,
	}
	plain = api.Members(stdin, func(name string, value []byte) (ok bool) {
		if text := texts[name]; text != nil {
			*text, ok = api.PlainString(value)
			return ok
		}
		if name == "prevResult" {
			raw.PrevResult = value
			return true
		}
		for known := range texts { // encoding/json does not mind the case of a name
			if strings.EqualFold(name, known) {
				return false
			}
		}
		return !strings.EqualFold(name, "prevResult") && !strings.EqualFold(name, "cni.dev/valid-attachments")
	})
	return raw, plain
}

// previousAddrs are the addresses of the result that the runtime kept.
func (c conf) previousAddrs() ([]netip.Addr, *types.Error) {
	kept, err := version.NewResult(c.cniVersion, c.previous)
	if err != nil {
		return nil, badField("prevResult", err.Error())
	}
	result, err := current.NewResultFromResult(kept)
	if err != nil {
		return nil, badField("prevResult", err.Error())
	}
	var addrs []netip.Addr
	for _, ip := range result.IPs {
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs, nil
}

func (c conf) check() *types.Error {
	switch {
	case c.network == "":
		return badField("name", "it is missing")
	case !filepath.IsAbs(c.socket):
		return badField("socket", fmt.Sprintf("%q is not an absolute path", c.socket))
	case len(c.socket) > maxSocketPath:
		return badField("socket", fmt.Sprintf("%d bytes do not fit into a socket address of %d", len(c.socket), maxSocketPath))
	case c.logFile != "" && !filepath.IsAbs(c.logFile):
		// "stdout" above all: a log there would corrupt the result that the runtime reads
		return badField("logFile", fmt.Sprintf("%q is not an absolute path", c.logFile))
	case slices.Contains([]string{"/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2"}, filepath.Clean(c.logFile)):
		return badField("logFile", fmt.Sprintf("%q is where the result goes", c.logFile))
	case !slices.Contains([]string{"", "debug", "info", "warn", "error"}, strings.ToLower(c.logLevel)):
		return badField("logLevel", fmt.Sprintf("%q is none of debug, info, warn, error", c.logLevel))
	}
	for i, a := range c.valid {
		if a.ContainerID == "" || a.IfName == "" {
			return badField("cni.dev/valid-attachments", fmt.Sprintf("entry %d lacks containerID or ifname", i))
		}
	}
	return nil
}

func badField(field, why string) *types.Error {
	return types.NewError(api.CodeInvalidConfig, "network configuration: field "+field+" is invalid", why)
}

// parsePod reads CNI_ARGS, "KEY=VALUE;KEY=VALUE". Keys that are not ours are ignored, as Kubernetes' runtimes expect.
// K8S_POD_INFRA_CONTAINER_ID is the sandbox's id, which CNI_CONTAINERID carries already. Refusals have code 4.
func parsePod(args string) (api.Pod, *types.Error) {
	var pod api.Pod
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return api.Pod{}, types.NewError(api.CodeInvalidEnv, "CNI_ARGS is invalid", fmt.Sprintf("%q is not KEY=VALUE", pair))
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			pod.Namespace = value
		case "K8S_POD_NAME":
			pod.Name = value
		case "K8S_POD_UID":
			pod.UID = value
		}
	}
	return pod, nil
}

// parseNamedPod is parsePod for ADD, which cannot do without the pod's name.
func parseNamedPod(args string) (api.Pod, *types.Error) {
	pod, err := parsePod(args)
	switch {
	case err != nil:
		return api.Pod{}, err
	case pod.Namespace == "":
		return api.Pod{}, types.NewError(api.CodeInvalidEnv, "CNI_ARGS lacks K8S_POD_NAMESPACE", "")
	case pod.Name == "":
		return api.Pod{}, types.NewError(api.CodeInvalidEnv, "CNI_ARGS lacks K8S_POD_NAME", "")
	}
	return pod, nil
}
