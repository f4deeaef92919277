package podnet

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// Difference says in what the kernel differs from a recipe; each line is one finding.
type Difference struct {
	Lines []string
}

func (d *Difference) Error() string { return strings.Join(d.Lines, "; ") }

// Check compares the kernel with a recipe and changes nothing. It returns *Difference if they differ, another error if the
// kernel cannot be read. MACs are compared between the ends, not with the ones that Setup would choose: a pair that
// another plugin built is right if its neighbour entries are.
func Check(path, ifName string, recipe api.PodNetwork) error {
	if err := validate(recipe); err != nil {
		return err
	}
	s, vanished, err := open(path, ifName)
	if err != nil {
		return err
	}
	if vanished {
		return &Difference{Lines: []string{fmt.Sprintf("no namespace at %q", path)}}
	}
	defer s.close()
	_, lines, err := s.compare(recipe)
	if err != nil {
		return err
	}
	if len(lines) > 0 {
		return &Difference{Lines: lines}
	}
	return nil
}

// ends are a pair's two links, nil where there is none.
type ends struct {
	host, pod netlink.Link
}

// paired tells whether the two are the ends of one veth: each names the other's index.
func (e ends) paired() bool {
	return e.host != nil && e.pod != nil && e.host.Type() == "veth" && e.pod.Type() == "veth" &&
		e.host.Attrs().ParentIndex == e.pod.Attrs().Index && e.pod.Attrs().ParentIndex == e.host.Attrs().Index
}

func (e ends) macs() Pair {
	return Pair{HostMAC: e.host.Attrs().HardwareAddr, PodMAC: e.pod.Attrs().HardwareAddr}
}

// find looks for both ends by name.
func (s *sandbox) find(recipe api.PodNetwork) (ends, error) {
	var found ends
	err := s.list()
	if err != nil {
		return ends{}, err
	}
	if found.host, err = s.host.LinkByName(recipe.HostVeth); err != nil && !isAbsent(err) {
		return ends{}, fmt.Errorf("find %s: %w", recipe.HostVeth, err)
	}
	if found.pod, err = s.pod.LinkByName(s.ifName); err != nil && !isAbsent(err) {
		return ends{}, fmt.Errorf("find %s in the sandbox: %w", s.ifName, err)
	}
	return found, nil
}

// compare lists what differs from the recipe, outermost cause first.
func (s *sandbox) compare(recipe api.PodNetwork) (ends, []string, error) {
	found, err := s.find(recipe)
	if err != nil {
		return ends{}, nil, err
	}
	var lines []string
	if found.pod == nil {
		lines = append(lines, "sandbox has no link "+s.ifName)
	}
	if found.host == nil {
		lines = append(lines, "host has no link "+recipe.HostVeth)
	}
	if len(lines) == 0 && !found.paired() {
		lines = append(lines, fmt.Sprintf("%s in the sandbox and %s are not the ends of one veth", s.ifName, recipe.HostVeth))
	}
	if len(lines) > 0 {
		return found, lines, nil
	}
	lines = append(compareLink(found.pod, recipe.MTU), compareLink(found.host, recipe.MTU)...)
	inPod, err := s.comparePod(recipe, found)
	if err != nil {
		return ends{}, nil, err
	}
	onHost, err := s.compareHost(recipe, found)
	if err != nil {
		return ends{}, nil, err
	}
	return found, append(append(lines, inPod...), onHost...), nil
}

func compareLink(link netlink.Link, mtu int) (lines []string) {
	attrs := link.Attrs()
	if attrs.Flags&net.FlagUp == 0 {
		lines = append(lines, attrs.Name+" is down")
	}
	if mtu > 0 && attrs.MTU != mtu {
		lines = append(lines, fmt.Sprintf("MTU of %s is %d, not %d", attrs.Name, attrs.MTU, mtu))
	}
	return lines
}

func (s *sandbox) comparePod(recipe api.PodNetwork, found ends) (lines []string, err error) {
	addrs, err := dump(func() ([]netlink.Addr, error) { return s.pod.AddrList(found.pod, family(recipe.Addr.Addr())) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of the sandbox: %w", err)
	}
	present := false
	for _, addr := range addrs {
		present = present || prefixOf(addr.IPNet, 0) == recipe.Addr
	}
	if !present {
		lines = append(lines, fmt.Sprintf("%s lacks address %s", s.ifName, recipe.Addr))
	}
	index := found.pod.Attrs().Index
	line, err := compareNeighbour(s.pod, permanent(index, recipe.Gateway, found.host.Attrs().HardwareAddr))
	if err != nil {
		return nil, err
	}
	lines = append(lines, line...)
	for _, route := range podRoutes(recipe, index) {
		line, err := compareRoute(s.pod, route)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line...)
	}
	return lines, nil
}

func (s *sandbox) compareHost(recipe api.PodNetwork, found ends) ([]string, error) {
	index := found.host.Attrs().Index
	lines, err := compareNeighbour(s.host, permanent(index, recipe.Addr.Addr(), found.pod.Attrs().HardwareAddr))
	if err != nil {
		return nil, err
	}
	line, err := compareRoute(s.host, hostRoute(recipe, index))
	return append(lines, line...), err
}

// compareNeighbour looks for a permanent entry.
func compareNeighbour(handle *netlink.Handle, want *netlink.Neigh) ([]string, error) {
	entries, err := dump(func() ([]netlink.Neigh, error) { return handle.NeighList(want.LinkIndex, want.Family) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	for _, entry := range entries {
		if !entry.IP.Equal(want.IP) {
			continue
		}
		if entry.State&netlink.NUD_PERMANENT == 0 || !bytes.Equal(entry.HardwareAddr, want.HardwareAddr) {
			return []string{fmt.Sprintf("neighbour %s is %s, not permanently %s", want.IP, entry.HardwareAddr, want.HardwareAddr)}, nil
		}
		return nil, nil
	}
	return []string{fmt.Sprintf("neighbour %s is missing", want.IP)}, nil
}

// compareRoute looks for a route by destination and table.
func compareRoute(handle *netlink.Handle, want netlink.Route) ([]string, error) {
	table := want.Table
	if table == 0 {
		table = mainTable
	}
	fam := familyOf(want.Dst)
	routes, err := dump(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(fam, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes of table %d: %w", table, err)
	}
	destination := prefixOf(want.Dst, fam)
	for _, route := range routes {
		if prefixOf(route.Dst, fam) != destination {
			continue
		}
		if line := describe(route, want); line != "" { // the first one listed is the one that is used
			return []string{fmt.Sprintf("route to %s in table %d %s", destination, table, line)}, nil
		}
		return nil, nil
	}
	return []string{fmt.Sprintf("route to %s in table %d is missing", destination, table)}, nil
}

// describe says how a route differs from the wanted one, or nothing.
func describe(got, want netlink.Route) string {
	switch {
	case got.LinkIndex != want.LinkIndex:
		return "leads over another link"
	case !got.Gw.Equal(want.Gw):
		return fmt.Sprintf("leads by gateway %s, not %s", got.Gw, want.Gw)
	case got.Protocol != want.Protocol:
		return fmt.Sprintf("has protocol %d, not %d", got.Protocol, want.Protocol)
	}
	return ""
}

// mainTable is RT_TABLE_MAIN, which netlink means by 0 on writing.
const mainTable = 254

func familyOf(dst *net.IPNet) int {
	addr, _ := netip.AddrFromSlice(dst.IP)
	return family(addr.Unmap())
}
