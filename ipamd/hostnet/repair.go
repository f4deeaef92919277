package hostnet

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// step is one change of the kernel. Verb and kind name it for the hook (Around) and have no variable parts; object says for
// the log what it is about.
type step struct {
	verb, kind string
	object     string
	do         func(k *kernel) error
	pod        bool // of one pod: whether it succeeds is no other's business
}

// Kinds of object.
const (
	kindSysctl  = "sysctl"
	kindLink    = "link"
	kindAddress = "address"
	kindRoute   = "route"
	kindRule    = "rule"
	kindNFT     = "nftables"

	kindNeighbour = "neighbour"
)

// Kinds are the kinds of object that can be repaired.
func Kinds() []string {
	return []string{kindAddress, kindLink, kindNFT, kindRoute, kindRule, kindSysctl}
}

func change(verb, kind, object string, do func(k *kernel) error) step {
	return step{verb: verb, kind: kind, object: object, do: do}
}

func (s step) point() string  { return "kernel " + s.verb + " " + s.kind }
func (s step) String() string { return s.verb + " " + s.object }

// difference lists what turns the found state into the wanted one. The order is that in which no packet is lost: reverse
// path filters before the first mark, the way a mark leads to before the mark, and what is obsolete last.
func difference(want, found State) []step {
	var steps []step
	if want.Forwarding && !found.Forwarding {
		steps = append(steps, change("set", kindSysctl, "net.ipv4.ip_forward", func(*kernel) error { return writeSysctl(forwardingFile, 1) }))
	}
	steps = append(steps, linkSteps(want, found)...)
	for _, a := range want.Addrs {
		if !slices.ContainsFunc(found.Addrs, a.same) {
			steps = append(steps, change("add", kindAddress, a.String(), func(k *kernel) error { return k.nl.AddrAdd(k.link(a.Link), a.wire()) }))
		}
	}
	for _, r := range missing(want.Routes, found.Routes) {
		steps = append(steps, change("set", kindRoute, r.String(), func(k *kernel) error { return k.nl.RouteReplace(k.routeWire(r)) }))
	}
	for _, r := range missing(want.Rules, found.Rules) {
		steps = append(steps, change("add", kindRule, r.String(), func(k *kernel) error { return k.nl.RuleAdd(r.wire()) }))
	}
	if !sameTable(want.NFT, found.NFT) {
		steps = append(steps, change("write", kindNFT, "nftables table", func(k *kernel) error { return k.writeTable(want.NFT, found.NFT) }))
	}
	steps = append(steps, podSteps(want, found)...)
	return append(steps, obsolete(want, found)...)
}

// obsolete lists the removal of rules, routes and addresses of ours that are not wanted. A route that was replaced is gone
// already: its destination is wanted.
func obsolete(want, found State) []step {
	var steps []step
	for _, r := range missing(found.Rules, want.Rules) {
		steps = append(steps, change("remove", kindRule, r.String(), func(k *kernel) error { return k.removeRule(r) }))
	}
	for _, r := range found.Routes {
		replaced := func(w Route) bool { return w.Table == r.Table && w.Dst == r.Dst && w.Metric == r.Metric }
		if !slices.ContainsFunc(want.Routes, replaced) {
			steps = append(steps, change("remove", kindRoute, r.String(), func(k *kernel) error { return gone(k.nl.RouteDel(k.routeWire(r))) }))
		}
	}
	for _, a := range found.Addrs {
		if !a.Foreign && !slices.ContainsFunc(want.Addrs, a.same) {
			steps = append(steps, change("remove", kindAddress, a.String(), func(k *kernel) error {
				return gone(k.nl.AddrDel(k.link(a.Link), a.wire()))
			}))
		}
	}
	return steps
}

