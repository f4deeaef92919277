package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// fabricNet is the fabric of one VPC as it stands in the kernel.
type fabricNet struct {
	ns     *netlab.Namespace
	handle *netlink.Handle
	rules  []*rules // of IPv4 and of IPv6
	tags   *tags
	ports  map[string]*standingPort // by name
	peers  map[string]bool          // links to peered fabrics, by name
	beyond map[string][]netip.Prefix

	sockets []net.PacketConn // of the VPC's own services

	resolver  netip.Addr
	lastIndex int // of the ports' links
}

// standingPort is a port as it stands in the kernel.
type standingPort struct {
	port
	index int                // of the fabric's end
	stop  context.CancelFunc // ends the metadata server; nil without one
	stop6 context.CancelFunc // the same at the IPv6 endpoint

	ipv6     bool   // turned on
	adoption string // file of an adopted link, "" for one that the plane made
	foreign  bool   // the guest outlives the plane
}

// newFabric makes a fabric without ports.
func newFabric(path string) (*fabricNet, error) {
	ns, err := netlab.New(path)
	if err != nil {
		return nil, err
	}
	f := &fabricNet{ns: ns, ports: map[string]*standingPort{}, peers: map[string]bool{}}
	if err := f.setUp(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *fabricNet) setUp() error {
	// "default" is what ports copy when they are made. IPv4 settings of a new namespace may come from the machine, so all
	// are set.
	for _, s := range [][2]string{
		{"net.ipv4.ip_forward", "1"},
		{"net.ipv4.conf.all.rp_filter", "0"}, // the source check is done by rules that count
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.conf.all.send_redirects", "0"}, // two addresses of one ENI talk through one port; that is no detour
		{"net.ipv4.conf.default.send_redirects", "0"},
		{"net.ipv4.conf.all.arp_ignore", "1"},       // a port answers for its own subnet's gateway only
		{"net.ipv6.conf.default.disable_ipv6", "1"}, // ports of ENIs with IPv6 addresses have it turned on; spares the neighbour table
		{"net.ipv6.conf.all.forwarding", "1"},
		// Idle timeouts of flows, in seconds. Source: EC2 user guide, connection tracking.
		{"net.netfilter.nf_conntrack_tcp_timeout_established", "432000"},
		{"net.netfilter.nf_conntrack_udp_timeout", "30"},
		{"net.netfilter.nf_conntrack_udp_timeout_stream", "180"},
		{"net.netfilter.nf_conntrack_tcp_be_liberal", "1"}, // security groups know flows, not windows
	} {
		if err := f.ns.SetSysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	var err error
	if f.handle, err = f.ns.Netlink(); err != nil {
		return err
	}
	for _, p := range []protocol{ipv4Rules(), ipv6Rules()} {
		r, err := newRules(f.ns, p)
		if err != nil {
			return err
		}
		f.rules = append(f.rules, r)
	}
	f.tags, err = newTags(f.ns)
	return err
}

// prune removes what is no longer wanted: ports, then addresses. It comes before anything new, because a link name, a MAC
// or an address may move from one port to another.
func (f *fabricNet) prune(want fabric) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.ports)) {
		have := f.ports[name]
		next, wanted := want.Ports[name]
		if !wanted || next.portIdentity != have.portIdentity {
			errs = append(errs, f.unplug(have))
			continue
		}
		gone, _ := difference(have.Secondary, next.Secondary, netip.Prefix.Compare)
		for _, addr := range gone {
			errs = append(errs, f.unroute(have, addr))
		}
	}
	return errors.Join(errs...)
}

