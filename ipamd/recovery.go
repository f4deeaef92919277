package ipamd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// recovery is the state file, and what is known without it. Where it is missing or unreadable while pods run, their
// assignments are made again from the results that the runtime keeps. A pod whose result is not there either keeps its
// address all the same, by its route in the kernel, and its DEL says whose the annotation is; CHECK and GC do not know it.
//
// A lost state holds no ADD up: it waits for the first reading of the kernel, as at every start. An address whose plugin was
// still at work when the last daemon died may then be given to another pod, but not be had twice: that plugin's connection is
// dead, so it is not allowed to replace what the other pod has in the kernel, its done is not answered, and it removes what
// it built. What is lost for good are the cooldowns. Only a state that cannot be saved refuses ADDs (see stateAdvice): nobody
// would know of an assignment whose route is not there yet.
type recovery struct {
	*store.Store
	results    store.Results
	incumbent  store.Incumbent
	vethPrefix string
	bootID     string
	log        *slog.Logger
}

// Load implements reconcile.Store. What it makes again is not done: the first report of the kernel has to show each route.
// Where the incumbent ran before, its own file speaks for the pods that it connected.
func (r recovery) Load() (pool.Snapshot, bool, error) {
	snapshot, found, err := r.Store.Load()
	if found {
		return snapshot, found, err
	}
	links, unlisted := r.podLinks()
	if unlisted != nil || len(links) == 0 { // no pod runs: the node was booted, or is new
		return pool.Snapshot{}, false, errors.Join(err, unlisted)
	}
	inherited, unread := r.inherited(links)
	err = errors.Join(err, unread)
	if unexplained := len(links) - len(inherited); err == nil && unexplained > 0 {
		err = fmt.Errorf("state file %s is missing, and %d pods run: they keep their addresses, which are seen in the kernel", r.Path(), unexplained)
	}
	known, unread := r.results.Assignments(func(a pool.Assignment) bool { // not an earlier boot's, nor with another pod's address
		mac := links[hostVeth(r.vethPrefix, a.Key, a.Pod)]
		return a.Addr.IsValid() && mac != nil && bytes.Equal(mac, api.HostMAC(a.Addr))
	})
	if unread != nil {
		r.log.Warn("runtime's results not all readable", "folder", r.results.Dir, "err", unread)
	}
	snapshot = pool.Snapshot{BootID: r.bootID, Assignments: append(inherited, known...)}
	if len(inherited) > 0 {
		r.log.Info("pods of the node's earlier CNI are taken over", "pods", len(inherited), "file", r.incumbent.Path())
	}
	if len(links) > len(inherited) {
		r.log.Warn("state made again from the kernel and the runtime's results", "pods", len(links)-len(inherited), "found", len(known), "folder", r.results.Dir)
	}
	return snapshot, true, err
}

// inherited gives what the incumbent's file says of pods whose veth stands as the incumbent made it: an entry without it is a
// pod's that has ended. Pods that the file does not know, or no file, keep their addresses by their routes in the kernel.
func (r recovery) inherited(links map[string]net.HardwareAddr) ([]pool.Assignment, error) {
	strange := slices.ContainsFunc(slices.Collect(maps.Values(links)), func(mac net.HardwareAddr) bool { return !built(mac) })
	if !strange {
		return nil, nil // then nothing hangs on the file, whatever is in it
	}
	listed, err := r.incumbent.Assignments()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(listed, func(a pool.Assignment) bool {
		mac, stands := links[hostVeth(r.vethPrefix, a.Key, a.Pod)]
		return !stands || built(mac)
	}), nil
}

// built tells whether a veth with this MAC is this project's plugin's.
func built(mac net.HardwareAddr) bool {
	_, ours := api.BuiltFor(mac)
	return ours
}

// podLinks gives the links that look like the host's end of a pod's veth: each one's MAC, which tells whose address it was
// built for, by its name.
func (r recovery) podLinks() (map[string]net.HardwareAddr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	ours := regexp.MustCompile(fmt.Sprintf("^%s[0-9a-f]{%d}$", regexp.QuoteMeta(r.vethPrefix), vethHash))
	links := map[string]net.HardwareAddr{}
	for _, link := range all {
		if ours.MatchString(link.Name) {
			links[link.Name] = link.HardwareAddr
		}
	}
	return links, nil
}