// removal lists what takes everything of ours away: marks first, then the rules that follow them, then where those lead.
func removal(found State) []step {
	var steps []step
	if found.NFT != nil {
		steps = append(steps, change("remove", kindNFT, "nftables table", func(k *kernel) error {
			k.nft.DelTable(table())
			return gone(k.nft.Flush())
		}))
	}
	steps = append(steps, obsolete(State{}, found)...)
	for _, p := range found.Pods {
		r := Route{Table: tablePods, Dst: netip.PrefixFrom(p.Addr, p.Addr.BitLen()), Link: p.Link}
		steps = append(steps, change("remove", kindRoute, r.String(), func(k *kernel) error { return gone(k.nl.RouteDel(k.routeWire(r))) }))
	}
	return steps
}

// linkSteps repairs the ENI links: the reverse path filter first, as the link's first packet may be a reply to a pod.
func linkSteps(want, found State) []step {
	var steps []step
	for _, w := range want.Links {
		i := slices.IndexFunc(found.Links, func(f Link) bool { return f.Name == w.Name })
		if i < 0 {
			continue // went away since it was listed
		}
		f := found.Links[i]
		if f.RPFilter != w.RPFilter {
			steps = append(steps, change("set", kindSysctl, "rp_filter of "+w.Name, func(*kernel) error {
				return writeSysctl(rpFilterFile(w.Name), w.RPFilter)
			}))
		}
		if w.MTU != 0 && f.MTU != w.MTU {
			steps = append(steps, change("resize", kindLink, fmt.Sprintf("link %s to MTU %d", w.Name, w.MTU), func(k *kernel) error {
				return k.nl.LinkSetMTU(k.link(w.Name), w.MTU)
			}))
		}
		if w.Up && !f.Up {
			steps = append(steps, change("start", kindLink, "link "+w.Name, func(k *kernel) error { return k.nl.LinkSetUp(k.link(w.Name)) }))
		}
	}
	return steps
}

// same compares addresses without asking whose they are.
func (a Address) same(b Address) bool { return a.Link == b.Link && a.Addr == b.Addr }

// wire is the address as a /32, which makes no route to a subnet in the main table. A link whose name leaves no room for the
// label gets the address without: it serves, but Clean will take it for another's.
func (a Address) wire() *netlink.Addr {
	wire := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a.Addr, a.Addr.BitLen()))}
	if label := a.Link + labelSuffix; len(label) <= labelMax {
		wire.Label = label
	}
	return wire
}

func (r Rule) wire() *netlink.Rule {
	wire := netlink.NewRule()
	wire.Family, wire.Priority, wire.Table, wire.Protocol = unix.AF_INET, r.Priority, r.Table, protocol
	if r.Mask != 0 {
		wire.Mark, wire.Mask = r.Mark, &r.Mask
	}
	if r.From.IsValid() {
		wire.Src = ipNet(netip.PrefixFrom(r.From, r.From.BitLen()))
	}
	return wire
}

// removeRule removes a rule of ours. The kernel takes the first rule that has the given properties: an odd one is named by
// priority and protocol alone, which may hit a good neighbour of the same priority; the next Apply puts that back.
func (k *kernel) removeRule(r Rule) error {
	if r.Odd == "" {
		return gone(k.nl.RuleDel(r.wire()))
	}
	wire := netlink.NewRule()
	wire.Family, wire.Priority, wire.Protocol = unix.AF_INET, r.Priority, protocol
	return gone(k.nl.RuleDel(wire))
}

func (k *kernel) routeWire(r Route) *netlink.Route {
	wire := &netlink.Route{Family: unix.AF_INET, Table: r.Table, Dst: ipNet(r.Dst), LinkIndex: k.index[r.Link], Protocol: protocol, Priority: r.Metric}
	if !r.Via.IsValid() {
		wire.Scope = netlink.SCOPE_LINK
		return wire
	}
	wire.Gw = r.Via.AsSlice()
	if r.Onlink {
		wire.Flags = int(netlink.FLAG_ONLINK)
	}
	return wire
}

// link names a link by the index that it had when the links were listed.
func (k *kernel) link(name string) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name, Index: k.index[name]}}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
