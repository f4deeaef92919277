// Command fakeec2 is a fake AWS: the EC2 API, instance metadata, and a VPC that really forwards and drops packets.
//
// It owns the wiring of the packages beside it, the admin socket and the commands that read it. It decides nothing about EC2.
// Start with serve in serve.go; admin.go and show.go are the two ends of the admin socket.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: fakeec2 <command> --dir DIR [flags]
  serve     build a world and serve it until SIGTERM; "fakeec2 serve -h" lists the flags
  state     print what a served world holds
  journal   print the EC2 requests so far
  drops     print the packets dropped so far, by reason
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakeec2:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command given\n%s", usage)
	}
	command, args := args[0], args[1:]
	if command == "serve" {
		return serve(ctx, args, stdout, stderr)
	}
	if view, known := views()[command]; known {
		return show(ctx, view, args, stdout)
	}
	return fmt.Errorf("unknown command %q\n%s", command, usage)
}
