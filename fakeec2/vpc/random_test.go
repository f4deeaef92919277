package vpc_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// ranges are lags that are drawn, so that views overtake each other.
var ranges = vpc.Lags{
	Create: vpc.Range{Max: time.Second}, Attach: vpc.Range{Min: time.Second, Max: 5 * time.Second}, Link: vpc.Range{Max: 9 * time.Second},
	Detach: vpc.Range{Max: 8 * time.Second}, Describe: vpc.Range{Max: 5 * time.Second}, Count: vpc.Range{Max: 20 * time.Second},
	MetadataMAC: vpc.Range{Max: 10 * time.Second}, MetadataLeaves: vpc.Range{Max: 3 * time.Second}, MetadataAssign: vpc.Range{Max: 30 * time.Second},
	MetadataUnassign: vpc.Range{Max: 60 * time.Second}, MetadataGone: vpc.Range{Max: 60 * time.Second}, MetadataBare: vpc.Range{Max: 60 * time.Second},
}

// walk draws operations from a seed, legal and illegal ones, and gives a transcript of what happened.
func walk(t *testing.T, seed uint64, steps int) string {
	w := newWorld(t, vpc.Options{Seed: seed, Lags: &ranges})
	r := rand.New(rand.NewPCG(seed, 99))
	nodes := []vpc.Instance{w.node, w.launch("toy"), w.launch("m4.large"), w.launch("m5.large")}
	var log strings.Builder
	for range steps {
		if r.IntN(3) == 0 {
			w.now = w.now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
		node := r.IntN(len(nodes))
		what, err := w.draw(r, nodes[node])
		fmt.Fprintf(&log, "%s %s %s\n", w.now.Sub(start), what, code(err))
		if i, there := w.Instance(nodes[node].ID); !there || i.State == vpc.Terminated {
			nodes[node] = must(w.Launch(w.now, vpc.LaunchInput{Type: "t3.medium", SubnetID: w.roomy.ID, PredictableNames: true}))
		}
		if err := w.Check(); err != nil {
			t.Fatalf("seed %d: %v after:\n%s", seed, err, log.String())
		}
	}
	events, _ := w.Events(0)
	log.Write(must(json.Marshal([]any{events, w.ENIs(), w.Instances()})))
	return log.String()
}

// draw carries out one random operation.
func (w *world) draw(r *rand.Rand, node vpc.Instance) (string, error) {
	enis := w.ENIs()
	e := enis[r.IntN(len(enis))]
	subnet := []vpc.Subnet{w.roomy, w.tiny, w.otherZone}[r.IntN(3)]
	addr := subnet.CIDR.Addr()
	for range r.IntN(20) {
		addr = addr.Next()
	}
	switch r.IntN(16) {
	case 10, 11, 12, 13:
		return w.drawPrefixes(r, e)
	case 14:
		return w.drawTrunk(r, e, node)
	case 0, 1:
		got, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: subnet.ID, SecondaryCount: r.IntN(5)})
		return "create " + got.ID + fmt.Sprint(got.Addresses()), err
	case 2:
		got, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: subnet.ID, Primary: addr, Secondary: []netip.Addr{addr.Next()}})
		return "create explicitly " + got.ID, err
	case 3:
		got, err := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: node.ID, NetworkInterfaceID: e.ID, Device: r.IntN(4)})
		return "attach " + got.ID, err
	case 4:
		if e.Attachment == nil {
			return "delete " + e.ID, w.DeleteNetworkInterface(w.now, e.ID)
		}
		return "detach " + e.ID, w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: e.Attachment.ID, Force: r.IntN(2) == 0})
	case 5:
		return "delete " + e.ID, w.DeleteNetworkInterface(w.now, e.ID)
	case 6:
		got, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: r.IntN(4)})
		return fmt.Sprint("assign ", e.ID, got), err
	case 7:
		got, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{
			NetworkInterfaceID: e.ID, Addresses: []netip.Addr{addr, addr.Next()}, AllowReassignment: r.IntN(2) == 0,
		})
		return fmt.Sprint("assign explicitly ", e.ID, got), err
	case 8:
		return "unassign " + e.ID, w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{
			NetworkInterfaceID: e.ID, Addresses: e.Secondary[:r.IntN(len(e.Secondary)+1)],
		})
	}
	return w.drawInstance(r, node)
}

func (w *world) drawPrefixes(r *rand.Rand, e vpc.ENI) (string, error) {
	some := func(n int) int { return r.IntN(n + 1) }
	switch r.IntN(6) {
	case 0:
		got, err := w.AssignPrivate(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 1 + r.IntN(3)})
		return fmt.Sprint("assign prefixes ", e.ID, got), err
	case 1:
		return "unassign prefixes " + e.ID, w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{
			NetworkInterfaceID: e.ID, Prefixes: e.Prefixes[:some(len(e.Prefixes))],
		})
	case 2:
		got, err := w.AssignIpv6Addresses(w.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, Count: r.IntN(3), PrefixCount: r.IntN(2)})
		return fmt.Sprint("assign IPv6 ", e.ID, got), err
	case 3:
		got, err := w.UnassignIpv6Addresses(w.now, vpc.UnassignIpv6AddressesInput{NetworkInterfaceID: e.ID, Addresses: e.IPv6[:some(len(e.IPv6))]})
		return fmt.Sprint("unassign IPv6 ", e.ID, got), err
	case 4:
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(16 * r.IntN(16))}), 28)
		got, err := w.CreateSubnetCIDRReservation(w.now, vpc.CIDRReservation{
			SubnetID: w.roomy.ID, CIDR: block, Type: []string{vpc.ReservePrefix, vpc.ReserveExplicit}[r.IntN(2)],
		})
		return "reserve " + got.ID, err
	}
	reservations := w.CIDRReservations("")
	if len(reservations) == 0 {
		return "no reservation", nil
	}
	id := reservations[r.IntN(len(reservations))].ID
	_, err := w.DeleteSubnetCIDRReservation(w.now, id)
	return "unreserve " + id, err
}

