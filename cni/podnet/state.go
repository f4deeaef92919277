package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// dumpAttempts bounds how often an interrupted dump is asked for again. A dump is interrupted when the table changes while
// the kernel walks it; a table that never rests for a whole walk in ten is a fault worth an error.
const dumpAttempts = 10

// dump lists kernel objects, again while the kernel says that a change made the list inconsistent. Every listing of this
// package goes through it.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	var items []T
	var err error
	for range dumpAttempts {
		items, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return items, err
}

// maxName is the longest name of a link, in bytes. Source: IFNAMSIZ in linux/if.h, without the final zero.
const maxName = 15

// validate refuses a recipe that cannot be carried out: it came over a socket, perhaps from a newer daemon.
func validate(recipe api.PodNetwork) error {
	switch {
	case recipe.HostVeth == "" || len(recipe.HostVeth) > maxName:
		return fmt.Errorf("read recipe: %q is no name for a link", recipe.HostVeth)
	case !recipe.Addr.IsValid():
		return errors.New("read recipe: it has no address")
	case !recipe.Gateway.IsValid() || recipe.Gateway.Is4() != recipe.Addr.Addr().Is4():
		return fmt.Errorf("read recipe: gateway %s is not of the family of %s", recipe.Gateway, recipe.Addr)
	case recipe.Table <= 0:
		return fmt.Errorf("read recipe: %d is no routing table", recipe.Table)
	}
	return nil
}

// isAbsent tells whether a lookup of a link failed because there is none.
func isAbsent(err error) bool {
	var absent netlink.LinkNotFoundError
	return errors.As(err, &absent)
}

// permanent is a neighbour entry that is never asked for, aged or counted against the machine's limit of learned ones.
func permanent(index int, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex:    index,
		Family:       family(addr),
		State:        netlink.NUD_PERMANENT,
		IP:           addr.AsSlice(),
		HardwareAddr: mac,
	}
}

// podRoutes are the routes inside the pod, in the order in which the kernel accepts them.
func podRoutes(recipe api.PodNetwork, index int) []netlink.Route {
	gateway := recipe.Gateway
	routes := []netlink.Route{{
		LinkIndex: index,
		Dst:       ipNet(netip.PrefixFrom(gateway, gateway.BitLen())),
		Scope:     netlink.SCOPE_LINK,
		Protocol:  netlink.RouteProtocol(recipe.Protocol),
	}}
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if !gateway.Is4() {
		everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	for _, destination := range append([]netip.Prefix{everything}, recipe.Routes...) {
		routes = append(routes, netlink.Route{
			LinkIndex: index,
			Dst:       ipNet(destination),
			Gw:        gateway.AsSlice(),
			Flags:     int(netlink.FLAG_ONLINK),
			Protocol:  netlink.RouteProtocol(recipe.Protocol),
		})
	}
	return routes
}

// hostRoute is the pod's route in the host's table.
func hostRoute(recipe api.PodNetwork, index int) netlink.Route {
	addr := recipe.Addr.Addr()
	return netlink.Route{
		LinkIndex: index,
		Dst:       ipNet(netip.PrefixFrom(addr, addr.BitLen())),
		Scope:     netlink.SCOPE_LINK,
		Table:     recipe.Table,
		Protocol:  netlink.RouteProtocol(recipe.Protocol),
	}
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// ipNet is a prefix in netlink's form.
func ipNet(prefix netip.Prefix) *net.IPNet {
	addr := prefix.Addr()
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}

// prefixOf is netlink's form as a prefix; nil is the default route.
func prefixOf(dst *net.IPNet, family int) netip.Prefix {
	if dst == nil {
		if family == unix.AF_INET6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	addr, _ := netip.AddrFromSlice(dst.IP)
	bits, _ := dst.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}
