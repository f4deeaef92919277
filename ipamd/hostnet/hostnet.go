// Package hostnet keeps the node's side of the data path in the kernel: ENI links, routing tables and rules, and one
// nftables table that decides by which ENI a packet leaves and what is source-translated.
//
// It owns everything that carries its numbers (numbers.go): it writes them, repairs them and removes them with Clean. It
// never touches an object that is not its own, and never moves a link between namespaces. A pod's link and route are the
// plugin's: hostnet reports them, and puts the route back where others have deleted it under a living pod. It knows nothing of EC2 or Kubernetes.
//
// The cost of a packet does not depend on the number of pods: one rule looks up the table of pods, one nftables map gives
// the ENI of a source address. Start with desired.go, which turns the wanted pool.HostState into a State, then Apply here.
package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Config is what does not change while the daemon runs.
type Config struct {
	// MTU, in bytes, is set on every ENI link. 0 leaves the links' MTUs alone.
	MTU int
	// VethPrefix begins the name of every pod's host link: what arrives by such a link comes from a pod.
	VethPrefix string
	// ExternalSNAT says that something outside the node translates what leaves the VPC: pods' packets then leave by their
	// own ENI, untranslated. False: new connections from pods to outside the VPC leave by the primary ENI with its primary
	// address, because only that address may have a public one.
	ExternalSNAT bool
	// NodePort makes replies to connections that came in for an address of the node leave by the ENI that they came by.
	NodePort bool
	// Veth names the host's link of a sandbox. Nil: what a pod has lost on the host is not put back.
	Veth func(pool.Key, pool.Pod) string
	// Logger gets one line for each pass that changed something: a warning if it put right what others had changed.
	Logger *slog.Logger
	// Repaired, unless nil, is told of every object that was put right after others had changed it, by its kind (one of
	// Kinds). What is set up first, or wanted anew, is no repair.
	Repaired func(kind string)
	// Event, unless nil, is told what a person must put right: a reason of one word, and a sentence.
	Event func(reason, message string)
	// Around, unless nil, carries out every single change of the kernel. Points are "kernel <verb> <kind>", such as
	// "kernel add rule"; a whole nftables transaction is one change.
	Around Around
}

// Around carries out one effect on the kernel by calling run, once or not at all. Tests crash here.
type Around func(point string, run func() error) error

// Host is this node's kernel. All its methods work in the network namespace of the calling thread, and each needs
// CAP_NET_ADMIN there; Apply also needs a writable /proc/sys/net.
type Host struct {
	cfg     Config
	log     *slog.Logger
	changes chan struct{}

	mu      sync.Mutex // one reader or writer of the kernel at a time
	links   []string   // names of the ENI links of the last Apply: what Dump shows besides our own objects
	memory  memory
	repeats repeats
	rivals  []string // foreign rules that get pods' packets before ours do, as last seen
	culprit string   // the last complaint about repeated repairs
}

// vethPrefixMax leaves the rest of a link's name (15 bytes) to the eleven hex digits that name a pod.
const vethPrefixMax = 4

// New checks the settings. It touches nothing.
func New(cfg Config) (*Host, error) {
	switch {
	case cfg.Logger == nil:
		return nil, errors.New("make host network: no logger")
	case cfg.VethPrefix == "" || len(cfg.VethPrefix) > vethPrefixMax || strings.ContainsAny(cfg.VethPrefix, "/ *\""):
		return nil, fmt.Errorf("make host network: veth prefix %q is not 1 to %d plain characters", cfg.VethPrefix, vethPrefixMax)
	case cfg.MTU < 0:
		return nil, fmt.Errorf("make host network: MTU %d is negative", cfg.MTU)
	}
	if cfg.Repaired == nil {
		cfg.Repaired = func(string) {}
	}
	if cfg.Event == nil {
		cfg.Event = func(string, string) {}
	}
	if cfg.Around == nil {
		cfg.Around = func(_ string, run func() error) error { return run() }
	}
	return &Host{cfg: cfg, log: cfg.Logger, changes: make(chan struct{}, 1)}, nil
}

// Changes delivers after links, addresses, routes or rules changed, while Run runs. Changes are merged: one value may stand
// for many, and at most one comes in changesInterval.
func (h *Host) Changes() <-chan struct{} { return h.changes }