// extend adds what is missing. Rules come before routes: an address that is delivered may be answered from at once, and
// that answer must not count as a spoof.
func (p *Plane) extend(f *fabricNet, want fabric) error {
	f.resolver, f.beyond = want.Resolver, want.Peers
	for _, r := range f.rules {
		if err := r.apply(want); err != nil {
			return err
		}
	}
	if err := f.tags.apply(want); err != nil {
		return err
	}
	var errs []error
	trunksFirst := func(a, b string) int {
		return cmp.Or(cmp.Compare(want.Ports[a].VLAN, want.Ports[b].VLAN), strings.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(want.Ports), trunksFirst) {
		next := want.Ports[name]
		if next.Trunk != "" && p.noVLANs {
			continue
		}
		g := p.guests[next.Guest]
		if g == nil {
			continue // its failure is reported already
		}
		err := p.extendPort(f, g, next)
		if next.Trunk != "" && errors.Is(err, unix.EOPNOTSUPP) {
			p.noVLANs = true
			p.options.Log.Error("this kernel has no VLANs: branches of trunks get no packets", "branch", next.Primary)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("port %s of %s: %w", name, next.Primary, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Plane) extendPort(f *fabricNet, g *guestNS, next port) error {
	have := f.ports[next.Name]
	if have == nil {
		var err error
		if have, err = p.plug(f, g, next); err != nil {
			return err
		}
	}
	if err := p.rename(g, have, next); err != nil {
		return err
	}
	if next.hasIPv6() {
		if err := f.enableIPv6(g, have, next); err != nil {
			return err
		}
	}
	_, added := difference(have.Secondary, next.Secondary, netip.Prefix.Compare)
	for _, addr := range added {
		if err := f.route(have, addr); err != nil {
			return err
		}
	}
	have.Public, have.Unchecked, have.Egress, have.Ingress = next.Public, next.Unchecked, next.Egress, next.Ingress // in the rules
	if err := g.routePublics(have.Link, have.Publics, next.Publics); err != nil {
		return err
	}
	have.Publics = next.Publics
	return p.followMetadata6(f, have, next)
}

// nextIndex gives each port an interface index that no guest's own count reaches, so that the two ends of a pair differ
// (netlab.End says why).
func (f *fabricNet) nextIndex() int {
	f.lastIndex = max(f.lastIndex, firstPortIndex-1) + 1
	return f.lastIndex
}

// firstPortIndex is above what a guest with hundreds of pods counts to.
const firstPortIndex = 1_000_000

// plug makes a port: the link with both ends in place, then all that its primary address needs.
func (p *Plane) plug(f *fabricNet, g *guestNS, next port) (*standingPort, error) {
	mac, err := net.ParseMAC(next.MAC)
	if err != nil {
		return nil, fmt.Errorf("read MAC: %w", err)
	}
	made := &standingPort{port: port{portIdentity: next.portIdentity}, foreign: !g.made}
	switch {
	case next.Adopted:
		made.adoption = p.adoptionFile(next.Name)
		err = p.adopt(f, g, next)
	case next.Trunk != "":
		err = netlab.VLAN(f.ns, next.Trunk, next.VLAN, netlab.End{Name: next.Name, MAC: next.fabricMAC(), MTU: next.MTU})
	default:
		err = netlab.Veth(
			netlab.End{NS: f.ns, Name: next.Name, MAC: next.fabricMAC(), MTU: next.MTU, Index: f.nextIndex()},
			netlab.End{NS: g.ns, Name: next.Link, MAC: mac, MTU: next.MTU, Down: !next.Up},
		)
	}
	if err != nil {
		return nil, err
	}
	if err := p.furnish(f, g, made, mac); err != nil {
		return nil, errors.Join(err, f.unplug(made))
	}
	f.ports[made.Name] = made
	return made, nil
}

func (p *Plane) furnish(f *fabricNet, g *guestNS, made *standingPort, mac net.HardwareAddr) error {
	link, err := f.handle.LinkByName(made.Name)
	if err != nil {
		return fmt.Errorf("find new link: %w", err)
	}
	made.index = link.Attrs().Index
	if made.Trunk == "" && !made.outside() {
		if err := f.tags.watch(made.Name); err != nil {
			return err
		}
	}
	if !made.outside() {
		// The gateway first: ICMP errors come from a port's first address.
		for _, addr := range ipv4Rules().own(made.port, f.resolver) {
			if err := netlab.AddAddr(f.ns, made.Name, netip.PrefixFrom(addr, addr.BitLen())); err != nil {
				return err
			}
		}
	}
	if err := netlab.Neigh(f.ns, made.Name, made.Primary, mac); err != nil {
		return err
	}
	if err := f.route(made, single(made.Primary)); err != nil {
		return err
	}
	if made.Instance != "" && p.options.Metadata != nil {
		if made.stop, err = p.serveMetadata(f, made, netip.AddrPortFrom(metadataAddr, metadataPort)); err != nil {
			return err
		}
	}
	if made.Up && !made.Adopted {
		return g.configure(made.port)
	}
	return nil
}

// unplug removes a port. Addresses, neighbours and routes go with the link, and so does the guest's end.
func (f *fabricNet) unplug(have *standingPort) error {
	have.stopServing()
	remove := func() error { return gone(netlab.DelLink(f.ns, have.Name)) }
	if have.adoption != "" {
		remove = func() error { return giveBack(have.adoption) }
	}
	if err := errors.Join(f.tags.forget(have.Name), remove()); err != nil {
		return err
	}
	// Not found is as good: somebody deleted the guest's end, or the guest's namespace ended.
	delete(f.ports, have.Name)
	return nil
}

func (p *standingPort) stopServing() {
	for _, stop := range []context.CancelFunc{p.stop, p.stop6} {
		if stop != nil {
			stop()
		}
	}
}

// route sends an address or prefix to its port. The primary is on the link; the others go via the primary, whose neighbour
// entry thereby serves all.
func (f *fabricNet) route(p *standingPort, to netip.Prefix) error {
	if err := f.handle.RouteAdd(p.routeTo(to)); err != nil {
		return fmt.Errorf("route %s: %w", to, err)
	}
	if to.Addr() != p.Primary {
		at, _ := slices.BinarySearchFunc(p.Secondary, to, netip.Prefix.Compare)
		p.Secondary = slices.Insert(p.Secondary, at, to)
	}
	return nil
}

func (f *fabricNet) unroute(p *standingPort, to netip.Prefix) error {
	if err := f.handle.RouteDel(p.routeTo(to)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("unroute %s: %w", to, err)
	}
	p.Secondary = slices.DeleteFunc(slices.Clone(p.Secondary), func(x netip.Prefix) bool { return x == to })
	return nil
}

func (p *standingPort) routeTo(to netip.Prefix) *netlink.Route {
	r := &netlink.Route{
		LinkIndex: p.index,
		Dst:       &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())},
		Scope:     netlink.SCOPE_LINK,
	}
	switch {
	case to.Addr().Is6():
		r.Gw, r.Scope, r.Flags = p.linkLocal6().AsSlice(), netlink.SCOPE_UNIVERSE, int(netlink.FLAG_ONLINK)
	case to.Addr() != p.Primary:
		r.Gw, r.Scope, r.Flags = p.Primary.AsSlice(), netlink.SCOPE_UNIVERSE, int(netlink.FLAG_ONLINK)
	}
	return r
}

// close takes the fabric down at one stroke: the kernel removes the links with the namespace, in its own time. Guests that stay
// lose their links before it returns, or get back what was adopted.
func (f *fabricNet) close() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.ports)) {
		p := f.ports[name]
		p.stopServing()
		if p.foreign {
			errs = append(errs, f.unplug(p))
		}
	}
	for _, s := range f.sockets {
		_ = s.Close() // ends its server
	}
	for _, r := range f.rules {
		r.close()
	}
	if f.tags != nil {
		f.tags.close()
	}
	if f.handle != nil {
		f.handle.Close()
	}
	return errors.Join(append(errs, f.ns.Close())...)
}
