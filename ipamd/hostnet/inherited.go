package hostnet

import (
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// inherited finds the pods that the incumbent connected: it routes each of their addresses, alone, to the host's end of the
// pod's veth in the main table. They are reported as what they are, pods that live on an address, and nothing of theirs is
// changed: their routes and rules serve them until they end. A node without links of that kind is not asked for its routes.
func (k *kernel) inherited(present []presentLink) ([]pool.PodRoute, error) {
	links := map[int]string{}
	for _, l := range present {
		mac, err := net.ParseMAC(l.mac)
		if err != nil || !strings.HasPrefix(l.name, k.vethPrefix) {
			continue
		}
		if _, built := api.BuiltFor(mac); !built {
			links[l.index] = l.name
		}
	}
	if len(links) == 0 {
		return nil, nil
	}
	filter := &netlink.Route{Table: tableMain}
	routes, err := dump("main routes", func() ([]netlink.Route, error) {
		return k.nl.RouteListFiltered(unix.AF_INET, filter, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, err
	}
	var pods []pool.PodRoute
	for _, r := range routes {
		link, ok := links[r.LinkIndex]
		if !ok || r.Dst == nil || r.Gw != nil {
			continue
		}
		addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
		if ones, bits := r.Dst.Mask.Size(); addr.IsValid() && ones == bits {
			pods = append(pods, pool.PodRoute{Addr: addr, Link: link})
		}
	}
	return pods, nil
}