// Apply brings the kernel to the wanted state and reports what it was then seen to hold. It reads everything first and
// writes only the difference, so it is idempotent and repairs what others have changed. An ENI whose link has not appeared
// yet is left out of the report; that is no error. The report is also good when there is an error: it is what a final
// reading of the kernel showed, empty only where that reading failed.
func (h *Host) Apply(ctx context.Context, want pool.HostState) (pool.HostReport, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, err := h.openKernel()
	if err != nil {
		return pool.HostReport{}, fmt.Errorf("apply host state: %w", err)
	}
	defer k.close()

	present, err := k.readLinks()
	if err != nil {
		return pool.HostReport{}, fmt.Errorf("apply host state: %w", err)
	}
	names := matchLinks(want.ENIs, present)
	desired := Desired(h.cfg, want, names)
	desired.Pods = standing(h.cfg, want, veths(h.cfg.VethPrefix, present))
	h.links = desired.linkNames()

	found, err := k.observe(present, desired)
	if err != nil {
		return pool.HostReport{}, fmt.Errorf("apply host state: %w", err)
	}
	h.watchRivals(foreignRules(k.foreign, want, h.cfg.VethPrefix))
	steps := difference(desired, found)
	drift := h.memory.drift(desired, found, k.index, steps)
	left, repairErr := h.repair(ctx, k, steps, drift)
	h.memory.keep(desired, k.index, left)
	if len(steps) == 0 {
		return report(want, names, desired, found), nil
	}

	if present, err = k.readLinks(); err == nil {
		found, err = k.observe(present, desired)
	}
	if err != nil {
		return pool.HostReport{}, fmt.Errorf("apply host state: %w", errors.Join(repairErr, err))
	}
	if repairErr != nil {
		repairErr = fmt.Errorf("apply host state: %w", repairErr)
	}
	return report(want, names, desired, found), repairErr
}

// repair carries out the steps in their order. One that fails does not stop the others: an ENI that is not well must not
// hold up its neighbours. It gives the steps that were not carried out, and whether they were drift.
func (h *Host) repair(ctx context.Context, k *kernel, steps []step, drift map[string]bool) (left map[string]bool, err error) {
	var errs []error
	var set, repaired []step
	left = make(map[string]bool)
	for _, s := range steps {
		drifted := drift[s.String()]
		if err := ctx.Err(); err != nil {
			left[s.String()] = drifted
			if !slices.ContainsFunc(errs, func(e error) bool { return errors.Is(e, err) }) {
				errs = append(errs, err)
			}
			continue
		}
		err := h.cfg.Around(s.point(), func() error { return s.do(k) })
		switch {
		case errors.Is(err, errEnded): // a DEL was quicker: nothing was lost, nothing is repaired
		case err != nil && s.pod:
			left[s.String()] = drifted
			h.log.Warn("pod's state on the host not put back", "step", s.String(), "err", err)
		case err != nil:
			left[s.String()] = drifted
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
		case drifted:
			repaired = append(repaired, s)
		default:
			set = append(set, s)
		}
	}
	h.tell(set, repaired)
	return left, errors.Join(errs...)
}

// Dump is the text of everything of ours that the kernel holds, in the form of State.String.
func (h *Host) Dump(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	k, err := h.openKernel()
	if err != nil {
		return "", fmt.Errorf("dump host state: %w", err)
	}
	defer k.close()
	present, err := k.readLinks()
	if err != nil {
		return "", fmt.Errorf("dump host state: %w", err)
	}
	var shown State
	for _, name := range h.links {
		shown.Links = append(shown.Links, Link{Name: name})
	}
	found, err := k.observe(present, shown)
	if err != nil {
		return "", fmt.Errorf("dump host state: %w", err)
	}
	return found.String(), nil
}

// Clean removes every object of ours: rules, routes (the pods' too), addresses and the nftables table, in the order in which
// traffic suffers least. Sysctls, MTUs and links that are up stay: they had no owner before. It works without an Apply
// before it, so that another process can clean up after a daemon.
func (h *Host) Clean(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, err := h.openKernel()
	if err != nil {
		return fmt.Errorf("clean host state: %w", err)
	}
	defer k.close()
	present, err := k.readLinks()
	if err != nil {
		return fmt.Errorf("clean host state: %w", err)
	}
	found, err := k.observe(present, State{})
	if err != nil {
		return fmt.Errorf("clean host state: %w", err)
	}
	h.links, h.memory = nil, memory{}
	if _, err := h.repair(ctx, k, removal(found), nil); err != nil {
		return fmt.Errorf("clean host state: %w", err)
	}
	return nil
}
