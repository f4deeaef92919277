// Command ipamd is the node daemon. Settings come from the environment; `ipamd --print-config` says what applies, `ipamd status`
// and `ipamd explain` how the daemon of the same environment is and what it would do.
package main

import (
	"context"
	"encoding/json"
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

  ipamd                        run the daemon until SIGTERM or SIGINT
  ipamd --print-config         print every setting with its value and where that comes from, and what is wrong with them
  ipamd status                 say how this node's daemon is: ENIs, addresses, who has them, what waits, annotations
  ipamd explain                say what this node's daemon would do about its addresses now, and why
  ipamd settings               print the tables of settings and metrics (Markdown)
  ipamd help                   print this

With -o json, --print-config, status and explain print JSON. Settings are environment variables; status and explain ask the
daemon on its socket (VPC_CNI_HEALTH_SOCKET). Pods keep working while the daemon is down.
`

// Exit codes: 0 told to end, 1 settings or a part of the daemon failed, 2 wrong usage.
func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// output is where a command writes, and in which form.
type output struct {
	out, errs io.Writer
	json      bool
}

func run(args []string, stdout, stderr io.Writer) int {
	o := output{out: stdout, errs: stderr}
	wrong := func(format string, args ...any) int {
		fmt.Fprintf(stderr, format+"\n"+usage, args...)
		return 2
	}
	flags := flag.NewFlagSet("ipamd", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its errors are told below
	printConfig := flags.Bool("print-config", false, "")
	form := flags.String("o", "text", "")
	var words []string
	for rest := args; ; rest = flags.Args()[1:] { // flags may come before and after the command
		if err := flags.Parse(rest); err == flag.ErrHelp {
			fmt.Fprint(stdout, usage)
			return 0
		} else if err != nil {
			return wrong("%v", err)
		}
		if flags.NArg() == 0 {
			break
		}
		words = append(words, flags.Arg(0))
	}
	if *form != "text" && *form != "json" {
		return wrong("unknown form -o %s: want text or json", *form)
	}
	o.json = *form == "json"
	command := strings.Join(words, " ")
	if *printConfig {
		if command != "" {
			return wrong("--print-config is no part of %q", command)
		}
		return o.config()
	}
	return o.run(command, wrong)
}

func (o output) run(command string, wrong func(string, ...any) int) int {
	switch {
	case command == "status":
		return o.ask(ipamd.AskStatus)
	case command == "explain":
		return o.ask(ipamd.AskExplain)
	case o.json:
		return wrong("-o json belongs to --print-config, status and explain")
	case command == "":
		return daemon(o.errs)
	case command == "help":
		fmt.Fprint(o.out, usage)
		return 0
	case command == "settings":
		fmt.Fprintf(o.out, "%s\n%s", config.Table(), introspect.Table())
		return 0
	}
	return wrong("unknown command %q", command)
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

// askTimeout is a little more than the daemon takes for a page at most.
const askTimeout = 8 * time.Second

// ask shows a page of the running daemon. A setting that cannot be used does not hinder it, unless it is the socket's.
func (o output) ask(ask func(context.Context, string) (ipamd.Page, error)) int {
	socket, err := config.HealthSocket(config.Environment())
	if err != nil {
		fmt.Fprintln(o.errs, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	page, err := ask(ctx, "unix:"+socket)
	if err != nil {
		fmt.Fprintf(o.errs, "%v\n%s\n", err, ipamd.Advice(err))
		return 1
	}
	if o.json {
		return o.show(page)
	}
	return o.written(page.Write(o.out))
}

// config prints the settings. Errors go to standard error too, where nobody overlooks them.
func (o output) config() int {
	report := config.Explain(config.Environment(), annotate.Keys)
	code := 0
	if o.json {
		code = o.show(report)
	} else {
		code = o.written(report.Write(o.out))
	}
	if n := len(report.Errors); n > 0 {
		fmt.Fprintf(o.errs, "%d of the settings cannot be used, and the daemon would not start:\n  %s\n", n, strings.Join(report.Errors, "\n  "))
		code = 1
	}
	return code
}

func (o output) show(content any) int {
	encoder := json.NewEncoder(o.out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return o.written(encoder.Encode(content))
}

func (o output) written(err error) int {
	if err != nil {
		fmt.Fprintln(o.errs, err)
		return 1
	}
	return 0
}

func handler(out io.Writer, settings config.Settings) slog.Handler {
	options := &slog.HandlerOptions{Level: settings.LogLevel}
	if settings.LogFormat == "text" {
		return slog.NewTextHandler(out, options)
	}
	return slog.NewJSONHandler(out, options)
}
