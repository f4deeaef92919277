package ipamd

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// Write words the page for people: how the daemon is, then its ENIs, and its addresses but for the free ones.
func (p statusPage) Write(out io.Writer) error {
	var b bytes.Buffer
	p.head(&b)
	p.enis(&b)
	p.addresses(&b)
	waiting(&b, p.Waiting, p.At)
	_, err := out.Write(b.Bytes())
	return err
}

func (p statusPage) head(b *bytes.Buffer) {
	figures := count(p.Pool, 0)
	ready := "ready"
	if !p.Ready {
		ready = "not ready yet: the node's ENIs or its kernel have not been read"
	}
	fmt.Fprintf(b, "daemon:       %s\n", ready)
	fmt.Fprintf(b, "node:         %s (%s), %d ENIs, %d addresses: %d in use, %d resting\n",
		cmp.Or(p.Pool.Instance.ID, "unknown"), cmp.Or(p.Pool.Instance.Type, "unknown"), figures.ENIs, figures.IPs, figures.AssignedIPs, figures.Cooling)
	fmt.Fprintf(b, "targets:      %s\n", p.Targets)
	if d := p.Pool.Decision; !d.At.IsZero() {
		fmt.Fprintf(b, "decision:     %s: %s\n", stamp(d.At), d)
	}
	fmt.Fprintf(b, "waiting pods: %d%s\n", len(p.Waiting), because(p.Waiting, p.NoAddress))
	for _, line := range p.Annotations.lines() {
		fmt.Fprintf(b, "%s\n", line)
	}
	troubles := append(errorTexts(p.Errors), p.LockError, p.KernelError)
	for _, trouble := range slices.DeleteFunc(troubles, func(text string) bool { return text == "" }) {
		fmt.Fprintf(b, "trouble:      %s\n", trouble)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(b, "warning:      %s\n", warning)
	}
}

func because(waiting []reconcile.WaitingADD, why string) string {
	if len(waiting) == 0 || why == "" {
		return ""
	}
	return ", " + why
}

// enis is the table of ENIs.
func (p statusPage) enis(b *bytes.Buffer) {
	if len(p.Pool.ENIs) == 0 {
		return
	}
	used, free := map[string]int{}, map[string]int{}
	for _, a := range p.Pool.Addresses {
		switch a.Condition {
		case pool.InUse, pool.Occupied:
			used[a.ENI]++
		case pool.Free:
			free[a.ENI]++
		}
	}
	table(b, "ENI\tDEVICE\tSTATE\tSUBNET\tPRIMARY\tADDRESSES\tIN USE\tFREE\tREMARK", func(row func(cells ...any)) {
		for _, e := range p.Pool.ENIs {
			remark := "-"
			switch {
			case !e.Managed:
				remark = "not managed"
			case !e.Reported:
				remark = "not confirmed by the kernel"
			}
			row(e.ID, e.Device, e.State, e.Subnet, e.Primary, len(e.Secondary), used[e.ID], free[e.ID], remark)
		}
	})
}

// addresses is the table of addresses that somebody has, or had a moment ago.
func (p statusPage) addresses(b *bytes.Buffer) {
	list := slices.DeleteFunc(slices.Clone(p.Pool.Addresses), func(a pool.AddressView) bool {
		return a.Condition == pool.Free && a.NamedBy == ""
	})
	if len(list) == 0 {
		return
	}
	table(b, "ADDRESS\tENI\tSTATE\tPOD\tSANDBOX\tTIME", func(row func(cells ...any)) {
		for _, a := range list {
			pod, sandbox, when := "-", "-", "-"
			switch held := a.Assignment; {
			case held != nil:
				pod, sandbox, when = podName(held.Pod), held.Key.Sandbox[:min(len(held.Key.Sandbox), shortID)], "for "+age(p.At, held.Since)
				if !held.Done {
					when += ", being connected"
				}
			case a.NamedBy != "":
				pod = "still named by " + a.NamedBy
			}
			if left := a.Until.Sub(p.At); a.Assignment == nil && left > 0 {
				when = "for " + left.Round(100*time.Millisecond).String() + " more"
			}
			row(a.Addr, cmp.Or(a.ENI, "-"), a.Condition, pod, sandbox, when)
		}
	})
}

// shortID is how many digits of a sandbox's id the container runtimes' tools show.
const shortID = 13

// waiting is the table of pods that wait for an address.
func waiting(b *bytes.Buffer, list []reconcile.WaitingADD, now time.Time) {
	if len(list) == 0 {
		return
	}
	table(b, "WAITING POD\tSANDBOX\tTIME", func(row func(cells ...any)) {
		for _, w := range list {
			row(podName(w.Pod), w.Key.Sandbox[:min(len(w.Key.Sandbox), shortID)], "for "+age(now, w.Since))
		}
	})
}

func podName(pod pool.Pod) string {
	if pod.Name == "" {
		return "-"
	}
	return pod.Namespace + "/" + pod.Name
}

func age(now, since time.Time) string {
	return max(0, now.Sub(since)).Round(100 * time.Millisecond).String()
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// table writes an empty line, a heading and aligned rows.
func table(b *bytes.Buffer, heading string, fill func(row func(cells ...any))) {
	fmt.Fprintln(b)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	fill(func(cells ...any) {
		texts := make([]string, 0, len(cells))
		for _, cell := range cells {
			texts = append(texts, fmt.Sprint(cell))
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	})
	_ = w.Flush() // into memory
}

// lines words what is known of annotations.
func (a annotationPage) lines() []string {
	var keys []string
	for _, key := range a.Keys {
		if slices.Contains(a.Joined, key) {
			key += " (all addresses)"
		}
		keys = append(keys, key)
	}
	state := "off"
	if a.On {
		state = "on, " + strings.Join(keys, ", ")
	}
	lines := []string{
		"annotations:  " + state,
		fmt.Sprintf("              owned on %d pods, %d pending%s, %d overdue", a.Owned, a.Pending, a.oldest(), a.Overdue),
	}
	pass := a.Pass
	switch {
	case pass.Total == 0:
		return lines
	case pass.Ended.IsZero():
		return append(lines, fmt.Sprintf("              pass over the node's pods: %d of %d visited since %s", pass.Visited, pass.Total, pass.Began.Format(time.RFC3339)))
	}
	return append(lines, fmt.Sprintf("              last pass over the node's pods: all %d visited, %s to %s", pass.Total, pass.Began.Format(time.RFC3339), pass.Ended.Format(time.RFC3339)))
}

func (a annotationPage) oldest() string {
	if a.OldestWait == "" {
		return ""
	}
	return " (the oldest for " + a.OldestWait + ")"
}
