package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// observe reads our part of the kernel. The links and foreign addresses that it looks at are those that the wanted state
// speaks of.
func (k *kernel) observe(present []presentLink, want State) (State, error) {
	var s State
	forward, err := readSysctl(forwardingFile)
	if err != nil {
		return State{}, err
	}
	s.Forwarding = forward != 0
	s.Veths = veths(k.vethPrefix, present)
	if err := s.observeLinks(present, want); err != nil {
		return State{}, err
	}
	k.foreign = nil
	rules, err := dump("rules", func() ([]netlink.Rule, error) { return k.nl.RuleList(unix.AF_INET) })
	if err != nil {
		return State{}, err
	}
	for _, r := range rules {
		if ours(r) {
			s.Rules = append(s.Rules, foundRule(r))
		} else {
			k.foreign = append(k.foreign, r)
		}
	}
	filter := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: protocol}
	routes, err := dump("routes", func() ([]netlink.Route, error) {
		return k.nl.RouteListFiltered(unix.AF_INET, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return State{}, err
	}
	for _, r := range routes {
		s.addRoute(k.foundRoute(r))
	}
	if s.Inherited, err = k.inherited(present); err != nil {
		return State{}, err
	}
	if s.NFT, err = k.observeTable(); err != nil {
		return State{}, err
	}
	s.sort()
	return s, nil
}

// observeLinks reads the wanted links, our labelled addresses anywhere, and foreign addresses that serve in their place.
func (s *State) observeLinks(present []presentLink, want State) error {
	for _, l := range present {
		if slices.ContainsFunc(want.Links, func(w Link) bool { return w.Name == l.name }) {
			filter, err := readSysctl(rpFilterFile(l.name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // the link went away since it was listed
			}
			if err != nil {
				return err
			}
			s.Links = append(s.Links, Link{Name: l.name, Up: l.up, Running: l.running, MTU: l.mtu, RPFilter: filter})
		}
		for _, a := range l.addrs {
			foreign := a.label != l.name+labelSuffix
			found := Address{Link: l.name, Addr: a.prefix.Addr(), Foreign: foreign}
			if !foreign || slices.Contains(want.Addrs, Address{Link: l.name, Addr: found.Addr}) {
				s.Addrs = append(s.Addrs, found)
			}
		}
	}
	return nil
}

// ours tells our rules from all others: by their protocol, and their priority.
func ours(r netlink.Rule) bool {
	return r.Protocol == protocol && r.Priority >= priorityPods && r.Priority <= prioritySource+int(markENIMask)
}

func foundRule(r netlink.Rule) Rule {
	found := Rule{Priority: r.Priority, Mark: r.Mark, Table: r.Table}
	if r.Mask != nil {
		found.Mask = *r.Mask
	}
	if r.Src != nil {
		addr, _ := netip.AddrFromSlice(r.Src.IP.To4())
		found.From = addr
		if bits, _ := r.Src.Mask.Size(); bits != addr.BitLen() {
			found.Odd += fmt.Sprintf(" prefix %d", bits)
		}
	}
	plain := r.Dst == nil && r.IifName == "" && r.OifName == "" && !r.Invert && r.Tos == 0 && r.Goto == -1 &&
		r.Dport == nil && r.Sport == nil && r.UIDRange == nil && r.IPProto == 0 && r.SuppressPrefixlen == -1
	if !plain {
		found.Odd += " with other selectors"
	}
	return found
}

// foundRoute translates a route; its Table is 0 where the route is none of ours.
func (k *kernel) foundRoute(r netlink.Route) Route {
	if r.Table < tablePods || r.Table > tableLast {
		return Route{}
	}
	found := Route{Table: r.Table, Dst: everywhere(), Link: k.name[r.LinkIndex], Metric: r.Priority}
	found.Onlink = r.Flags&int(netlink.FLAG_ONLINK) != 0
	if r.Dst != nil {
		addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		found.Dst = netip.PrefixFrom(addr, bits)
	}
	if r.Gw != nil {
		found.Via, _ = netip.AddrFromSlice(r.Gw.To4())
	}
	return found
}

// addRoute sorts a found route in. A pod's route whose link went away between two dumps is no pod's any more.
func (s *State) addRoute(r Route) {
	switch {
	case r.Table == 0:
	case r.Table != tablePods:
		s.Routes = append(s.Routes, r)
	case r.Dst.IsSingleIP() && r.Link != "":
		s.Pods = append(s.Pods, pool.PodRoute{Addr: r.Dst.Addr(), Link: r.Link})
	}
}
