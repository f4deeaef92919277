package ipamd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// savedState is what the tests read of the state file.
type savedState struct {
	Assignments []struct {
		Address netip.Addr `json:"address"`
		Sandbox string     `json:"sandbox"`
		Done    bool       `json:"done"`
	} `json:"assignments"`
	Cooling []struct {
		Address netip.Addr `json:"address"`
		Until   time.Time  `json:"until"`
	} `json:"cooling"`
	Annotations []struct {
		Sandbox string `json:"sandbox"`
		Wish    string `json:"wish"`
	} `json:"annotations"`
}

func (w *world) saved() (savedState, error) {
	var state savedState
	text, err := os.ReadFile(filepath.Join(w.dir, "state", "state.json"))
	if err != nil {
		return state, err
	}
	return state, json.Unmarshal(text, &state)
}

// agrees says what does not fit together once the dust has settled: who holds which address by ADD's results, by the state
// file, by the node's routes and veths, at EC2, and in the API.
func (f *fire) agrees() error {
	want := f.running()
	return errors.Join(f.stateAgrees(want), f.kernelAgrees(want), f.cloudAgrees(want), f.apiAgrees(want), f.noLitter())
}

// running gives the sandboxes that have a network, by ADD's results.
func (f *fire) running() map[string]netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]netip.Addr{}
	for id, g := range f.live {
		all[id] = g.addr
	}
	return all
}

func (f *fire) stateAgrees(want map[string]netip.Addr) error {
	state, err := f.saved()
	if err != nil {
		return err
	}
	got := map[string]netip.Addr{}
	for _, a := range state.Assignments {
		got[a.Sandbox] = a.Address
		if !a.Done {
			return fmt.Errorf("state file: %s is not done", a.Sandbox)
		}
	}
	return differs("state file", want, got)
}

func differs(what string, want, got any) error {
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		return fmt.Errorf("%s (-sandboxes +found):\n%s", what, diff)
	}
	return nil
}

// kernelAgrees compares the routes of the pods' table and the pods' links with the sandboxes.
func (f *fire) kernelAgrees(want map[string]netip.Addr) error {
	handle, err := f.node.Netlink()
	if err != nil {
		return err
	}
	defer handle.Close()
	routes, err := handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: api.PodsTable}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	var found []netip.Addr
	for _, route := range routes {
		addr, _ := netip.AddrFromSlice(route.Dst.IP.To4())
		found = append(found, addr)
	}
	links, err := handle.LinkList()
	if err != nil {
		return err
	}
	veths := 0
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Name, "eni") {
			veths++
		}
	}
	if veths != len(want) {
		err = fmt.Errorf("kernel has %d pod links, there are %d sandboxes", veths, len(want))
	}
	return errors.Join(err, differs("routes", sorted(maps.Values(want)), sorted(slices.Values(found))))
}

func sorted(addrs func(func(netip.Addr) bool)) []netip.Addr {
	return slices.SortedFunc(addrs, netip.Addr.Compare)
}

// cloudAgrees tells whether every sandbox's address is assigned to an ENI that is attached.
func (f *fire) cloudAgrees(want map[string]netip.Addr) error {
	var errs []error
	for id, addr := range want {
		holder, ok := f.model.Holder(f.instance.VPCID, addr)
		if !ok || holder.Attachment == nil || holder.Attachment.InstanceID != f.instance.ID || holder.Attachment.Status != vpc.Attached {
			errs = append(errs, fmt.Errorf("EC2: %s of %s is on no attached ENI", addr, id))
		}
	}
	return errors.Join(errs...)
}

