package hostnet

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// points are all names that the hook is told of: tests that kill the daemon at each of them go by this list.
var points = []string{
	"kernel add address", "kernel add route", "kernel add rule",
	"kernel remove address", "kernel remove nftables", "kernel remove route", "kernel remove rule",
	"kernel resize link", "kernel set neighbour", "kernel set route", "kernel set sysctl", "kernel start link",
	"kernel write nftables",
}

// Every change of the kernel is carried out through the hook: when it refuses, nothing changes; when it fails afterwards,
// the next Apply goes on from there.
func TestEveryChangeOfTheKernelPassesTheHook(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	var seen []string
	refuse, after := true, errors.New("told nobody")
	cfg := settings()
	cfg.Veth = vethOf
	cfg.Around = func(point string, run func() error) error {
		seen = append(seen, point)
		if refuse {
			return errors.New("not now")
		}
		return errors.Join(run(), after)
	}
	h := l.host(cfg)
	before := l.dump(h)
	apply := func() (err error) {
		l.must(l.node.Do(func() error { _, err = h.Apply(context.Background(), wanted()); return nil }))
		return err
	}
	if err := apply(); err == nil {
		t.Error("no error from a hook that refuses")
	}
	if diff := cmp.Diff(before, l.dump(l.host(settings()))); diff != "" {
		t.Errorf("changed although the hook refused:\n%s", diff)
	}
	refuse = false
	if err := apply(); err == nil {
		t.Error("no error from a hook that fails afterwards")
	}
	l.awaitLinks()
	after = nil
	if err := apply(); err != nil {
		t.Error(err)
	}
	for name, damage := range damages() {
		l.withTools(damage)
		if err := apply(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.pluginPod("eniaaaa", podB, false)
	want := wanted()
	want.Pods = []pool.HostPod{wantedPod("eniaaaa", podB)}
	l.applyOnce(h, want)
	l.clean(h)
	slices.Sort(seen)
	if diff := cmp.Diff(points, slices.Compact(seen)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
}
