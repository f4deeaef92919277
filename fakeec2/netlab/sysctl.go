package netlab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// SetSysctl sets one of the namespace's own settings, such as "net.ipv4.ip_forward". A slash instead of dots, as sysctl(8)
// allows, serves link names with dots: "net/ipv4/conf/eth0.5/rp_filter".
func (n *Namespace) SetSysctl(name, value string) error {
	err := n.Do(func() error { return os.WriteFile(sysctlPath(name), []byte(value), 0) })
	if err != nil {
		return fmt.Errorf("set %s in namespace %s: %w", name, n.path, err)
	}
	return nil
}

// Sysctl reads one of the namespace's own settings.
func (n *Namespace) Sysctl(name string) (string, error) {
	var text []byte
	err := n.Do(func() error {
		var err error
		text, err = os.ReadFile(sysctlPath(name))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read %s in namespace %s: %w", name, n.path, err)
	}
	return strings.TrimSpace(string(text)), nil
}

func sysctlPath(name string) string {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	return filepath.Join("/proc/sys", name)
}
