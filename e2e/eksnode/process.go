package eksnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// agent is a running agent.
type agent struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended; valid after ended
}

// launch starts the agent; what it prints is appended to <logs>/agent.out.
func (n *Node) launch() (*agent, error) {
	out, err := os.OpenFile(filepath.Join(n.tree.logs, "agent.out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open output of agent: %w", err)
	}
	a := &agent{cmd: n.command(appDir + "/aws-k8s-agent"), ended: make(chan struct{})}
	a.cmd.Dir = appDir
	for _, name := range slices.Sorted(maps.Keys(n.settings)) {
		a.cmd.Env = append(a.cmd.Env, name+"="+n.settings[name])
	}
	a.cmd.Stdout, a.cmd.Stderr = out, out
	if err := n.mounts.Start(n.ns, a.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start agent of %s: %w", n.name, err), out.Close())
	}
	go func() {
		defer close(a.ended)
		a.err = errors.Join(a.cmd.Wait(), out.Close())
	}()
	return a, nil
}

// kill ends the agent as a container's end does: the container's first process ends at SIGTERM, and the kernel kills the rest.
func (a *agent) kill() error {
	if err := a.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill agent: %w", err)
	}
	<-a.ended
	return nil
}

// command is a program of the node, to be started by run or by Mounts.Start: its path is the node's, its environment empty but
// for where programs are.
func (*Node) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

// run runs a program on the node and gives its output; it is killed when ctx ends.
func (n *Node) run(ctx context.Context, cmd *exec.Cmd) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = n.Exec(ctx, cmd)
	return out.Bytes(), errs.Bytes(), err
}

// Exec runs a program in the node's mount and network namespaces, as exec.Cmd.Run does: its path is the node's. It is killed when
// ctx ends.
func (n *Node) Exec(ctx context.Context, cmd *exec.Cmd) error {
	cmd.WaitDelay = waitDelay
	if err := n.mounts.Start(n.ns, cmd); err != nil {
		return fmt.Errorf("start %s on %s: %w", filepath.Base(cmd.Path), n.name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	err := cmd.Wait()
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

// waitDelay is how long the output of a program that was killed may stay open in children of its own.
const waitDelay = time.Second

// Tail is the end of the agent's log.
func (n *Node) Tail() string {
	const most = 2000
	text, err := os.ReadFile(filepath.Join(n.tree.logs, "ipamd.log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
