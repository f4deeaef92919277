package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// End is one end of a veth pair. MAC nil lets the kernel choose; MTU 0 is the kernel's default of 1500 bytes.
type End struct {
	NS   *Namespace
	Name string
	MAC  net.HardwareAddr
	MTU  int
	Down bool // leave the end down, as a network card is that nobody has configured yet
	// Index is the interface index that the pair's first end gets; 0 lets the kernel choose. A pair whose two ends have
	// the same index starts to carry packets up to a second late: the kernel's link_watch takes it for a stacked device
	// and defers it.
	Index int
}

// Veth makes a veth pair with each end born in its place: moving an end between namespaces takes the kernel 12 to 33 ms,
// making both in place about one. Both ends are up unless they ask not to be.
func Veth(a, b End) error {
	if err := veth(a, b); err != nil {
		return fmt.Errorf("make veth %s in %s to %s in %s: %w", a.Name, a.NS.path, b.Name, b.NS.path, err)
	}
	return nil
}

func veth(a, b End) error {
	ha, err := a.NS.route()
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Index = a.Name, a.MTU, a.MAC, a.Index
	if !a.Down {
		attrs.Flags = net.FlagUp
	}
	link := netlink.NewVeth(attrs)
	link.PeerName, link.PeerHardwareAddr, link.PeerMTU = b.Name, b.MAC, uint32(b.MTU)
	link.PeerNamespace = netlink.NsFd(b.NS.FD())
	if err := ha.LinkAdd(link); err != nil {
		return err
	}
	if b.Down {
		return nil
	}
	return b.NS.up(b.Name)
}

// VLAN makes a link for the frames of another link that bear a tag; it is up. Kernels without VLANs refuse with EOPNOTSUPP.
func VLAN(n *Namespace, parent string, id int, end End) error {
	h, index, err := n.onLink(parent)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.MTU, attrs.HardwareAddr, attrs.Flags = end.Name, index, end.MTU, end.MAC, net.FlagUp
	if err := h.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}); err != nil {
		return fmt.Errorf("make link %s for VLAN %d of %s in %s: %w", end.Name, id, parent, n.path, err)
	}
	return nil
}

func (n *Namespace) up(name string) error {
	h, err := n.route()
	if err != nil {
		return err
	}
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

func (n *Namespace) loopbackUp() error {
	if err := n.up("lo"); err != nil {
		return fmt.Errorf("prepare namespace %s: %w", n.path, err)
	}
	return nil
}

// DelLink removes a link; a veth's other end goes with it.
func DelLink(n *Namespace, name string) error {
	h, index, err := n.onLink(name)
	if err != nil {
		return err
	}
	attrs := netlink.LinkAttrs{Index: index, Name: name}
	if err := h.LinkDel(&netlink.Device{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("delete link %s in %s: %w", name, n.path, err)
	}
	return nil
}

// Neigh makes a permanent neighbour entry, or replaces one: the kernel will never ask for addr on link.
func Neigh(n *Namespace, link string, addr netip.Addr, mac net.HardwareAddr) error {
	h, index, err := n.onLink(link)
	if err != nil {
		return err
	}
	err = h.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: family(addr), State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("set neighbour %s on %s in %s: %w", addr, link, n.path, err)
	}
	return nil
}

// AddAddr puts an address on a link. An IPv6 address is good at once: nobody is asked whether it is taken, which takes a second.
func AddAddr(n *Namespace, link string, addr netip.Prefix) error {
	h, index, err := n.onLink(link)
	if err != nil {
		return err
	}
	parsed := &netlink.Addr{IPNet: ipNet(addr), LinkIndex: index}
	if addr.Addr().Is6() {
		parsed.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, parsed); err != nil {
		return fmt.Errorf("add address %s to %s in %s: %w", addr, link, n.path, err)
	}
	if addr.Addr().Is6() {
		return n.awaitLocal(h, index, addr.Addr())
	}
	return nil
}

// localWait is how long the kernel may take to deliver to a new IPv6 address; it takes a fraction of a millisecond.
const localWait = time.Second

// awaitLocal waits until a link that carries packets delivers to its new IPv6 address: the kernel leaves the local route to a
// worker. On a link without carrier it comes with the carrier.
func (n *Namespace) awaitLocal(h *netlink.Handle, index int, addr netip.Addr) error {
	filter := &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_LOCAL, Dst: ipNet(netip.PrefixFrom(addr, addr.BitLen()))}
	for deadline := time.Now().Add(localWait); time.Now().Before(deadline); runtime.Gosched() {
		link, err := h.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("read link of %s in %s: %w", addr, n.path, err)
		}
		if state := link.Attrs().OperState; state != netlink.OperUp && state != netlink.OperUnknown {
			return nil
		}
		routes, err := h.RouteListFiltered(unix.AF_INET6, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("read local routes in %s: %w", n.path, err)
		}
		if len(routes) > 0 {
			return nil
		}
	}
	return nil // the kernel is that busy: whoever needs the address waits for it
}

// Route is a unicast route. The zero Dst is the default route of IPv4; Via may be invalid for a destination on the link
// itself. Onlink takes Via for reachable on Link without asking the routing table. Table 0 is the main table.
type Route struct {
	Dst    netip.Prefix
	Via    netip.Addr
	Link   string
	Onlink bool
	Table  int
}

// AddRoute adds a route; one that stands already is an error (EEXIST).
func AddRoute(n *Namespace, r Route) error {
	h, route, err := n.wire(r)
	if err != nil {
		return err
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("add route %s via %s dev %s in %s: %w", r.Dst, r.Via, r.Link, n.path, err)
	}
	return nil
}

// DelRoute removes a route that AddRoute added.
func DelRoute(n *Namespace, r Route) error {
	h, route, err := n.wire(r)
	if err != nil {
		return err
	}
	if err := h.RouteDel(route); err != nil {
		return fmt.Errorf("delete route %s via %s dev %s in %s: %w", r.Dst, r.Via, r.Link, n.path, err)
	}
	return nil
}

// wire translates a route for the netlink library.
func (n *Namespace) wire(r Route) (*netlink.Handle, *netlink.Route, error) {
	h, index, err := n.onLink(r.Link)
	if err != nil {
		return nil, nil, err
	}
	route := &netlink.Route{LinkIndex: index, Table: r.Table, Scope: netlink.SCOPE_LINK}
	if !r.Dst.IsValid() {
		r.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	route.Dst = ipNet(r.Dst)
	if r.Via.IsValid() {
		route.Gw, route.Scope = r.Via.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	if r.Onlink {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	return h, route, nil
}

// onLink gives the handle and the index of a link.
func (n *Namespace) onLink(name string) (*netlink.Handle, int, error) {
	h, err := n.route()
	if err != nil {
		return nil, 0, err
	}
	link, err := h.LinkByName(name)
	if err != nil {
		return nil, 0, fmt.Errorf("find link %s in %s: %w", name, n.path, err)
	}
	return h, link.Attrs().Index, nil
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
