package ipamd_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// These tests replay public reports about what others do at EC2 (e2e/fieldcases/cases.md, B21 to B24 and B48): the whole daemon
// finds out by itself.

// reading is how long a daemon at rest may take to see what others did at EC2: it looks at the metadata each minute.
const reading = 5 * time.Minute

// awaitFor is await with a limit of its own.
func (w *world) awaitFor(limit time.Duration, what string, met func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !met(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// held are the addresses that EC2 has on the node's attached ENIs, their own left out.
func (w *world) held() []netip.Addr {
	w.t.Helper()
	var list []netip.Addr
	for _, eni := range w.model.InstanceENIs(w.instance.ID) {
		list = append(list, eni.Secondary...)
	}
	return list
}

// onDevice is the node's ENI at a device number.
func (w *world) onDevice(device int) vpc.ENI {
	w.t.Helper()
	for _, eni := range w.model.InstanceENIs(w.instance.ID) {
		if eni.Attachment.Device == device {
			return eni
		}
	}
	w.t.Fatalf("no ENI at device %d", device)
	return vpc.ENI{}
}

// Somebody detaches and deletes an ENI that pods use.
func TestB24AddressesOfAnENIThatSomebodyDetachedAreNotGivenOut(t *testing.T) {
	t.Parallel()
	w := newFieldWorld(t, 2, 3, "MINIMUM_IP_TARGET=4")
	w.start()
	first, second, cut := w.add("first"), w.add("second"), w.add("cut")
	w.await("a free address beside the third pod's", func() bool { return w.metric("awscni_total_ip_addresses") == 4 })
	gone := w.onDevice(1)
	if !slices.Contains(gone.Secondary, cut.addr) {
		t.Fatalf("%s is not on %s: %v", cut.addr, gone.ID, gone.Secondary)
	}
	w.check(w.model.DetachNetworkInterface(time.Now(), vpc.DetachNetworkInterfaceInput{AttachmentID: gone.Attachment.ID}))
	w.await("the ENI can be deleted", func() bool { return w.model.DeleteNetworkInterface(time.Now(), gone.ID) == nil })

	w.awaitFor(reading, "the pod is named", func() bool {
		return w.logged("level=ERROR", "not ours at EC2 any more", "default/cut", cut.addr.String(), gone.ID)
	})
	for _, p := range []*pod{first, second} {
		w.check(w.cniCheck(p))
		w.reaches(p, ec2Addr+":80")
	}
	next := w.sandbox("next")
	w.awaitFor(reading, "a pod starts on another ENI", func() bool { return w.tryAdd(next) == nil })
	if !slices.Contains(w.held(), next.addr) || next.addr == cut.addr {
		t.Errorf("given %s, EC2 has %v on the node and %s is the cut-off pod's", next.addr, w.held(), cut.addr)
	}
	w.reaches(next, ec2Addr+":80")
	w.del(cut)
	w.await("three pods are left", func() bool { return w.metric(assigned) == 3 })
}

// A VPC gains a CIDR while pods run on both ENIs: they reach it with their own addresses.
func TestB48CIDRThatTheVPCGainsIsInsideForPodsThatRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	pods := []*pod{w.add("a"), w.add("b"), w.add("c")}
	gained := netip.MustParsePrefix("10.64.0.0/16")
	network, err := w.model.AddCIDR(w.instance.VPCID, gained)
	w.check(err)
	subnet, err := w.model.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.64.1.0/24")})
	w.check(err)
	const address = "10.64.1.20"
	w.check(w.model.AddService(vpc.Service{Name: "late", Addr: netip.MustParseAddr(address), SubnetID: subnet.ID}))
	place := filepath.Join(w.dir, "netns", "late")
	w.await("namespace of the new address", func() bool { _, err := os.Stat(place); return err == nil && w.plane.Sync() == nil })
	late := w.open("late")
	t.Cleanup(func() { _ = late.Close() })
	listener, err := late.Listen(t.Context(), "tcp", address+":80")
	w.check(err)
	t.Cleanup(func() { _ = listener.Close() })

	w.awaitFor(reading, "the kernel has the new CIDR", func() bool { return strings.Contains(strings.Join(w.view().Kernel, "\n"), gained.String()) })
	for _, p := range pods {
		w.reaches(p, address+":80")
		conn, err := listener.Accept()
		w.check(err)
		if from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); from != p.addr {
			t.Errorf("%s comes as %s", p.addr, from)
		}
		_ = conn.Close()
	}
	if said := fmt.Sprint(w.view().Warnings); said != "[]" {
		t.Errorf("warnings: %s", said)
	}
}
