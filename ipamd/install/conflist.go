// Package install puts on the node what the container runtime must find there: the network configuration that names the
// plugin.
//
// It owns the conflist's name and text. It never removes a configuration when the daemon ends: pods keep working, and the
// runtime keeps calling the plugin, which then says that the daemon is down. Start with Conflist.Write.
package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// FileName sorts before other configurations: the runtime takes the first. The incumbent's, so that either replaces
	// the other's.
	FileName = "10-aws.conflist"
	// PluginName is the plugin's file name in the runtime's plugin folder, and its "type".
	PluginName = "aws-cni"
	// NetworkName is the configuration's "name", a part of every attachment's key.
	NetworkName = "aws-cni"

	portMapName = "portmap"
	// cniVersion stays the incumbent's: 1.0.0 was tried there and taken back, and older runtimes refuse newer ones.
	cniVersion = "0.4.0"
	// fileMode lets everybody read it, as the runtime's own files; there is nothing secret in it.
	fileMode   = 0o644
	folderMode = 0o755
)

// Conflist is what differs between nodes.
type Conflist struct {
	Socket   string // where the plugin reaches the daemon, path on the host
	LogFile  string // the plugin's, path on the host; "" leaves it out
	LogLevel string // "error", "warn", "info" or "debug"; "" leaves it out
	PortMap  bool   // chain the portmap plugin, for hostPorts; only where the runtime has it, or no pod would start
	Around   Around // nil but in tests
}

// Around makes one change of a file by calling run, once or not at all, and passes on its error. Nil just calls it. Tests
// end the process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

type network struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

type plugin struct {
	Type         string          `json:"type"`
	Socket       string          `json:"socket,omitempty"`
	LogFile      string          `json:"logFile,omitempty"`
	LogLevel     string          `json:"logLevel,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	SNAT         *bool           `json:"snat,omitempty"`
}

// Text renders the network configuration: the plugin and, where the runtime has it, portmap. Portmap translates only
// hostPort connections ("snat" is for their replies from the node itself), as in the incumbent's configuration.
func (c Conflist) Text() ([]byte, error) {
	plugins := []plugin{{Type: PluginName, Socket: c.Socket, LogFile: c.LogFile, LogLevel: c.LogLevel}}
	if c.PortMap {
		snat := true
		plugins = append(plugins, plugin{Type: portMapName, Capabilities: map[string]bool{"portMappings": true}, SNAT: &snat})
	}
	text, err := json.MarshalIndent(network{CNIVersion: cniVersion, Name: NetworkName, Plugins: plugins}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode network configuration: %w", err)
	}
	return append(text, '\n'), nil
}

// Write puts the configuration into folder by rename, so that the runtime never reads half of it, and makes the folder if
// it is missing. A file that already says the same is left alone: the runtime reloads at every change. It reports whether
// it wrote.
func (c Conflist) Write(folder string) (wrote bool, err error) {
	text, err := c.Text()
	if err != nil {
		return false, err
	}
	path := filepath.Join(folder, FileName)
	if held, err := os.ReadFile(path); err == nil && bytes.Equal(held, text) {
		return false, nil
	}
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return false, fmt.Errorf("make folder of network configurations: %w", err)
	}
	if err := c.replace(path, text); err != nil {
		return false, fmt.Errorf("write network configuration: %w", err)
	}
	return true, nil
}

// replace writes beside the file and renames. The temporary name has none of the endings that runtimes load (.conf,
// .conflist, .json).
func (c Conflist) replace(path string, text []byte) error {
	temporary := path + ".new"
	if err := c.Around.do("conflist write", func() error { return os.WriteFile(temporary, text, fileMode) }); err != nil {
		return err
	}
	if err := c.Around.do("conflist replace", func() error { return os.Rename(temporary, path) }); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// HasPlugin reports whether the daemon's plugin is in the runtime's plugin folder. A folder
// that cannot be read has none.
func HasPlugin(folder string) bool { return isFile(filepath.Join(folder, PluginName)) }

// HasPortMap reports whether portmap is in the runtime's plugin folder.
func HasPortMap(folder string) bool { return isFile(filepath.Join(folder, portMapName)) }

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
