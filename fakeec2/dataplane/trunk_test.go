package dataplane_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// trunk gives node a a trunk with two branches, under the tags 7 and 8, and gives the branches.
func (l *lab) trunk() (branch, shut vpc.ENI) {
	l.t.Helper()
	e := must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: l.a.SubnetID, InterfaceType: vpc.TrunkInterface}))(l.t)
	must(l.model.AttachNetworkInterface(l.now, vpc.AttachNetworkInterfaceInput{InstanceID: l.a.ID, NetworkInterfaceID: e.ID, Device: 1}))(l.t)
	l.advance(3 * time.Second)
	branch = must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: l.a.SubnetID}))(l.t)
	shut = must(l.model.CreateNetworkInterface(l.now, vpc.CreateNetworkInterfaceInput{SubnetID: l.a.SubnetID, Groups: []string{l.group("shut", outAll)}}))(l.t)
	for vlan, b := range map[int]vpc.ENI{7: branch, 8: shut} {
		must(l.model.AssociateTrunkInterface(l.now, vpc.AssociateTrunkInterfaceInput{BranchID: b.ID, TrunkID: e.ID, VLAN: vlan}))(l.t)
	}
	l.sync()
	return branch, shut
}

func TestWorldWithTrunksStandsOnEveryKernel(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	branch, _ := l.trunk()
	a := l.ns("node-a")
	l.answers(echo{from: a, dst: addrB})
	h := must(a.Netlink())(t)
	defer h.Close()
	l.check(h.LinkSetUp(must(h.LinkByName("eth1"))(t)))
	// Untagged frames are the trunk's own, so a branch's address is a foreign source there.
	l.check(netlab.AddAddr(a, "lo", netip.PrefixFrom(branch.Primary, 32)))
	l.check(netlab.AddRoute(a, netlab.Route{Dst: netip.PrefixFrom(addrB, 32), Via: gatewayA, Link: "eth1", Onlink: true}))
	l.dropped(echo{from: a, src: branch.Primary, dst: addrB}, dataplane.DropSource)
}

func TestTrunkCarriesItsBranches(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	branch, shut := l.trunk()
	a, b := l.ns("node-a"), l.ns("node-b")
	h := must(a.Netlink())(t)
	defer h.Close()
	l.check(h.LinkSetUp(must(h.LinkByName("eth1"))(t)))
	for vlan, e := range map[int]vpc.ENI{7: branch, 8: shut} {
		name := map[int]string{7: "vlan7", 8: "vlan8"}[vlan]
		err := netlab.VLAN(a, "eth1", vlan, netlab.End{Name: name, MAC: must(net.ParseMAC(e.MAC))(t), MTU: 9001})
		if errors.Is(err, syscall.EOPNOTSUPP) {
			t.Skip("this kernel has no 802.1Q VLANs (CONFIG_VLAN_8021Q); vpc's TestTrunkCarriesItsBranches holds the law without a kernel")
		}
		l.check(err)
		l.check(netlab.AddAddr(a, name, netip.PrefixFrom(e.Primary, 32)))
		l.check(netlab.AddRoute(a, netlab.Route{Via: gatewayA, Link: name, Onlink: true, Table: 100 + vlan}))
		rule := netlink.NewRule()
		rule.Src, rule.Table, rule.Priority = ipNetOf(e.Primary), 100+vlan, 100
		l.check(h.RuleAdd(rule))
		l.check(a.SetSysctl("net.ipv4.conf."+name+".rp_filter", "0"))
	}
	l.check(a.SetSysctl("net.ipv4.conf.all.rp_filter", "0"))
	l.answers(echo{from: a, src: branch.Primary, dst: addrB, link: "vlan7"})
	l.answers(echo{from: b, dst: branch.Primary})
	l.dropped(echo{from: b, dst: shut.Primary}, dataplane.DropIngress)
	l.check(netlab.AddRoute(a, netlab.Route{Dst: netip.PrefixFrom(addrB, 32), Via: gatewayA, Link: "vlan8", Onlink: true, Table: 107}))
	l.dropped(echo{from: a, src: branch.Primary, dst: addrB, link: "vlan8"}, dataplane.DropSource)
}
