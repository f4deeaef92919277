package ipamd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
)

// StatusText asks the daemon that serves introspection at address how it is, and words the answer for people.
func StatusText(ctx context.Context, address string) (string, error) {
	var page statusPage
	if err := introspect.Ask(ctx, address, "/v1/status", &page); err != nil {
		return "", err
	}
	return page.String(), nil
}

// String words the page, a few lines for a glance; /v1/status has everything.
func (p statusPage) String() string {
	var b strings.Builder
	figures := count(p.Pool, 0)
	ready := "ready"
	if !p.Ready {
		ready = "not ready yet: the node's ENIs or its kernel have not been read"
	}
	fmt.Fprintf(&b, "daemon:       %s\n", ready)
	fmt.Fprintf(&b, "node:         %s (%s), %d ENIs, %d addresses: %d in use, %d resting\n",
		cmp.Or(p.Pool.Instance.ID, "unknown"), cmp.Or(p.Pool.Instance.Type, "unknown"), figures.ENIs, figures.IPs, figures.AssignedIPs, figures.Cooling)
	fmt.Fprintf(&b, "waiting pods: %d\n", len(p.Waiting))
	for _, line := range p.Annotations.lines() {
		fmt.Fprintf(&b, "%s\n", line)
	}
	for _, trouble := range []string{p.Errors.Load, p.Errors.Save, p.Errors.Cloud, p.Errors.Host, p.LockError, p.KernelError} {
		if trouble != "" {
			fmt.Fprintf(&b, "trouble:      %s\n", trouble)
		}
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(&b, "warning:      %s\n", warning)
	}
	return b.String()
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
