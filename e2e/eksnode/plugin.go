package eksnode

import (
	"bytes"
	"context"
	"strings"
)

// Plugin runs a program of the node's plugin folder as a container runtime does: with its standard input and those variables of
// the environment that CNI gives to plugins.
func (n *Node) Plugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := n.command(path)
	for _, variable := range environ {
		if strings.HasPrefix(variable, "CNI_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Stdin = bytes.NewReader(stdin)
	stdout, stderr, err := n.run(ctx, cmd)
	if err != nil {
		return nil, failed(stdout, stderr, err)
	}
	return stdout, nil
}
