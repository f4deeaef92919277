package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Veth is the host's end of a pod's pair, as found. While it stands its pod lives, with or without a route: the plugin takes
// the link away first, and the kernel takes it away with the pod's namespace.
type Veth struct {
	Name string
	Addr netip.Addr // of the pod that it was built for
	Up   bool
}

// errInTheWay says that a route of another hand leads to the pod's address. It stays, and so does everything else.
var errInTheWay = errors.New("another route to the address is in the way")

// errEnded says that the pod's link went away since it was listed: the pod has ended, and needs nothing.
var errEnded = errors.New("the pod has ended")

// veths finds the pods' links. Their name alone would not do: two sandboxes of one pod have the same.
func veths(prefix string, present []presentLink) []Veth {
	var found []Veth
	for _, l := range present {
		if !strings.HasPrefix(l.name, prefix) {
			continue
		}
		mac, err := net.ParseMAC(l.mac)
		if err != nil {
			continue
		}
		if addr, ok := api.BuiltFor(mac); ok {
			found = append(found, Veth{Name: l.name, Addr: addr, Up: l.up})
		}
	}
	return found
}

// standing gives the wanted pods whose veth is there beyond doubt: the one link that was built for the address has the name
// of the pod that holds it. A pod without it has its route from another hand, or is going away.
func standing(cfg Config, want pool.HostState, found []Veth) []pool.PodRoute {
	if cfg.Veth == nil {
		return nil
	}
	bearers := make(map[netip.Addr][]string, len(found))
	for _, v := range found {
		bearers[v.Addr] = append(bearers[v.Addr], v.Name)
	}
	var pods []pool.PodRoute
	for _, p := range want.Pods {
		name := cfg.Veth(p.Key, p.Pod)
		if names := bearers[p.Addr]; len(names) == 1 && names[0] == name {
			pods = append(pods, pool.PodRoute{Addr: p.Addr, Link: name})
		}
	}
	return pods
}

// podSteps puts back what a standing pod has lost on the host: whoever takes its link down takes its route and its neighbour
// entry with that. Where the route is there, so is the rest.
func podSteps(want, found State) []step {
	routed := make(map[netip.Addr]bool, len(found.Pods))
	for _, p := range found.Pods {
		routed[p.Addr] = true
	}
	var steps []step
	for _, p := range want.Pods {
		if routed[p.Addr] {
			continue
		}
		if !found.isUp(p.Link) {
			steps = append(steps, change("start", kindLink, "link "+p.Link, func(k *kernel) error { return ended(k.nl.LinkSetUp(k.link(p.Link))) }))
		}
		steps = append(steps,
			change("set", kindNeighbour, fmt.Sprintf("neighbour %s dev %s", p.Addr, p.Link), func(k *kernel) error { return k.setNeighbour(p) }),
			change("add", kindRoute, podRouteText(p), func(k *kernel) error { return k.addPodRoute(p) }))
	}
	for i := range steps {
		steps[i].pod = true
	}
	return steps
}

func (s State) isUp(link string) bool {
	for _, v := range s.Veths {
		if v.Name == link {
			return v.Up
		}
	}
	return false
}

func podRouteText(p pool.PodRoute) string {
	return fmt.Sprintf("route table %d %s dev %s", tablePods, p.Addr, p.Link)
}

// setNeighbour writes the entry as the plugin does.
func (k *kernel) setNeighbour(p pool.PodRoute) error {
	return ended(k.nl.NeighSet(&netlink.Neigh{
		LinkIndex: k.index[p.Link], Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
		IP: p.Addr.AsSlice(), HardwareAddr: api.PodMAC(p.Addr),
	}))
}

// ended tells a link that is gone from other failures.
func ended(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return errEnded
	}
	return err
}

// addPodRoute adds the route, and replaces none.
func (k *kernel) addPodRoute(p pool.PodRoute) error {
	err := ended(k.nl.RouteAdd(k.routeWire(Route{Table: tablePods, Dst: netip.PrefixFrom(p.Addr, p.Addr.BitLen()), Link: p.Link})))
	if errors.Is(err, unix.EEXIST) {
		return errInTheWay
	}
	return err
}

// alive adds to the routed pods those whose veth stands without a route, and those that the incumbent connected.
func alive(found State) []pool.PodRoute {
	pods := append([]pool.PodRoute(nil), found.Pods...)
	routed := make(map[netip.Addr]bool, len(pods))
	for _, p := range pods {
		routed[p.Addr] = true
	}
	for _, v := range found.Veths {
		if !routed[v.Addr] {
			routed[v.Addr] = true
			pods = append(pods, pool.PodRoute{Addr: v.Addr, Link: v.Name})
		}
	}
	for _, p := range found.Inherited {
		if !routed[p.Addr] {
			routed[p.Addr] = true
			pods = append(pods, p)
		}
	}
	return pods
}
