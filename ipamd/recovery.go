package ipamd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"

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
	vethPrefix string
	bootID     string
	log        *slog.Logger
}

// Load implements reconcile.Store. What it makes again is not done: the first report of the kernel has to show each route.
func (r recovery) Load() (pool.Snapshot, bool, error) {
	snapshot, found, err := r.Store.Load()
	if found {
		return snapshot, found, err
	}
	links, unlisted := r.podLinks()
	if unlisted != nil || len(links) == 0 { // no pod runs: the node was booted, or is new
		return pool.Snapshot{}, false, errors.Join(err, unlisted)
	}
	if err == nil {
		err = fmt.Errorf("state file %s is missing, and %d pods run: they keep their addresses, which are seen in the kernel", r.Path(), len(links))
	}
	known, unread := r.results.Assignments(func(a pool.Assignment) bool { // not an earlier boot's, nor with another pod's address
		mac := links[hostVeth(r.vethPrefix, a.Key, a.Pod)]
		return a.Addr.IsValid() && mac != nil && bytes.Equal(mac, api.HostMAC(a.Addr))
	})
	if unread != nil {
		r.log.Warn("runtime's results not all readable", "folder", r.results.Dir, "err", unread)
	}
	snapshot = pool.Snapshot{BootID: r.bootID, Assignments: known}
	r.log.Warn("state made again from the kernel and the runtime's results", "pods", len(links), "found", len(snapshot.Assignments), "folder", r.results.Dir)
	return snapshot, true, err
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
