package hostnet

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Names within the nftables table.
const (
	setInside  = "vpc"         // destinations that need no translation: the VPC's CIDRs
	setOwn     = "own"         // all addresses of the ENIs that pods have or may have
	mapSource  = "eni_of"      // pod's address -> chain that marks for its ENI
	mapArrival = "in_eni"      // ENI's link -> chain that notes it in the connection's mark
	mapMark    = "eni_of_mark" // noted ENI -> chain that marks for it

	chainArrive = "arrive"
	chainLeave  = "leave"
	chainSNAT   = "snat"
	chainSpare  = "unclaimed"
)

func chainUseENI(device int) string  { return fmt.Sprintf("use_eni%d", device) }
func chainCameENI(device int) string { return fmt.Sprintf("came_eni%d", device) }

// eniMark is the mark of the ENI at a device index; its table is tablePods plus that.
func eniMark(device int) int { return device + 1 }

// Desired is the state that the kernel should have: a function of the settings, of what the pool wants and of the links
// that are there (names: ENI id to link name). ENIs without a link are left out, with their addresses: a mark that leads to
// an empty table would lose packets silently.
func Desired(cfg Config, want pool.HostState, names map[string]string) State {
	var there []pool.HostENI
	for _, eni := range want.ENIs {
		if _, ok := names[eni.ID]; ok && usable(eni) {
			there = append(there, eni)
		}
	}
	slices.SortFunc(there, func(a, b pool.HostENI) int { return cmp.Compare(a.Device, b.Device) })

	s := State{Forwarding: true, Rules: []Rule{{Priority: priorityPods, Table: tablePods}}}
	if cfg.NodePort || !cfg.ExternalSNAT {
		s.Rules = append(s.Rules, Rule{Priority: priorityMain, Mark: markMain, Mask: markMain, Table: tableMain})
	}
	for _, eni := range there {
		name := names[eni.ID]
		s.Links = append(s.Links, Link{Name: name, Up: true, MTU: cfg.MTU, RPFilter: rpFilterLoose})
		if eni.Device == 0 {
			continue // the primary ENI's address and routes are the image's, in the main table
		}
		mark := eniMark(eni.Device)
		s.Addrs = append(s.Addrs, Address{Link: name, Addr: eni.Primary})
		s.Rules = append(s.Rules,
			Rule{Priority: priorityMark + mark, Mark: uint32(mark), Mask: markENIMask, Table: tablePods + mark},
			Rule{Priority: prioritySource + mark, From: eni.Primary, Table: tablePods + mark})
		s.Routes = append(s.Routes, Route{Table: tablePods + mark, Dst: everywhere(), Via: gateway(eni.SubnetCIDR), Link: name, Onlink: true})
	}
	s.NFT = desiredTable(cfg, want, there, names)
	s.sort()
	return s
}

// usable tells whether an ENI can be given a mark and a table: IPv4, and a device index that fits the mark's bits.
func usable(eni pool.HostENI) bool {
	return eni.Device >= 0 && eni.Device <= maxDevice && eni.Primary.Is4() && (eni.Device == 0 || eni.SubnetCIDR.Addr().Is4())
}

func everywhere() netip.Prefix { return netip.PrefixFrom(netip.IPv4Unspecified(), 0) }

// gateway is a subnet's router: its first address + 1 (VPC User Guide, "Subnet sizing").
func gateway(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// sort puts every list in the order that State promises.
func (s *State) sort() {
	slices.SortFunc(s.Links, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Addrs, func(a, b Address) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Compare(b.Addr))
	})
	slices.SortFunc(s.Rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.String(), b.String()))
	})
	slices.SortFunc(s.Routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.String(), b.String()))
	})
	slices.SortFunc(s.Pods, func(a, b pool.PodRoute) int { return a.Addr.Compare(b.Addr) })
	if s.NFT == nil {
		return
	}
	slices.SortFunc(s.NFT.Sets, func(a, b Set) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.NFT.Chains, func(a, b Chain) int { return cmp.Compare(a.Name, b.Name) })
	for i := range s.NFT.Sets {
		s.NFT.Sets[i].sort()
	}
}

// sort orders elements by the bytes of their keys. Keys are parsed once each: there may be hundreds, and every Apply sorts.
func (s *Set) sort() {
	type keyed struct {
		key []byte
		Element
	}
	list := make([]keyed, len(s.Elements))
	for i, e := range s.Elements {
		key, err := s.Type.key(e.Key)
		if err != nil {
			key = nil // found, and of another hand: first, by its text
		}
		list[i] = keyed{key, e}
	}
	slices.SortFunc(list, func(a, b keyed) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Goto, b.Goto))
	})
	for i := range list {
		s.Elements[i] = list[i].Element
	}
}

// inside is the smallest list of prefixes that covers the VPC's CIDRs and the ENIs' subnets (a subnet's CIDR may be known
// before the VPC's new one is).
func inside(want pool.HostState) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range want.VPCCIDRs {
		if p.Addr().Is4() {
			all = append(all, p.Masked())
		}
	}
	for _, eni := range want.ENIs {
		if eni.SubnetCIDR.Addr().Is4() {
			all = append(all, eni.SubnetCIDR.Masked())
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, p := range all {
		if n := len(kept); n > 0 && kept[n-1].Contains(p.Addr()) {
			continue // sorted: the one before begins no later, and is no shorter where both begin at once
		}
		kept = append(kept, p)
	}
	return kept
}
