package ipamd_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// A node comes with a prefix that another agent asked for: its addresses serve pods, in the kernel and in the VPC, before and
// after the daemon was killed, and EC2 keeps the prefix while one of them runs.
func TestPodsOnAPrefixThatTheNodeCameWith(t *testing.T) {
	w := newWorld(t)
	primary := w.model.InstanceENIs(w.instance.ID)[0].ID
	given, err := w.model.AssignPrivate(time.Now(), vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: primary, PrefixCount: 1})
	w.check(err)
	prefix := given.Prefixes[0]
	w.start()
	on := map[netip.Addr]*pod{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if p := w.add(name); prefix.Contains(p.addr) {
			on[p.addr] = p
		}
	}
	if len(on) < 2 { // the two ENIs have three other places
		t.Fatalf("%d of 6 pods have an address of %s", len(on), prefix)
	}
	for _, p := range on {
		w.reaches(p, ec2Addr+":80")
	}
	w.kill()
	w.start()
	for _, p := range on {
		w.reaches(p, ec2Addr+":80")
		w.check(w.cniCheck(p))
	}
	if stored, _ := w.model.ENI(primary); !slices.Contains(stored.Prefixes, prefix) {
		t.Errorf("%s was given back", prefix)
	}
	for _, p := range on {
		w.del(p)
	}
}