func (w *world) drawTrunk(r *rand.Rand, e vpc.ENI, node vpc.Instance) (string, error) {
	associations, _ := w.DescribeTrunkInterfaceAssociations(nil)
	trunks := w.SelectENIs(func(e *vpc.ENI) bool { return e.InterfaceType == vpc.TrunkInterface })
	switch {
	case len(trunks) == 0 || r.IntN(8) == 0:
		got, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, InterfaceType: vpc.TrunkInterface})
		if err == nil {
			_, _ = w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: node.ID, NetworkInterfaceID: got.ID, Device: 3})
		}
		return "trunk " + got.ID, err
	case len(associations) > 0 && r.IntN(3) == 0:
		id := associations[r.IntN(len(associations))].ID
		return "disassociate " + id, w.DisassociateTrunkInterface(w.now, id, "")
	}
	got, err := w.AssociateTrunkInterface(w.now, vpc.AssociateTrunkInterfaceInput{BranchID: e.ID, TrunkID: trunks[r.IntN(len(trunks))].ID, VLAN: 1 + r.IntN(4)})
	return "associate " + got.ID, err
}

func (w *world) drawInstance(r *rand.Rand, node vpc.Instance) (string, error) {
	switch r.IntN(8) {
	case 0:
		return "terminate " + node.ID, w.TerminateInstance(w.now, node.ID)
	case 1, 2:
		return "stop " + node.ID, w.StopInstance(w.now, node.ID)
	case 3, 4, 5:
		return "start " + node.ID, w.StartInstance(w.now, node.ID)
	}
	return "tag " + node.ID, w.CreateTags(w.now, []string{node.ID}, map[string]string{"n": fmt.Sprint(r.IntN(100))})
}

func TestRandomOperationsKeepTheBooks(t *testing.T) {
	var all strings.Builder
	for seed := range uint64(60) {
		all.WriteString(walk(t, seed, 250))
	}
	for _, kind := range []string{ // a walk that never gets there proves nothing
		vpc.InstanceStopped, vpc.InstanceStarted, vpc.InstanceTerminated, vpc.ENIAttached, vpc.ENIDetached, vpc.ENIDeleted,
		vpc.LinkAdded, vpc.LinkRenamed, vpc.LinkRemoved, vpc.AddressAssigned, vpc.AddressUnassigned, vpc.Tagged, vpc.PrefixAssigned, vpc.PrefixUnassigned,
		vpc.BranchAssociated, vpc.BranchDisassociated, vpc.ReservationAdded, vpc.ReservationDeleted, vpc.CodeCIDRBlocks,
		vpc.CodeSubnetFull, vpc.CodeAttachmentLimit, vpc.CodePrivateIPLimit, vpc.CodeIPInUse, vpc.CodeIncorrectState, vpc.CodeENIInUse,
	} {
		if !strings.Contains(all.String(), kind) {
			t.Errorf("no walk came to %s", kind)
		}
	}
}

func TestEqualSeedsGiveEqualWorlds(t *testing.T) {
	for seed := range uint64(5) {
		if a, b := walk(t, seed, 200), walk(t, seed, 200); a != b {
			t.Fatalf("seed %d gave two histories", seed)
		}
	}
	if walk(t, 1, 50) == walk(t, 2, 50) {
		t.Fatal("two seeds gave one history")
	}
}

func BenchmarkAssignUnassign(b *testing.B) {
	w := newWorld(&testing.T{}, vpc.Options{})
	e := w.InstanceENIs(w.node.ID)[0]
	for b.Loop() {
		got := must(w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 5}))
		if err := w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: got}); err != nil {
			b.Fatal(err)
		}
		w.now = w.now.Add(time.Second)
	}
}

// BenchmarkDescribeByID: the cost of reading one ENI must not depend on how many there are.
func BenchmarkDescribeByID(b *testing.B) {
	for _, count := range []int{10, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			v := vpc.New(vpc.Options{ENIQuota: count})
			n := must(v.AddVPC(vpc.Network{CIDRs: prefixes("10.0.0.0/16")}))
			s := must(v.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.0.0/16")}))
			var e vpc.ENI
			for range count {
				e = must(v.CreateNetworkInterface(start, vpc.CreateNetworkInterfaceInput{SubnetID: s.ID, SecondaryCount: 5}))
			}
			ids := []string{e.ID}
			for b.Loop() {
				if _, err := v.DescribeNetworkInterfaces(ids); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
