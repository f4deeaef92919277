package ipamd

import (
	"context"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

const (
	// scrapeTimeout bounds the question behind the gauges: the loop answers in microseconds unless it is not running.
	scrapeTimeout = 2 * time.Second
)

// figures computes the gauges from the loop's state.
type figures struct {
	loop       *reconcile.Loop
	maxENI     int // MAX_ENI; 0 or less: the instance type's limit
	annotation *annotation
	lock       *nodeLock
}

func (f *figures) read() (introspect.Figures, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	status, err := f.loop.Status(ctx)
	if err != nil {
		return introspect.Figures{}, false
	}
	figures := count(status.Pool, f.maxENI)
	figures.Waiting = len(status.Waiting)
	for _, kind := range reconcile.Kinds() {
		figures.InProgress[kind] = slices.Contains(status.Busy, kind)
	}
	figures.AnnotationsOwned = len(status.Pool.Records)
	figures.NamedElsewhere = status.Pool.TookClearing + status.Pool.TookClaimed
	f.annotation.show(&figures)
	figures.StateTrouble = map[string]bool{
		"load": status.Errors.Load != "", "save": status.Errors.Save != "", "lock": f.lock.problem() != "",
	}
	return figures, true
}

func count(view pool.View, maxENI int) introspect.Figures {
	limits := view.Instance.Limits
	if maxENI > 0 {
		limits.ENIs = min(limits.ENIs, maxENI)
	}
	figures := introspect.Figures{
		MaxENIs:        limits.ENIs,
		MaxIPs:         limits.ENIs * max(0, limits.AddressesPerENI-1), // each ENI's primary address is not for pods
		AssignedPerENI: map[string]int{}, AssignedPerCIDR: map[string]int{}, InProgress: map[string]bool{},
	}
	for _, eni := range view.ENIs {
		if eni.State != pool.Available {
			figures.ENIs++
			figures.AssignedPerENI[eni.ID] = 0
		}
	}
	for _, address := range view.Addresses {
		cidr := netip.PrefixFrom(address.Addr, address.Addr.BitLen()).String()
		if address.ENI != "" {
			figures.IPs++
			figures.AssignedPerCIDR[cidr] = 0
		}
		switch address.Condition {
		case pool.InUse, pool.Occupied:
			figures.AssignedIPs++
			if address.ENI != "" {
				figures.AssignedPerENI[address.ENI]++
				figures.AssignedPerCIDR[cidr]++
			}
		case pool.Resting:
			figures.Cooling++
		}
	}
	return figures
}

// statusPage is /v1/status.
type statusPage struct {
	At time.Time // by the daemon's clock
	reconcile.Status
	Targets     targets
	LockError   string `json:",omitempty"` // why there is no lock file
	Annotations annotationPage
	Warnings    []string // what is wrong on the node that the daemon cannot put right
	Kernel      []string // what the kernel holds of ours, as lines of text
	KernelError string   `json:",omitempty"`
}

type annotationPage struct {
	On         bool
	Keys       []string
	Joined     []string `json:",omitempty"` // those of Keys that hold all of a pod's addresses
	Owned      int      // while it is not 0, the permission to patch pods is needed
	Pending    int
	Overdue    int               // clears not done after ten minutes
	OldestWait string            `json:",omitempty"` // age of the oldest pending
	Pass       annotate.Progress // over the node's pods, at the daemon's start
}

func (d *daemon) statusPage(ctx context.Context) (any, error) {
	status, err := d.loop.Status(ctx)
	if err != nil {
		return nil, err
	}
	page := statusPage{At: time.Now(), Targets: targetsOf(d.settings), Status: status, LockError: d.lock.problem(), Annotations: annotationPage{
		On: d.settings.AnnotatePodIP, Keys: d.settings.AnnotateKeys, Joined: d.settings.AnnotateAll, Owned: len(status.Pool.Records),
		Pending: d.annotation.pending(),
	}}
	if writer := d.annotation.writer; writer != nil {
		page.Annotations.Overdue, _ = writer.Overdue()
		page.Annotations.Pass = writer.Progress()
		if age := writer.Oldest(); age > 0 {
			page.Annotations.OldestWait = age.Round(time.Millisecond).String()
		}
	}
	page.Warnings = d.host.Warnings()
	dump, err := d.host.Dump(ctx)
	if err != nil {
		page.KernelError = err.Error()
	}
	page.Kernel = strings.Split(strings.TrimSuffix(dump, "\n"), "\n")
	return page, nil
}

// announce says once when pods can start, and warns of annotations of an earlier life that nobody can remove.
func (d *daemon) announce(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.loop.Ready():
		d.metrics.Started(introspect.Start{Node: time.Since(d.running), All: time.Since(d.began), APIServer: d.annotation.writer != nil})
	}
	status, err := d.loop.Status(ctx)
	if err != nil {
		return nil // the loop has ended, and says why itself
	}
	figures := count(status.Pool, d.settings.MaxENI)
	d.log.Info("ready", "instance", status.Pool.Instance.ID, "type", status.Pool.Instance.Type,
		"enis", figures.ENIs, "addresses", figures.IPs, "assigned", figures.AssignedIPs)
	if n := len(status.Pool.Records); n > 0 && d.annotation.writer == nil {
		d.log.Warn("annotations of an earlier setting stay: there is no way to the API server", "count", n,
			"advice", "run in a pod with a service account, or set KUBECONFIG")
	}
	return nil
}

// buildVersion is the version of this program, as the go command knows it: "(devel)" where it was told none.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}
