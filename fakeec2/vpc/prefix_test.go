package vpc_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

func (w *world) prefixes(e vpc.ENI, count int) ([]netip.Prefix, error) {
	got, err := w.AssignPrivate(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, PrefixCount: count})
	w.check()
	return got.Prefixes, err
}

func TestPrefixesAreAlignedAndClearOfBothEnds(t *testing.T) {
	w := newWorld(t, vpc.Options{Seed: 3})
	e := w.create(w.roomy, 0) // unattached: up to 50 slots
	busy := map[netip.Prefix]bool{}
	for _, addr := range []netip.Addr{w.node.PrivateIP, e.Primary} {
		busy[netip.PrefixFrom(addr, 28).Masked()] = true
	}
	free := w.free(w.roomy)
	got, err := w.prefixes(e, 14-len(busy))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range got {
		if p.Masked() != p || p.Bits() != 28 || busy[p] || p.Contains(netip.MustParseAddr("10.0.1.0")) || p.Contains(netip.MustParseAddr("10.0.1.255")) {
			t.Errorf("%s", p)
		}
	}
	if now := w.free(w.roomy); now != free-16*len(got) {
		t.Errorf("%d prefixes took %d addresses", len(got), free-now)
	}
	if holder, ok := w.Holder(w.network.ID, got[0].Addr().Next()); !ok || holder.ID != e.ID {
		t.Error("an address inside a prefix is nobody's")
	}
}

// TestThreeWaysToBeFull: a CNI must tell them apart, and AWS gives the third one a code that says nothing.
func TestThreeWaysToBeFull(t *testing.T) {
	w := newWorld(t, vpc.Options{ReuseDelay: -1})
	e := w.create(w.roomy, 0)
	// Fragmented: one address in each block, most of the subnet free.
	for block := range 14 {
		a := netip.AddrFrom4([4]byte{10, 0, 1, byte(16*block + 20)})
		if _, held := w.Holder(w.network.ID, a); held {
			continue
		}
		must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, Primary: a}))
	}
	if _, err := w.prefixes(e, 1); code(err) != vpc.CodeCIDRBlocks || w.free(w.roomy) < 200 {
		t.Fatalf("fragmented, %d free: %v", w.free(w.roomy), err)
	}
	// Full for prefixes: fewer than 16 addresses left.
	small := w.create(w.tiny, 0)
	_, err := w.prefixes(small, 1)
	if code(err) != vpc.CodeParameterValue || err.Error() != "InvalidParameterValue: There aren't sufficient free Ipv4 addresses or prefixes" {
		t.Fatalf("fewer than 16 free: %v", err)
	}
	// Full.
	if _, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: small.ID, Count: 11}); code(err) != vpc.CodeSubnetFull {
		t.Fatalf("11 of 10: %v", err)
	}
	inferred := newWorld(t, vpc.Options{Inferred: vpc.Inferred{ShortIsBlocks: true}})
	if _, err := inferred.prefixes(inferred.create(inferred.tiny, 0), 1); code(err) != vpc.CodeCIDRBlocks {
		t.Fatalf("the other reading: %v", err)
	}
}

func TestReservationsSteerWhatIsDrawn(t *testing.T) {
	w := newWorld(t, vpc.Options{ReuseDelay: -1})
	block := netip.MustParsePrefix("10.0.1.64/27")
	kept := must(w.CreateSubnetCIDRReservation(w.now, vpc.CIDRReservation{SubnetID: w.roomy.ID, CIDR: block, Type: vpc.ReservePrefix}))
	explicit := netip.MustParsePrefix("10.0.1.128/26")
	must(w.CreateSubnetCIDRReservation(w.now, vpc.CIDRReservation{SubnetID: w.roomy.ID, CIDR: explicit, Type: vpc.ReserveExplicit}))
	if _, err := w.CreateSubnetCIDRReservation(w.now, vpc.CIDRReservation{SubnetID: w.roomy.ID, CIDR: netip.MustParsePrefix("10.0.1.64/28"), Type: vpc.ReserveExplicit}); code(err) != vpc.CodeParameterValue {
		t.Fatalf("overlapping: %v", err)
	}
	e := w.create(w.roomy, 0)
	got := must(w.prefixes(e, 2))
	if !block.Contains(got[0].Addr()) || !block.Contains(got[1].Addr()) {
		t.Fatalf("prefixes %s are not from the reservation %s", got, block)
	}
	third := must(w.prefixes(e, 1))[0]
	if block.Contains(third.Addr()) || explicit.Contains(third.Addr()) {
		t.Fatalf("third prefix %s", third)
	}
	var drawn []netip.Addr
	for {
		e, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID})
		if err != nil {
			left := 64
			if explicit.Contains(w.node.PrivateIP) { // it was there before the reservation
				left--
			}
			if code(err) != vpc.CodeSubnetFull || w.free(w.roomy) != left {
				t.Fatalf("%v with %d free", err, w.free(w.roomy))
			}
			break
		}
		drawn = append(drawn, e.Primary)
	}
	if slices.ContainsFunc(drawn, block.Contains) || slices.ContainsFunc(drawn, explicit.Contains) {
		t.Fatal("a single address was drawn from a reservation")
	}
	must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, Primary: netip.MustParseAddr("10.0.1.130")}))
	if err := w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Prefixes: got[:1]}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID}); code(err) != vpc.CodeSubnetFull {
		t.Fatalf("what a reservation got back was drawn: %v", err)
	}
	must(w.DeleteSubnetCIDRReservation(w.now, kept.ID))
	if e := w.create(w.roomy, 0); !block.Contains(e.Primary) {
		t.Fatalf("the reservation is gone, %s was drawn", e.Primary)
	}
	w.check()
}

