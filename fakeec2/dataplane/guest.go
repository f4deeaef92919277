package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// guestNS is the namespace of a guest that stands.
type guestNS struct {
	guest
	ns   *netlab.Namespace
	made bool // by this plane, which takes it down
}

// openGuest makes a guest's namespace, or opens it where the model names one that exists.
func (p *Plane) openGuest(want guest) error {
	if have := p.guests[want.Path]; have != nil {
		if have.Boot == want.Boot {
			return nil
		}
		delete(p.guests, want.Path)
		if err := have.close(); err != nil {
			return err
		}
	}
	g, err := makeGuest(want)
	if err != nil {
		return err
	}
	if err := g.boot(); err != nil {
		return errors.Join(err, g.close())
	}
	p.guests[want.Path] = g
	return nil
}

func makeGuest(want guest) (*guestNS, error) {
	if want.Boot == 0 {
		ns, err := netlab.New(want.Path)
		if !errors.Is(err, os.ErrExist) {
			return &guestNS{guest: want, ns: ns, made: true}, err
		}
	}
	ns, err := netlab.Open(want.Path)
	return &guestNS{guest: want, ns: ns}, err
}

// boot sets what a node's image sets before the first link is there.
func (g *guestNS) boot() error {
	if !g.Node || g.Boot > 0 {
		return nil
	}
	profile := strconv.Itoa(g.Image.RPFilter)
	for _, s := range [][2]string{
		{"net.ipv4.conf.all.rp_filter", profile},
		{"net.ipv4.conf.default.rp_filter", profile}, // links copy it when they are made
		{"net.ipv4.conf.lo.rp_filter", profile},
		{"net.ipv4.ip_forward", "1"},
	} {
		if err := g.ns.SetSysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// configure does what an image's DHCP client does for the primary link: address, gateway, default route, MTU (which the
// link has from birth). The address is a /32 with the gateway onlink, so that the guest asks by ARP for its gateway only.
// Secondary links stay down and bare: their addresses are no business of DHCP.
func (g *guestNS) configure(want port) error {
	if err := netlab.AddAddr(g.ns, want.Link, netip.PrefixFrom(want.Primary, want.Primary.BitLen())); err != nil {
		return err
	}
	if !g.Node {
		// Services and outside hosts are no images under test: they never ask for anything.
		if err := netlab.Neigh(g.ns, want.Link, want.Gateway, want.fabricMAC()); err != nil {
			return err
		}
	}
	if want.outside() {
		return nil // knows public addresses only: see routePublics
	}
	return netlab.AddRoute(g.ns, netlab.Route{Via: want.Gateway, Link: want.Link, Onlink: true})
}

// rename gives a link the name that its image has for it. A guest that was quicker has its own way: a link that it took elsewhere
// or renamed stays as it is, and so does one that is up where the kernel renames only links that are down.
func (p *Plane) rename(g *guestNS, have *standingPort, next port) error {
	if next.Renamed == have.Renamed || next.Renamed == "" {
		return nil
	}
	h, err := g.ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(have.Link)
	if err == nil {
		err = h.LinkSetName(link, next.Renamed)
	}
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		p.options.Log.Info("the guest's link keeps the name that it has", "link", have.Link, "name", next.Renamed, "err", err)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("rename %s to %s: %w", have.Link, next.Renamed, err)
	}
	have.Renamed = next.Renamed
	return nil
}

// routePublics brings an outside host's routes from one set of public addresses to another.
func (g *guestNS) routePublics(link string, have, want []netip.Addr) error {
	gone, added := difference(have, want, netip.Addr.Compare)
	route := func(a netip.Addr) netlab.Route {
		return netlab.Route{Dst: netip.PrefixFrom(a, a.BitLen()), Via: transit, Link: link, Onlink: true}
	}
	for _, a := range gone {
		if err := netlab.DelRoute(g.ns, route(a)); err != nil {
			return err
		}
	}
	for _, a := range added {
		if err := netlab.AddRoute(g.ns, route(a)); err != nil {
			return err
		}
	}
	return nil
}

func (g *guestNS) close() error {
	if err := g.ns.Close(); err != nil {
		return fmt.Errorf("close guest: %w", err)
	}
	return nil
}

// difference tells what is only in have and what is only in want. Both are ascending.
func difference[T any](have, want []T, compare func(a, b T) int) (gone, added []T) {
	for len(have) > 0 || len(want) > 0 {
		switch {
		case len(want) == 0 || len(have) > 0 && compare(have[0], want[0]) < 0:
			gone, have = append(gone, have[0]), have[1:]
		case len(have) == 0 || compare(want[0], have[0]) < 0:
			added, want = append(added, want[0]), want[1:]
		default:
			have, want = have[1:], want[1:]
		}
	}
	return gone, added
}
