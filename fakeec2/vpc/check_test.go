package vpc

import (
	"net/netip"
	"testing"
	"time"
)

// TestCheckSeesBrokenBooks breaks one law at a time from the inside: a checker that finds nothing proves nothing.
func TestCheckSeesBrokenBooks(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := []struct {
		name   string
		breaks func(v *VPC, i *instance, e *ENI)
	}{
		{"an address on two ENIs", func(_ *VPC, i *instance, e *ENI) { e.Secondary = []netip.Addr{i.PrivateIP} }},
		{"an address given back while held", func(v *VPC, _ *instance, e *ENI) { v.subnets[e.SubnetID].release(e.Primary, now, 0) }},
		{"an address held by nobody", func(_ *VPC, _ *instance, e *ENI) { e.Secondary = nil }},
		{"an address lost", func(v *VPC, _ *instance, e *ENI) { s := v.subnets[e.SubnetID]; s.leave(s.free[0]) }},
		{"a reserved address free", func(v *VPC, _ *instance, e *ENI) { v.subnets[e.SubnetID].giveBack(0) }},
		{"lists out of order", func(_ *VPC, _ *instance, e *ENI) { e.Secondary[0], e.Secondary[1] = e.Secondary[1], e.Secondary[0] }},
		{"a MAC twice", func(v *VPC, i *instance, e *ENI) { e.MAC = v.enis[i.enis[0]].MAC }},
		{"a device index twice", func(_ *VPC, _ *instance, e *ENI) { e.Attachment.Device = 0 }},
		{"more addresses than allowed", func(_ *VPC, i *instance, _ *ENI) { i.Limits.IPv4 = 2 }},
		{"more ENIs than allowed", func(_ *VPC, i *instance, _ *ENI) { i.Limits.ENIs = 1 }},
		{"more ENIs on a card than allowed", func(_ *VPC, i *instance, _ *ENI) { i.Limits.Cards[0] = 1 }},
		{"an ENI that its instance does not list", func(_ *VPC, i *instance, _ *ENI) { i.enis = i.enis[:1] }},
		{"an instance without its primary", func(_ *VPC, i *instance, _ *ENI) { i.PrivateIP = netip.MustParseAddr("10.0.0.99") }},
		{"an attachment that nothing notes", func(v *VPC, _ *instance, e *ENI) { delete(v.attachments, e.Attachment.ID) }},
		{"attached but available", func(_ *VPC, _ *instance, e *ENI) { e.Status = Available }},
		{"in use but not attached", func(_ *VPC, _ *instance, e *ENI) { e.Attachment = nil }},
		{"attaching for ever", func(v *VPC, _ *instance, _ *ENI) { v.due = nil }},
		{"a step that is overdue", func(v *VPC, _ *instance, _ *ENI) { v.now = now.Add(time.Hour) }},
		{"a prefix that the book does not know", func(_ *VPC, _ *instance, e *ENI) { e.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.32/28")} }},
		{"a prefix held by nobody", func(v *VPC, _ *instance, e *ENI) {
			v.subnets[e.SubnetID].holdBlock(netip.MustParsePrefix("10.0.0.208/28"), e.ID)
		}},
		{"an IPv6 address that the book does not know", func(_ *VPC, _ *instance, e *ENI) { e.IPv6 = []netip.Addr{netip.MustParseAddr("2600::5")} }},
		{"usage not noted", func(v *VPC, _ *instance, e *ENI) { v.usage[e.VPCID]++ }},
		{"a branch without association", func(_ *VPC, _ *instance, e *ENI) { e.TrunkID = e.ID }},
		{"a description that is behind for ever", func(v *VPC, _ *instance, e *ENI) { v.enis[e.ID] = edit(e) }},
		{"metadata that are behind for ever", func(_ *VPC, i *instance, e *ENI) { i.meta[e.ID].items = nil }},
		{"a count that is behind for ever", func(v *VPC, _ *instance, e *ENI) { c := v.subnets[e.SubnetID].counts; c[len(c)-1].free++ }},
		{"a link in a stopped guest", func(_ *VPC, i *instance, _ *ENI) { i.State = Stopped }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := New(Options{})
			n, _ := v.AddVPC(Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
			s, _ := v.AddSubnet(Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.0.0/24")})
			i, _ := v.Launch(now, LaunchInput{Type: "t3.small", SubnetID: s.ID})
			e, _ := v.CreateNetworkInterface(now, CreateNetworkInterfaceInput{SubnetID: s.ID, SecondaryCount: 2})
			if _, err := v.AttachNetworkInterface(now, AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: e.ID, Device: 1}); err != nil {
				t.Fatal(err)
			}
			if err := v.Check(); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.breaks(v, v.instances[i.ID], v.enis[e.ID])
			if err := v.Check(); err == nil {
				t.Fatal("Check sees nothing")
			}
		})
	}
}
