package vpc

import (
	"net/netip"
	"testing"
	"time"
)

// The kernel's twin of this law is tested in dataplane; trunks are here alone, because not every kernel has VLANs.
func TestTrunkCarriesItsBranches(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	v := New(Options{Seed: 1, AttachDelay: -1, LinkDelay: -1})
	n, err := v.AddVPC(Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	fatal(t, err)
	s, err := v.AddSubnet(Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	fatal(t, err)
	closed, err := v.AddSecurityGroup(SecurityGroup{VPCID: n.ID, Name: "closed"})
	fatal(t, err)
	a, err := v.Launch(now, LaunchInput{Type: "m5.large", SubnetID: s.ID})
	fatal(t, err)
	b, err := v.Launch(now, LaunchInput{Type: "m5.large", SubnetID: s.ID})
	fatal(t, err)
	trunk, err := v.CreateNetworkInterface(now, CreateNetworkInterfaceInput{SubnetID: s.ID, InterfaceType: TrunkInterface})
	fatal(t, err)
	branch, err := v.CreateNetworkInterface(now, CreateNetworkInterfaceInput{SubnetID: s.ID})
	fatal(t, err)
	strict, err := v.CreateNetworkInterface(now, CreateNetworkInterfaceInput{SubnetID: s.ID, Groups: []string{closed.ID}})
	fatal(t, err)
	_, err = v.AttachNetworkInterface(now, AttachNetworkInterfaceInput{InstanceID: a.ID, NetworkInterfaceID: trunk.ID, Device: 1})
	fatal(t, err)
	for vlan, e := range map[int]ENI{7: branch, 8: strict} {
		_, err := v.AssociateTrunkInterface(now, AssociateTrunkInterfaceInput{BranchID: e.ID, TrunkID: trunk.ID, VLAN: vlan})
		fatal(t, err)
	}
	other := v.InstanceENIs(b.ID)[0]
	f := NewFlows(v)
	for _, c := range []struct {
		name string
		p    Packet
		want Verdict
	}{
		{"a branch sends", Packet{From: trunk.ID, VLAN: 7, Src: branch.Primary, Dst: other.Primary}, Verdict{To: other.ID}},
		{"the answer bears the tag", Packet{From: other.ID, Src: other.Primary, Dst: branch.Primary}, Verdict{To: branch.ID, VLAN: 7}},
		{"branches reach each other", Packet{From: trunk.ID, VLAN: 8, Src: strict.Primary, Dst: branch.Primary}, Verdict{Drop: DropIngress}},
		{"a branch's own groups", Packet{From: other.ID, Src: other.Primary, Dst: strict.Primary}, Verdict{Drop: DropIngress}},
		{"untagged is the trunk's own", Packet{From: trunk.ID, Src: trunk.Primary, Dst: other.Primary}, Verdict{To: other.ID}},
		{"another branch's address", Packet{From: trunk.ID, VLAN: 8, Src: branch.Primary, Dst: other.Primary}, Verdict{Drop: DropSource}},
		{"the branch's address untagged", Packet{From: trunk.ID, Src: branch.Primary, Dst: other.Primary}, Verdict{Drop: DropSource}},
		{"the trunk's MAC under a tag", Packet{From: trunk.ID, VLAN: 7, MAC: trunk.MAC, Src: branch.Primary, Dst: other.Primary}, Verdict{Drop: DropSourceMAC}},
		{"a tag without branch", Packet{From: trunk.ID, VLAN: 9, Src: trunk.Primary, Dst: other.Primary}, Verdict{Drop: DropVLAN}},
		{"a tag on a plain ENI", Packet{From: other.ID, VLAN: 7, Src: other.Primary, Dst: trunk.Primary}, Verdict{Drop: DropVLAN}},
		{"a branch has no link", Packet{From: branch.ID, Src: branch.Primary, Dst: other.Primary}, Verdict{Drop: DropNoSuchLink}},
	} {
		c.p.Protocol, c.p.SrcPort, c.p.DstPort = ProtoTCP, 1000, 80
		if c.want.VLAN != 0 {
			c.p.SrcPort, c.p.DstPort = 80, 1000
		}
		if c.want.Drop == "" {
			c.want.Src, c.want.Dst = c.p.Src, c.p.Dst
		}
		if got := f.Deliver(c.p); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
