package eksnode

import (
	"bytes"
	"context"
	"slices"
	"strings"
)

// Plugin runs a program of the node's plugin folder as a container runtime does: with its standard input and those variables of
// the environment that CNI gives to plugins.
func (n *Node) Plugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := n.command(path)
	cmd.Env = append(cmd.Env, slices.DeleteFunc(slices.Clone(environ), func(variable string) bool { return !cniVariable(variable) })...)
	cmd.Stdin = bytes.NewReader(stdin)
	stdout, stderr, err := n.run(ctx, cmd)
	if err != nil {
		return nil, failed(stdout, stderr, err)
	}
	return stdout, nil
}

func cniVariable(variable string) bool { return strings.HasPrefix(variable, "CNI_") }
