package ipamd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// Page is an answer of a running daemon: its JSON form is the page's, Write words it for people.
type Page interface {
	Write(out io.Writer) error
}

// AskStatus asks the daemon that serves at address (host:port or unix:/path) how it is.
func AskStatus(ctx context.Context, address string) (Page, error) {
	var page statusPage
	err := introspect.Ask(ctx, address, "/v1/status", &page)
	return page, err
}

// AskExplain asks the daemon that serves at address what it would do about its addresses now, and why.
func AskExplain(ctx context.Context, address string) (Page, error) {
	var page explainPage
	err := introspect.Ask(ctx, address, "/v1/explain", &page)
	return page, err
}

// Advice says what to do about an error of AskStatus or AskExplain.
func Advice(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "Is the daemon running, and are VPC_CNI_SOCKET and VPC_CNI_HEALTH_SOCKET here what they are there? Run this in the daemon's container."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "The daemon has ended and left its socket. Is it running?"
	case errors.Is(err, fs.ErrPermission):
		return "The socket is root's: run this as root, in the daemon's container."
	case errors.Is(err, context.DeadlineExceeded):
		return "The daemon does not answer in time. Its log says what it does."
	}
	return "Is the daemon running?"
}

// targets are the settings by which the planner goes.
type targets struct {
	WarmENI, WarmIP, MinimumIP, MaxENI int
	Cooldown                           time.Duration
}

func targetsOf(s config.Settings) targets {
	return targets{s.WarmENITarget, s.WarmIPTarget, s.MinimumIPTarget, s.MaxENI, s.Cooldown}
}

func (t targets) String() string {
	text := fmt.Sprintf("WARM_ENI_TARGET=%d", t.WarmENI)
	if t.WarmIP > 0 || t.MinimumIP > 0 {
		text = fmt.Sprintf("WARM_IP_TARGET=%d, MINIMUM_IP_TARGET=%d", t.WarmIP, t.MinimumIP)
	}
	return fmt.Sprintf("%s, MAX_ENI=%d, cooldown %s", text, t.MaxENI, t.Cooldown)
}

// explainPage is /v1/explain.
type explainPage struct {
	At        time.Time // by the daemon's clock
	Ready     bool
	Targets   targets
	Decision  pool.Decision
	Busy      []string               `json:",omitempty"` // kinds of effects that run; nothing is begun beside one of EC2
	Waiting   []reconcile.WaitingADD `json:",omitempty"`
	NoAddress string                 `json:",omitempty"` // why a new pod would have to wait
	NextWake  time.Time              `json:",omitzero"`  // when time alone may change the decision
	Errors    reconcile.LastErrors
}

// explainPage asks twice: the loop plans again after each command, so that the second answer has a decision of this moment,
// unless a call of EC2 runs or EC2 must be read first, which the page then says.
func (d *daemon) explainPage(ctx context.Context) (any, error) {
	if _, err := d.loop.Status(ctx); err != nil {
		return nil, err
	}
	status, err := d.loop.Status(ctx)
	if err != nil {
		return nil, err
	}
	return explainPage{
		At: time.Now(), Ready: status.Ready, Targets: targetsOf(d.settings), Decision: status.Pool.Decision, Busy: status.Busy,
		Waiting: status.Waiting, NoAddress: status.NoAddress, NextWake: status.NextWake, Errors: status.Errors,
	}, nil
}

// Write words the page for people.
func (p explainPage) Write(out io.Writer) error {
	var b bytes.Buffer
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	d := p.Decision
	line("targets", "%s", p.Targets)
	if d.At.IsZero() {
		line("planner", "nothing is planned yet: the node's ENIs have not been read")
	} else {
		line("planner", "%s (%s)", d.Reason, stamp(d.At))
		t := d.Tally
		line("counted", "%d addresses on %d ENIs: %d free, %d in use, %d of unknown pods, %d cooling, %d still named by an annotation, %d not confirmed by the kernel yet",
			t.Total, t.ENIs, t.Free, t.InUse, t.Occupied, t.Cooling, t.Clearing, t.Coming)
		line("balance", "%d missing, %d too many", d.Short, d.Surplus)
	}
	line("would do", "%s", cmp.Or(strings.Join(d.Actions, "; "), "nothing"))
	for _, wait := range d.Blocked {
		line("waits for", "%s", wait)
	}
	if slices.Contains(p.Busy, reconcile.KindCloud) {
		line("running", "a call of EC2; the next decision follows its answer")
	}
	if left := p.NextWake.Sub(p.At); left > 0 {
		line("looks again", "in %s at the latest", left.Round(100*time.Millisecond))
	}
	line("a new pod", "%s", cmp.Or(p.NoAddress, "would get an address at once"))
	for _, trouble := range errorTexts(p.Errors) {
		line("trouble", "%s", trouble)
	}
	waiting(&b, p.Waiting, p.At)
	_, err := out.Write(b.Bytes())
	return err
}

// errorTexts are the failures that last.
func errorTexts(e reconcile.LastErrors) []string {
	return slices.DeleteFunc([]string{e.Load, e.Save, e.Cloud, e.Host}, func(text string) bool { return text == "" })
}
