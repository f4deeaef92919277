// Command fakeec2 is a fake AWS: the EC2 API, instance metadata, and a VPC that really forwards and drops packets.
//
// It owns the wiring of the packages beside it, the admin socket and the commands that read it. It decides nothing about EC2.
// Start with serve in serve.go; admin.go and show.go are the two ends of the admin socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const usage = `usage: fakeec2 <command> --dir DIR [flags]

  serve                                     build a world and serve it until SIGTERM or SIGINT
  state                                     print what a served world holds, and the packets dropped
  journal                                   print the EC2 requests so far
  drops                                     print the packets dropped so far, by reason
  fault add|list|on|off|clear               spoil EC2 requests
  buckets list|on|off|set|reset             throttle EC2 requests by token buckets, as EC2 does
  lag list|set|reset                        change how far EC2's views are behind the truth
  instance run|adopt|terminate              start and end instances
  instance announce|metadata|limit          announce a spot interruption; change and limit instance metadata
  eni create|attach|detach|delete|assign|unassign|modify
  help                                      print this

"fakeec2 <command> -h" lists a command's flags, with an example. Serving needs root, or a user namespace of one's own.

examples:
  fakeec2 serve --dir /run/fakeec2                          # the demo's world; prints one line of JSON when it stands
  fakeec2 serve --dir /run/fakeec2 --scenario world.yaml -v
  fakeec2 state --dir /run/fakeec2
  fakeec2 journal --dir /run/fakeec2 --since 120 --json
  fakeec2 fault add --dir /run/fakeec2 --name busy --action AssignPrivateIpAddresses --kind throttle --times 3
  fakeec2 fault clear --dir /run/fakeec2 --name busy
  fakeec2 buckets on --dir /run/fakeec2
  fakeec2 buckets set --dir /run/fakeec2 --action AttachNetworkInterface --size 5 --refill 0.5
  fakeec2 lag set --dir /run/fakeec2 --lag attach=1s..5s --lag link=never --lag metadata-assign=30s
  fakeec2 instance run --dir /run/fakeec2 --name node-c --subnet 10.0.1.0/24 --group nodes
  fakeec2 instance adopt --dir /run/fakeec2 --name kind-worker --namespace /proc/4711/ns/net
  fakeec2 instance announce --dir /run/fakeec2 --instance node-c --interrupt terminate --in 2m
  fakeec2 eni create --dir /run/fakeec2 --subnet 10.0.1.0/24 --addresses 5
  fakeec2 eni attach --dir /run/fakeec2 --eni eni-0123456789abcdef0 --instance node-c --device 1
`

// usageError is a command line that cannot be used.
type usageError string

func (e usageError) Error() string { return string(e) }

// Exit codes: 0 done or told to end, 1 failed, 2 wrong usage.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := run(ctx, args, stdout, stderr)
	var wrong usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "fakeec2: %v\n\n%s", err, usage)
		return 2
	}
	fmt.Fprintln(stderr, "fakeec2:", err)
	return 1
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usageError("no command given")
	}
	name, args := args[0], args[1:]
	switch name {
	case "serve":
		return serve(ctx, args, stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	}
	if slices.Contains(groups(), name) {
		return control(ctx, name, args, stdout)
	}
	if _, known := views()[name]; known {
		return show(ctx, name, args, stdout)
	}
	return usageError(fmt.Sprintf("unknown command %q", name))
}

// parseFlags parses a command's arguments, all of which are flags. Where help is asked for it prints it and gives
// flag.ErrHelp; every other error is a usageError.
func parseFlags(flags *flag.FlagSet, args []string, help string, stdout io.Writer) error {
	flags.SetOutput(io.Discard) // errors are told once, by command
	flags.Usage = func() {}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "%sflags of fakeec2 %s:\n", help, flags.Name())
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return err
	case err != nil:
		return usageError(fmt.Sprintf("%s: %v", flags.Name(), err))
	case flags.NArg() > 0:
		return usageError(fmt.Sprintf("%s: unexpected %s", flags.Name(), strings.Join(flags.Args(), " ")))
	}
	return nil
}