func TestPrefixesCountAsOneSlotAndNeedNitro(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	nitro, xen := w.launch("t3.small"), w.launch("m4.large")
	e := w.InstanceENIs(nitro.ID)[0]
	must(w.prefixes(e, 3))
	if _, err := w.prefixes(e, 1); code(err) != vpc.CodePrivateIPLimit {
		t.Fatalf("fifth slot of four: %v", err)
	}
	if _, err := w.prefixes(w.InstanceENIs(xen.ID)[0], 1); code(err) != vpc.CodeParameterCombination {
		t.Fatalf("prefix on Xen: %v", err)
	}
	late := must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, PrefixCount: 1}))
	if _, err := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: xen.ID, NetworkInterfaceID: late.ID, Device: 1}); code(err) != vpc.CodeParameterCombination {
		t.Fatalf("attach with a prefix to Xen: %v", err)
	}
	metal := must(w.Launch(w.now, vpc.LaunchInput{Type: "m5.metal", SubnetID: w.roomy.ID}))
	must(w.prefixes(w.InstanceENIs(metal.ID)[0], 1))
}

func TestIPv6(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	e := must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, IPv6Count: 2, EnablePrimaryIPv6: true}))
	if len(e.IPv6) != 2 || e.PrimaryIPv6 != e.IPv6[0] || !w.roomy.IPv6CIDR.Contains(e.IPv6[0]) {
		t.Fatalf("%+v", e)
	}
	got := must(w.AssignIpv6Addresses(w.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 2}))
	if len(got.Prefixes) != 2 || got.Prefixes[0].Bits() != 80 || len(got.Addresses) != 0 {
		t.Fatalf("%+v", got)
	}
	if holder, _ := w.Holder(w.network.ID, got.Prefixes[0].Addr().Next()); holder.ID != e.ID {
		t.Fatal("an address inside a /80 is nobody's")
	}
	refusals := []struct {
		name, want string
		do         func() error
	}{
		{"primary IPv6", vpc.CodeParameterValue, func() error {
			_, err := w.UnassignIpv6Addresses(w.now, vpc.UnassignIpv6AddressesInput{NetworkInterfaceID: e.ID, Addresses: []netip.Addr{e.PrimaryIPv6}})
			return err
		}},
		{"address inside a held prefix", vpc.CodeIPInUse, func() error {
			_, err := w.AssignIpv6Addresses(w.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, Addresses: []netip.Addr{got.Prefixes[0].Addr().Next()}})
			return err
		}},
		{"a subnet without IPv6", vpc.CodeParameterValue, func() error {
			_, err := w.AssignIpv6Addresses(w.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: w.create(w.tiny, 0).ID, Count: 1})
			return err
		}},
		{"fully reserved", vpc.CodeCIDRBlocks, func() error {
			must(w.CreateSubnetCIDRReservation(w.now, vpc.CIDRReservation{SubnetID: w.roomy.ID, CIDR: w.roomy.IPv6CIDR, Type: vpc.ReserveExplicit}))
			_, err := w.AssignIpv6Addresses(w.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, PrefixCount: 1})
			return err
		}},
		{"fully reserved, single", vpc.CodeSubnetFull, func() error {
			_, err := w.AssignIpv6Addresses(w.now, vpc.AssignIpv6AddressesInput{NetworkInterfaceID: e.ID, Count: 1})
			return err
		}},
	}
	for _, r := range refusals {
		if err := r.do(); code(err) != r.want {
			t.Errorf("%s: %v, want %s", r.name, err, r.want)
		}
		w.check()
	}
	back := must(w.UnassignIpv6Addresses(w.now, vpc.UnassignIpv6AddressesInput{NetworkInterfaceID: e.ID, Prefixes: got.Prefixes}))
	if len(back.Prefixes) != 2 || len(w.eni(e.ID).IPv6Prefixes) != 0 {
		t.Fatalf("%+v", back)
	}
	w.check()
}

func TestIPv6OnlySubnet(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	only := must(w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, IPv6CIDR: netip.MustParsePrefix("2600:1f14:0:102::/64")}))
	i := must(w.Launch(w.now, vpc.LaunchInput{Type: "m5.large", SubnetID: only.ID}))
	e := w.InstanceENIs(i.ID)[0]
	if e.Primary.IsValid() || len(e.IPv6) != 1 || len(e.Addresses()) != 0 {
		t.Fatalf("%+v", e)
	}
	if _, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: only.ID, SecondaryCount: 1}); code(err) != vpc.CodeParameterValue {
		t.Fatalf("IPv4 in an IPv6-only subnet: %v", err)
	}
	w.pass(time.Minute)
}
