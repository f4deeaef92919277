package eksnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// Where the programs find and leave their files; all are fixed. The agent is a container that sees the node's folders below
// /host, the plugins run on the node itself.
const (
	appDir     = "/app"
	pluginDir  = "/opt/cni/bin"
	confDir    = "/etc/cni/net.d"
	logDir     = "/var/log/aws-routed-eni"
	socketPath = "/var/run/aws-node/ipamd.sock"
	tokenDir   = "/run/secrets/kubernetes.io/serviceaccount"
	netnsDir   = "/run/netns"
)

// machineDirs are what a node has of the machine: its programs, and the kernel's file systems.
func machineDirs() []string {
	return []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "dev", "proc", "sys"}
}

// machineFiles are the few settings below /etc that those programs read. alternatives is where Debian's iptables leads to.
func machineFiles() []string {
	return []string{"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "passwd", "group", "protocols", "services"}
}

// tree is the files of a node, in a folder of the harness.
type tree struct {
	root  string // of the node, as the harness sees it
	netns string // namespaces of the node's pods; the node sees them at /run/netns
	logs  string
	bin   string // the incumbent's programs
}

// make makes the folders that the node writes to.
func (t tree) make() error {
	for _, dir := range []string{appDir, pluginDir, confDir, "/run/aws-node", tokenDir, netnsDir, logDir, "/tmp", "/host/etc", "/host/opt", "/host/var"} {
		if err := os.MkdirAll(filepath.Join(t.root, dir), 0o755); err != nil {
			return fmt.Errorf("make folder of node: %w", err)
		}
	}
	for _, dir := range []string{t.netns, t.logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder of node: %w", err)
		}
	}
	for link, to := range map[string]string{"/var/run": "/run", "/host/etc/cni": "/etc/cni", "/host/opt/cni": "/opt/cni", "/host/var/log": "/var/log"} {
		if err := os.Symlink(to, filepath.Join(t.root, link)); err != nil {
			return fmt.Errorf("make link of node: %w", err)
		}
	}
	return netlab.Share(t.netns) // pods come later than the node
}

// mounts makes the node's mount namespace.
func (t tree) mounts() (*netlab.Mounts, error) {
	if err := t.make(); err != nil {
		return nil, err
	}
	return netlab.NewMounts(func() error {
		errs := []error{netlab.Bind(t.root, t.root)}
		for _, dir := range machineDirs() {
			errs = append(errs, t.show("/"+dir, "/"+dir))
		}
		for _, file := range machineFiles() {
			errs = append(errs, t.show("/etc/"+file, "/etc/"+file))
		}
		for _, p := range programs() {
			errs = append(errs, t.show(filepath.Join(t.bin, p.built), p.path))
		}
		errs = append(errs, t.show(t.netns, netnsDir), t.show(t.logs, logDir))
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return netlab.Root(t.root)
	})
}

// show lets the node see a file or folder of the machine, where the machine has it. A link is copied.
func (t tree) show(from, to string) error {
	to = filepath.Join(t.root, to)
	info, err := os.Lstat(from)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("show %s to node: %w", from, err)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return fmt.Errorf("show %s to node: %w", from, err)
		}
		return os.Symlink(target, to)
	case info.IsDir():
		err = os.MkdirAll(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o755)
	}
	if err != nil {
		return fmt.Errorf("show %s to node: %w", from, err)
	}
	return netlab.Bind(from, to)
}

// program is one of the incumbent's, and where it stands on the node.
type program struct {
	built, path string
}

func programs() []program {
	return []program{
		{"aws-k8s-agent", appDir + "/aws-k8s-agent"},
		{"grpc-health-probe", appDir + "/grpc-health-probe"},
		{"routed-eni-cni-plugin", pluginDir + "/aws-cni"},
		{"egress-cni-plugin", pluginDir + "/egress-cni"},
		{"portmap", pluginDir + "/portmap"},
	}
}
