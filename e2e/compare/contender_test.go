package compare_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/assets"
	"github.com/vpc-cni/vpc-cni/e2e/eksnode"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// contender is one side's software on one machine. Its methods, but for Exec and room, are not safe for concurrent use.
type contender interface {
	Set(settings map[string]string)  // of the daemon, from its next start on
	Start(ctx context.Context) error // launches the daemon and waits until it serves and the network configuration is there
	Launch() error                   // only starts the daemon
	Stop() error                     // kills the daemon, as the end of its container does
	PID() int                        // of the daemon
	Network() *netlab.Namespace      // the machine's
	Close() error
	// Exec runs a program of the machine's in its mount and network namespaces.
	Exec(ctx context.Context, cmd *exec.Cmd) error
	// room makes a network namespace for pods; path is where the machine's programs see it.
	room() (ns *netlab.Namespace, path string, err error)
	conflist(ctx context.Context) ([]byte, error)
	pluginDir() string  // as the machine's programs see it
	pluginFile() string // as this program sees it
}

// incumbent is the incumbent's.
type incumbent struct {
	*eksnode.Node
}

func (i *incumbent) room() (*netlab.Namespace, string, error) {
	s, err := i.Sandbox(types.NamespacedName{Namespace: "default", Name: "room"}, "")
	if err != nil {
		return nil, "", err
	}
	for _, variable := range s.Env("ADD") {
		if path, ok := strings.CutPrefix(variable, "CNI_NETNS="); ok {
			return s.Network(), path, nil
		}
	}
	return nil, "", fmt.Errorf("make a room on %s: a sandbox without CNI_NETNS", i.Name())
}

func (i *incumbent) conflist(ctx context.Context) ([]byte, error) {
	const file = "/etc/cni/net.d/10-aws.conflist"
	var text strings.Builder
	cmd := exec.Command("/bin/cat", file)
	cmd.Stdout = &text
	if err := i.Exec(ctx, cmd); err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", file, i.Name(), err)
	}
	return []byte(text.String()), nil
}

func (*incumbent) pluginDir() string { return "/opt/cni/bin" }

func (*incumbent) pluginFile() string {
	return filepath.Join(os.Getenv(assets.IncumbentVar), "routed-eni-cni-plugin")
}
