package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// guestLinkState is what an adopted link is in its guest.
type guestLinkState struct {
	Link   string
	MTU    int
	Addrs  []netip.Prefix // IPv4
	Routes []guestRoute   // of the main table that lead through the link
}

// guestRoute is a route as it was found.
type guestRoute struct {
	Dst, Src, Via   string // prefix and addresses, "" for none
	Scope, Protocol int
	Metric, Flags   int
}

// readGuestLink reads a link as it stands.
func readGuestLink(ns *netlab.Namespace, name string) (guestLinkState, error) {
	s := guestLinkState{Link: name}
	h, err := ns.Netlink()
	if err != nil {
		return s, err
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil {
		return s, fmt.Errorf("find link %s in %s: %w", name, ns.Path(), err)
	}
	s.MTU = link.Attrs().MTU
	addrs, err := uninterrupted(func() ([]netlink.Addr, error) { return h.AddrList(link, unix.AF_INET) })
	if err != nil {
		return s, fmt.Errorf("read addresses of %s in %s: %w", name, ns.Path(), err)
	}
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.IP.To4())
		bits, _ := a.Mask.Size()
		s.Addrs = append(s.Addrs, netip.PrefixFrom(ip, bits))
	}
	routes, err := mainRoutes(h, link)
	if err != nil {
		return s, fmt.Errorf("read routes of %s in %s: %w", name, ns.Path(), err)
	}
	for _, r := range routes {
		found := guestRoute{Scope: int(r.Scope), Protocol: int(r.Protocol), Metric: r.Priority, Flags: r.Flags}
		if r.Dst != nil {
			found.Dst = r.Dst.String()
		}
		if r.Src != nil {
			found.Src = r.Src.String()
		}
		if r.Gw != nil {
			found.Via = r.Gw.String()
		}
		s.Routes = append(s.Routes, found)
	}
	return s, nil
}

func mainRoutes(h *netlink.Handle, link netlink.Link) ([]netlink.Route, error) {
	filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN}
	return uninterrupted(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(unix.AF_INET, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
}

// uninterrupted reads a dump until none of it changed meanwhile.
func uninterrupted[T any](dump func() ([]T, error)) ([]T, error) {
	for {
		list, err := dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
}

// become makes the link that of an ENI: everything goes by the gateway, and nothing on the link is asked for but the gateway.
func (s guestLinkState) become(ns *netlab.Namespace, p port) error {
	if err := s.reroute(ns, p.MTU, []guestRoute{{Via: p.Gateway.String(), Flags: int(netlink.FLAG_ONLINK)}}); err != nil {
		return fmt.Errorf("make %s in %s the ENI's link: %w", p.Link, ns.Path(), err)
	}
	return nil
}

// restore makes the link what it was.
func (s guestLinkState) restore(ns *netlab.Namespace) error {
	if err := s.reroute(ns, s.MTU, s.Routes); err != nil {
		return fmt.Errorf("make %s in %s what it was: %w", s.Link, ns.Path(), err)
	}
	return nil
}

// reroute puts the link's routes in the place of those that it has, and forgets the neighbours on it.
func (s guestLinkState) reroute(ns *netlab.Namespace, mtu int, routes []guestRoute) error {
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(s.Link)
	if err != nil {
		return err
	}
	if err := h.LinkSetMTU(link, mtu); err != nil {
		return err
	}
	old, err := mainRoutes(h, link)
	if err != nil {
		return err
	}
	for _, r := range old {
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", r, err)
		}
	}
	// Routes on the link come first: the others may need them.
	for _, direct := range []bool{true, false} {
		for _, r := range routes {
			if (r.Via == "") == direct {
				if err := h.RouteReplace(r.on(link)); err != nil {
					return fmt.Errorf("add route %+v: %w", r, err)
				}
			}
		}
	}
	return forgetNeighbours(h, link)
}

func (r guestRoute) on(link netlink.Link) *netlink.Route {
	out := &netlink.Route{
		LinkIndex: link.Attrs().Index, Scope: netlink.Scope(r.Scope), Protocol: netlink.RouteProtocol(r.Protocol), Priority: r.Metric,
		Flags: r.Flags &^ (unix.RTNH_F_LINKDOWN | unix.RTNH_F_DEAD), Src: net.ParseIP(r.Src), Gw: net.ParseIP(r.Via),
	}
	if dst, err := netip.ParsePrefix(r.Dst); err == nil {
		out.Dst = &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())}
	}
	return out
}

// forgetNeighbours removes what the guest learned: the link leads elsewhere now.
func forgetNeighbours(h *netlink.Handle, link netlink.Link) error {
	known, err := uninterrupted(func() ([]netlink.Neigh, error) { return h.NeighList(link.Attrs().Index, unix.AF_INET) })
	if err != nil {
		return err
	}
	for _, n := range known {
		if n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
			continue
		}
		if err := h.NeighDel(&n); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("forget neighbour %s: %w", n.IP, err)
		}
	}
	return nil
}
