// Command ipamd is the node daemon. Settings come from the environment; `ipamd settings` prints them all, `ipamd status` says
// how the daemon of the same environment is.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
)

const usage = `ipamd gives this node's pods their VPC addresses.

  ipamd            run the daemon until SIGTERM or SIGINT
  ipamd status     say how this node's daemon is, and how far it is with annotations
  ipamd settings   print the tables of settings and metrics (Markdown)
  ipamd help       print this

Settings are environment variables. Pods keep working while the daemon is down.
`

// Exit codes: 0 told to end, 1 settings or a part of the daemon failed, 2 wrong usage.
func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("ipamd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {}
	switch err := flags.Parse(args); {
	case err == flag.ErrHelp, err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, usage)
		return 0
	case err != nil: // the flag package has said what
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch {
	case flags.NArg() == 0:
		return daemon(stderr)
	case flags.NArg() == 1 && flags.Arg(0) == "status":
		return status(stdout, stderr)
	case flags.NArg() == 1 && flags.Arg(0) == "settings":
		fmt.Fprintf(stdout, "%s\n%s", config.Table(), introspect.Table())
		return 0
	}
	fmt.Fprintf(stderr, "unknown command %q\n%s", strings.Join(flags.Args(), " "), usage)
	return 2
}

func daemon(stderr io.Writer) int {
	settings, err := config.Load(config.Environment(), annotate.Keys)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	log := slog.New(handler(stderr, settings))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := ipamd.Run(ctx, settings, log); err != nil {
		log.Error("daemon failed", "err", err)
		return 1
	}
	return 0
}

// statusTimeout is a little more than the daemon takes for a page at most.
const statusTimeout = 8 * time.Second

func status(stdout, stderr io.Writer) int {
	settings, err := config.Load(config.Environment(), annotate.Keys)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	text, err := ipamd.StatusText(ctx, settings.IntrospectionAddress)
	if err != nil {
		fmt.Fprintf(stderr, "%v\nIs the daemon running, and is INTROSPECTION_BIND_ADDRESS here what it is there?\n", err)
		return 1
	}
	fmt.Fprint(stdout, text)
	return 0
}

func handler(out io.Writer, settings config.Settings) slog.Handler {
	options := &slog.HandlerOptions{Level: settings.LogLevel}
	if settings.LogFormat == "text" {
		return slog.NewTextHandler(out, options)
	}
	return slog.NewJSONHandler(out, options)
}
