package dataplane_test

import (
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// sendTagged puts an echo request of node a to node b on a link, under a tag of a kind, and gives how many frames the counter for
// tags has seen since; it waits for at least so many.
func (l *lab) sendTagged(link string, kind, tag uint16, atLeast uint64) uint64 {
	l.t.Helper()
	a := l.ns("node-a")
	h := must(a.Netlink())(l.t)
	defer h.Close()
	out := must(h.LinkByName(link))(l.t)
	var gateway net.HardwareAddr
	for _, n := range must(h.NeighList(0, unix.AF_INET))(l.t) {
		if n.IP.Equal(gatewayA.AsSlice()) {
			gateway = n.HardwareAddr
		}
	}
	p := vpc.Packet{Src: addrA, Dst: addrB, Protocol: vpc.ProtoICMP, SrcPort: 8, ID: 7}
	plain := frame(p, out.Attrs().HardwareAddr, gateway, []byte("tagged"))
	header := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), tag)
	before := l.counter(dataplane.DropVLAN)
	l.check(unix.Sendto(l.packetSocket(a, unix.ETH_P_IP), slices.Insert(plain, 12, header...), 0, &unix.SockaddrLinklayer{Ifindex: out.Attrs().Index, Halen: 6}))
	for deadline := time.Now().Add(patience); l.counter(dataplane.DropVLAN) < before+atLeast && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	return l.counter(dataplane.DropVLAN) - before
}

func TestUnknownTagsAreCounted(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	branch, _ := l.trunk()
	l.answers(echo{from: l.ns("node-a"), dst: addrB}) // node a has learned its gateway
	h := must(l.ns("node-a").Netlink())(t)
	defer h.Close()
	l.check(h.LinkSetUp(must(h.LinkByName("eth1"))(t)))
	want := func(what string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d frames counted, want %d", what, got, want)
		}
	}
	want("a tag that no branch has", l.sendTagged("eth1", unix.ETH_P_8021Q, 9, 1), 1)
	want("a tag on an ENI that is no trunk", l.sendTagged("eth0", unix.ETH_P_8021Q, 7, 1), 1)
	want("a tag of the provider's", l.sendTagged("eth1", unix.ETH_P_8021AD, 7, 1), 1)
	before := l.counter(dataplane.DropVLAN)
	l.sendTagged("eth0", unix.ETH_P_8021Q, 5<<13, 0)
	l.sendTagged("eth1", unix.ETH_P_8021Q, 7, 0)
	l.sendTagged("eth1", unix.ETH_P_8021Q, 9, 1) // by now the others would have been counted
	want("a priority without a VLAN, a branch's tag, and one of nobody", l.counter(dataplane.DropVLAN)-before, 1)
	// A branch that goes takes its tag along.
	var association string
	for _, a := range must(l.model.DescribeTrunkInterfaceAssociations(nil))(t) {
		if a.BranchID == branch.ID {
			association = a.ID
		}
	}
	l.check(l.model.DisassociateTrunkInterface(l.now, association, ""))
	l.sync()
	want("the tag of a branch that has gone", l.sendTagged("eth1", unix.ETH_P_8021Q, 7, 1), 1)
}
