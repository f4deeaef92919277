// Package cni is the CNI plugin: it asks the node daemon for a recipe, carries it out in the pod's namespace and says so.
//
// It owns the plugin's side of the CNI specification (0.4.0, 1.0.0, 1.1.0) and of the conversation with the daemon. It never
// chooses an address, never speaks to EC2 or Kubernetes, keeps no state of its own but the record of a DEL that found no
// daemon, and prints nothing but its result. It is exec'd for every pod, so each import is paid for at each pod's start:
// imports_test.go holds the budget. Start reading at Main, then add.go; conf.go reads all input.
package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/cni/skel"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// The plugin's times. A runtime gives a sandbox about two minutes; each command stays well inside.
const (
	assignDeadline = 50 * time.Second // for the daemon to find an address; its own cap is 60 s
	answerMargin   = 5 * time.Second  // beyond assignDeadline, so that the daemon's own reason arrives
	doneTimeout    = 20 * time.Second // a state save, and where set the wait for an annotation or a policy agent
	askTimeout     = 10 * time.Second // release, check, status and GC: answered from memory and one save
	maxStdin       = 4 << 20          // bytes; a GC configuration with 1,000 attachments has 100 kB
	about          = "aws-cni: the CNI plugin of vpc-cni, exec'd by a container runtime"
)

// Around carries out one effect of the plugin on the world (a request to the daemon, a change of the kernel, a file, its
// output) by calling run, once or not at all, and passes on its error. Nil just calls it. Tests end the process there.
//
// "pending write" is what makes the record beside its name; the folder before it and the lock, which ends with the process,
// have no name of their own: a death there is one before the write, and so is one that leaves half of the file, which
// the next writes over and the daemon removes. The text of the bare call is for people and has no name.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// Main runs the command that the environment names and returns the exit code. command is CNI_COMMAND: VERSION and the
// bare call read no configuration. Around is nil but in tests.
func Main(command string, around Around) int {
	var stdin []byte
	if command != "" && command != "VERSION" {
		var err *types.Error
		if stdin, err = readStdin(); err != nil {
			return around.fail(err)
		}
	}
	supported := []string{"0.4.0", "1.0.0", "1.1.0"}
	commands := skel.CNIFuncs{Add: around.add, Del: around.del, Check: around.check, GC: around.gc, Status: around.status}
	process := skel.Process{Getenv: os.Getenv, Stdin: stdin, Stdout: os.Stdout, Stderr: os.Stderr} //nolint:forbidigo // CNI passes its input so
	var refused *types.Error
	call := func() error { refused = process.Call(commands, supported, about); return nil }
	if command == "VERSION" { // it does nothing but print
		_ = around.do("print version", call) // the failure is in refused
	} else {
		_ = call()
	}
	if refused != nil {
		return around.fail(refused)
	}
	return 0
}

func (a Around) fail(refused *types.Error) int {
	if err := a.do("print error", refused.Print); err != nil {
		fmt.Fprintln(os.Stderr, "print error:", err)
	}
	return 1
}

// readStdin reads the configuration and refuses one that is not JSON with the place where it breaks.
func readStdin() ([]byte, *types.Error) {
	data, err := io.ReadAll(io.LimitReader(os.Stdin, maxStdin+1))
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "network configuration on stdin cannot be read", err.Error())
	}
	if len(data) > maxStdin {
		return nil, types.NewError(types.ErrDecodingFailure, "network configuration on stdin is too long",
			fmt.Sprintf("more than %d bytes", maxStdin))
	}
	return data, checkSyntax(data)
}

// refusal turns an error of the daemon, or of the way to it, into what the runtime is told. What has no code of its own
// is a lost connection or a passed deadline: code 11, try again later.
func (c conf) refusal(doing string, err error) *types.Error {
	var answer *api.Error
	if errors.As(err, &answer) {
		return types.NewError(answer.Code, doing+": "+answer.Msg, answer.Details)
	}
	return types.NewError(api.CodeTryAgain, doing+": no answer from the node daemon",
		fmt.Sprintf("%v; look whether the pod of the daemon (ipamd's DaemonSet) runs on this node and listens on %s, and at its log", err, c.socket))
}

// kernelError turns an error of podnet into what the runtime is told.
func kernelError(doing string, err error) *types.Error {
	var differs *podnet.Difference
	switch {
	case errors.Is(err, podnet.ErrHostNamespace):
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the host's own namespace", "")
	case errors.Is(err, podnet.ErrTaken):
		return types.NewError(api.CodeTryAgain, doing+": another sandbox has the pod's network", err.Error())
	case errors.As(err, &differs):
		return types.NewError(api.CodeDiffers, doing+": the kernel differs from the recipe", differs.Error())
	}
	return types.NewError(types.ErrInternal, doing, err.Error())
}

// ask calls the daemon once over a connection of its own.
func (c conf) ask(what string, question func(context.Context, *api.Client) error) error {
	ctx := within(askTimeout)
	client, err := c.dial(ctx)
	if err != nil {
		return err
	}
	err = c.around.do("ask "+what, func() error { return question(ctx, client) })
	return errors.Join(err, client.Close())
}

func (c conf) dial(ctx context.Context) (client *api.Client, err error) {
	err = c.around.do("dial", func() error {
		client, err = api.Dial(ctx, c.socket)
		return err
	})
	return client, err
}

// attachment is CNI's key of what a command speaks of.
func attachment(c conf, args *skel.CmdArgs) api.Attachment {
	return api.Attachment{Network: c.network, ContainerID: args.ContainerID, IfName: args.IfName}
}

// checkSyntax names line and column of the first error in a JSON text.
func checkSyntax(data []byte) *types.Error {
	if api.Members(data, func(string, []byte) bool { return true }) {
		return nil
	}
	err := json.Unmarshal(data, &struct{}{})
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case endsEarly(data):
		line, column := place(data, int64(len(data))+1)
		return types.NewError(types.ErrDecodingFailure, "network configuration on stdin is not JSON",
			fmt.Sprintf("line %d, column %d: the text ends too early", line, column))
	case errors.As(err, &syntax):
		line, column := place(data, syntax.Offset)
		return types.NewError(types.ErrDecodingFailure, "network configuration on stdin is not JSON",
			fmt.Sprintf("line %d, column %d: %v", line, column, syntax))
	case errors.As(err, &kind):
		return types.NewError(types.ErrDecodingFailure, "network configuration on stdin is not a JSON object",
			"it is of type "+kind.Value)
	}
	return types.NewError(types.ErrDecodingFailure, "network configuration on stdin is not JSON", err.Error())
}

// endsEarly tells whether a text that is not JSON is only the beginning of one.
func endsEarly(data []byte) bool {
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&struct{}{})
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// place is the line and column (both from 1) of a byte offset.
func place(data []byte, offset int64) (line, column int) {
	line, column = 1, 1
	for _, b := range data[:min(max(offset-1, 0), int64(len(data)))] {
		column++
		if b == '\n' {
			line, column = line+1, 1
		}
	}
	return line, column
}