// apiAgrees tells whether running pods are annotated with their address, and no other pod with any.
func (f *fire) apiAgrees(want map[string]netip.Addr) error {
	var list corev1.PodList
	if err := f.admin.List(context.Background(), &list, client.InNamespace(f.namespace)); err != nil {
		return err
	}
	f.mu.Lock()
	owner := map[string]string{}
	for id, g := range f.live {
		owner[g.object.Name] = id
	}
	f.mu.Unlock()
	var errs []error
	for i := range list.Items {
		pod := &list.Items[i]
		for _, key := range fireKeys {
			value, there := pod.Annotations[key]
			id, live := owner[pod.Name]
			switch {
			case live && key == f.key && value != want[id].String():
				errs = append(errs, fmt.Errorf("API: running pod %s with %s has %s=%q", pod.Name, want[id], key, value))
			case live && key != f.key && there, !live && value != "":
				errs = append(errs, fmt.Errorf("API: pod %s (running %t) still has %s=%q", pod.Name, live, key, value))
			}
		}
	}
	return errors.Join(errs...)
}

// noLitter tells of files that only a process at work has.
func (f *fire) noLitter() error {
	var errs []error
	err := filepath.WalkDir(f.dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return nil // it went away meanwhile
		case entry.IsDir() && slices.Contains([]string{"pods", "netns", "cache"}, name):
			return fs.SkipDir
		case strings.HasSuffix(name, ".new"), strings.Contains(name, ".unreadable"), filepath.Base(filepath.Dir(path)) == "pending-del":
			errs = append(errs, fmt.Errorf("file is left: %s", path))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// quiet waits until all agrees, and looks after the pings.
func (f *fire) quiet() {
	f.t.Helper()
	var last error
	if err := f.until("quiet", func() bool { last = f.agrees(); return last == nil }); err != nil {
		f.t.Fatalf("%v: %v", err, last)
	}
	f.pings()
}

// pings fails the test if one was lost. One that is on its way now is not.
func (f *fire) pings() {
	f.t.Helper()
	for name, train := range f.trains {
		err := f.until("pings", func() bool { return train.Result().Failed == 0 })
		if r := train.Result(); err != nil {
			f.t.Fatalf("%s: %d of %d pings were lost, the last %s ago; longest gap %s; %v",
				name, r.Failed, r.Sent, time.Since(r.LastFailure).Round(time.Millisecond), r.LongestGap, r.SendErr)
		}
	}
}

// restOver is more than the rest of an address whose ADD a restart cut off (30 s), and the patience with a change at EC2.
const restOver = 90 * time.Second

// nothingLeaks waits, with only the residents left, until EC2 has nothing that nobody needs: every ENI is attached, goes with
// its instance and carries a sandbox or is the primary one, and one address is warm; the state file knows of no annotation but
// the residents'; and the node's kernel has what EC2's state asks for and nothing else of ours.
func (f *fire) nothingLeaks() {
	f.t.Helper()
	var last error
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(restOver); ; <-tick.C {
		if last = errors.Join(f.agrees(), f.leak(), f.kernelLeak()); last == nil {
			break
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("not clean: %v", last)
		}
	}
	f.pings()
}

func (f *fire) leak() error {
	spare := 0
	for _, eni := range f.model.ENIs() {
		at := eni.Attachment
		if at == nil || at.Status != vpc.Attached || at.Device > 0 && !at.DeleteOnTermination {
			return fmt.Errorf("EC2: %s is left: %+v", eni.ID, at)
		}
		held := 0
		for _, addr := range eni.Secondary {
			if f.holds(addr) {
				held++
			}
		}
		if at.Device > 0 && held == 0 {
			return fmt.Errorf("EC2: %s carries nobody", eni.ID)
		}
		spare += len(eni.Secondary) - held
	}
	state, err := f.saved()
	switch {
	case err != nil:
		return err
	case spare != 1: // WARM_IP_TARGET
		return fmt.Errorf("EC2: %d spare addresses are assigned, wanted is 1", spare)
	case len(state.Annotations) != len(f.live):
		return fmt.Errorf("state file: %d annotations of %d sandboxes: %+v", len(state.Annotations), len(f.live), state.Annotations)
	}
	return nil
}

func (f *fire) holds(addr netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holders[addr] != ""
}
