// Package podnet is one pod's piece of the kernel: its veth pair, address, routes and neighbours.
//
// It owns what both ends of that pair carry: Setup builds it from a recipe, Check compares it with one, Teardown removes
// it. It never decides anything (names, addresses, tables come with the recipe), never touches an ENI, a rule or another
// pod's link, and knows nothing of EC2 or Kubernetes. Start reading at Setup.
//
// The kernel then holds, for pod address A, gateway G (169.254.1.1) and the MACs P (pod) and H (host):
//
//	pod:  eth0 up, MTU, A/32 · G dev eth0 scope link · default via G dev eth0 onlink · neighbour G = H permanent
//	host: veth up, MTU · neighbour A = P permanent · A/32 dev veth, in the recipe's table and protocol
//
// IPv6 is off on the host's end of an IPv4 pod; no other sysctl is written. The gateway needs no address and no proxy_arp on
// the host, because its neighbour entry is permanent; strict rp_filter accepts the pod's packets, because the rule for the
// pods' table comes before all others.
//
// # Two sandboxes of one pod name
//
// They share the host veth's name, and the newer one wins, whichever plugin is slower: Setup removes a veth or a route that
// leads to another sandbox only after the caller's May has said that this sandbox is still the one to have it, and removes
// exactly what it saw before it asked. Names may change hands meanwhile, so a new pair is known by its end in the sandbox,
// and undone there. Teardown too deletes by that end alone, so a late one for the older sandbox finds nothing and harms
// nothing.
package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// ErrForeignLink says that the name is taken by a link that is not a pod's veth of this recipe. It is left alone.
var ErrForeignLink = errors.New("link exists and is not this pod's veth")

// ErrHostNamespace says that the sandbox's namespace is the caller's own, whose links are the node's.
var ErrHostNamespace = errors.New("sandbox namespace is the host's own")

// ErrTaken says that another sandbox has the veth's name or the address, or took it while this one was being built.
var ErrTaken = errors.New("name or address is another sandbox's")

// May tells whether the sandbox that is being built is still the one to have its recipe's name and address; its error says
// why not. It is asked only where something of another sandbox is in the way.
type May func() error

// takeovers bounds how often Setup makes room for itself: each time another sandbox was faster, and May said that this one
// is the one to have the name, which can be true only while the other has not been told yet that it is not.
const takeovers = 5

// Pair is what a pod's two ends are known by. The kernel was given both at creation.
type Pair struct {
	HostMAC, PodMAC net.HardwareAddr
}

// The wait for the kernel to switch a link on. It takes well under a millisecond on an idle machine; the kernel's worker
// may put an event off by a second, and stands in the queue for the network configuration's lock like everybody.
const (
	carrierTimeout = 5 * time.Second
	carrierBackoff = 500 * time.Microsecond
)

// sandbox is a pod's namespace seen from the host's: one rtnetlink socket in each.
type sandbox struct {
	ns                    netNS
	hostSocket, podSocket *socket
	ifName                string
	around                Around

	host, pod *netlink.Handle // for what a new pod never needs; see list
}

// open enters a sandbox's namespace. vanished is true if path is empty or there is no namespace (any more).
func open(path, ifName string) (s *sandbox, vanished bool, err error) {
	if path == "" {
		return nil, true, nil
	}
	namespace, err := openNetNS(path)
	switch {
	case errors.Is(err, errNoNamespace):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	}
	s = &sandbox{ns: namespace, ifName: ifName}
	if err := s.connect(); err != nil {
		s.close()
		if errors.Is(err, errNoNamespace) { // but one of another kind
			return nil, true, nil
		}
		return nil, false, err
	}
	return s, false, nil
}

func (s *sandbox) connect() error {
	own, err := openNetNS(ownNetNS)
	if err != nil {
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer own.close()
	switch same, err := own.same(s.ns); {
	case err != nil:
		return err
	case same:
		return ErrHostNamespace
	}
	if s.hostSocket, err = openSocket(); err != nil {
		return err
	}
	if s.podSocket, err = openSocketIn(s.ns.fd, own.fd); err != nil {
		return fmt.Errorf("reach namespace %s: %w", s.ns.path, err)
	}
	return nil
}

// list opens what kernel objects are listed with. Only a pod that is not new needs it: one that is checked, and one that
// something is in the way of.
func (s *sandbox) list() (err error) {
	if s.pod != nil {
		return nil
	}
	if s.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink of the host: %w", err)
	}
	if s.pod, err = netlink.NewHandleAt(netns.NsHandle(s.ns.fd), unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink of namespace %s: %w", s.ns.path, err)
	}
	return nil
}

func (s *sandbox) close() {
	for _, handle := range []*netlink.Handle{s.host, s.pod} {
		if handle != nil {
			handle.Close()
		}
	}
	s.hostSocket.close()
	s.podSocket.close()
	s.ns.close()
}

// Setup builds a pod's network in the namespace at path. It is idempotent: a complete pair is kept, an incomplete one (a
// plugin was killed) is replaced, and what leads to another sandbox is replaced if may allows it. ErrForeignLink and
// ErrHostNamespace name what it will not touch, ErrTaken means that another sandbox has the name or the address, and wraps
// may's reason. After an error nothing of a new pair stands; only the kill of the process leaves a part.
func (a Around) Setup(path, ifName string, recipe api.PodNetwork, may May) (Pair, error) {
	if err := validate(recipe); err != nil {
		return Pair{}, err
	}
	s, vanished, err := open(path, ifName)
	if err != nil {
		return Pair{}, err
	}
	if vanished {
		return Pair{}, fmt.Errorf("set up %s: no network namespace at %q", ifName, path)
	}
	defer s.close()
	s.around = a

	built, err := s.create(recipe)
	for attempt := 0; errors.Is(err, unix.EEXIST) && attempt < takeovers; attempt++ {
		if found, diff, err := s.compare(recipe); err == nil && len(diff) == 0 {
			return found.macs(), s.awaitPod(found.pod.Attrs().Index)
		}
		if err := s.clear(recipe, may); err != nil {
			return Pair{}, err
		}
		built, err = s.create(recipe)
	}
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w: %w", ErrTaken, err)
	}
	if err != nil {
		return Pair{}, fmt.Errorf("create veth %s: %w", recipe.HostVeth, err)
	}
	if err := s.furnish(recipe, built, may); err != nil {
		undo := s.around.do("kernel remove new veth", func() error { return s.podSocket.remove(built.pod) })
		if undo != nil && !errors.Is(undo, unix.ENODEV) {
			err = fmt.Errorf("%w; remove veth again: %w", err, undo)
		}
		return Pair{}, err
	}
	return Pair{HostMAC: hostMAC(recipe.Addr.Addr()), PodMAC: podMAC(recipe.Addr.Addr())}, nil
}

// pairIndexes are the indexes of a pair's two ends, each in its own namespace.
type pairIndexes struct {
	host, pod int
}

// link is a link that is known by its index.
func link(index int) netlink.Link { return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: index}} }

// furnish gives both ends of a new pair what they carry, and waits until they carry packets.
func (s *sandbox) furnish(recipe api.PodNetwork, built pairIndexes, may May) error {
	err := s.furnishPod(recipe, built.pod)
	if err == nil {
		err = s.furnishHost(recipe, built.host, may)
	}
	if err == nil {
		err = s.awaitPod(built.pod)
	}
	if err == nil {
		return nil
	}
	if _, lookup := s.podSocket.link(s.ifName, built.pod); errors.Is(lookup, unix.ENODEV) {
		return fmt.Errorf("%w: %w", ErrTaken, err) // nobody else removes a link that was just made
	}
	return err
}

// create makes the pair with each end where it lives. Moving an end between namespaces takes 12 to 33 ms, being born in
// place 1 ms. Both indexes are read from the pod's end: by name, the host's may be another sandbox's already.
func (s *sandbox) create(recipe api.PodNetwork) (pairIndexes, error) {
	addr := recipe.Addr.Addr()
	b := newBatch()
	b.addVeth(pairEnd{recipe.HostVeth, hostMAC(addr)}, pairEnd{s.ifName, podMAC(addr)}, recipe.MTU, s.ns.fd)
	if err := s.around.do("kernel add veth", func() error { return s.hostSocket.carryOut(b) }); err != nil {
		return pairIndexes{}, err
	}
	inner, err := s.podSocket.link(s.ifName, 0)
	switch {
	case errors.Is(err, unix.ENODEV):
		return pairIndexes{}, fmt.Errorf("find %s in the sandbox: %w", s.ifName, ErrTaken)
	case err != nil:
		return pairIndexes{}, fmt.Errorf("find %s in the sandbox: %w", s.ifName, err)
	}
	return pairIndexes{host: inner.parent, pod: inner.index}, nil
}

// clear removes what stands in the way of a new pair: the sandbox's own end, if it belongs to a veth of the recipe's name,
// and a host veth of that name; where that leads to another sandbox only if may allows it. It removes the link that it saw
// before it asked, not the one that bears the name afterwards.
func (s *sandbox) clear(recipe api.PodNetwork, may May) error {
	found, err := s.find(recipe)
	if err != nil {
		return err
	}
	if found.pod != nil && !found.paired() {
		return fmt.Errorf("%s in the sandbox: %w", s.ifName, ErrForeignLink)
	}
	if found.host == nil {
		return nil
	}
	if found.host.Type() != "veth" {
		return fmt.Errorf("%s: %w", recipe.HostVeth, ErrForeignLink)
	}
	if !found.paired() {
		if err := may(); err != nil {
			return fmt.Errorf("replace veth %s: %w: %w", recipe.HostVeth, ErrTaken, err)
		}
	}
	err = s.around.do("kernel remove stale veth", func() error { return s.host.LinkDel(link(found.host.Attrs().Index)) })
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove stale veth %s: %w", recipe.HostVeth, err)
	}
	return nil
}

// furnishPod sets the pod's end up and gives it its address, gateway and routes.
func (s *sandbox) furnishPod(recipe api.PodNetwork, index int) error {
	b := newBatch()
	b.setUp(index)
	b.setAddr(index, recipe.Addr)
	b.setNeighbour(permanent(index, recipe.Gateway, hostMAC(recipe.Addr.Addr())))
	for _, route := range podRoutes(recipe, index) {
		b.setRoute(route, unix.NLM_F_REPLACE)
	}
	if err := s.around.do("kernel furnish pod end", func() error { return s.podSocket.carryOut(b) }); err != nil {
		return fmt.Errorf("furnish %s: %w", s.ifName, err)
	}
	return nil
}

// withoutIPv6 switches IPv6 off on the host's end of a pod that has none, before it comes up. Nobody speaks IPv6 with it, and
// the kernel walks the IPv6 routes of all veths at each step of one: with 700 pods that doubled the kernel's part of an ADD.
// Where it cannot be done (no IPv6, /proc/sys is read-only) the pod starts as well, only later.
func withoutIPv6(name string) error {
	fd, err := unix.Open("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("1"))
	return errors.Join(err, unix.Close(fd))
}

// furnishHost sets the host's end up and makes the pod reachable; the route comes last.
func (s *sandbox) furnishHost(recipe api.PodNetwork, index int, may May) error {
	addr := recipe.Addr.Addr()
	route := hostRoute(recipe, index)
	if addr.Is4() {
		_ = s.around.do("kernel turn IPv6 off", func() error { return withoutIPv6(recipe.HostVeth) }) // see there
	}
	b := newBatch()
	b.setUp(index)
	b.setNeighbour(permanent(index, addr, podMAC(addr)))
	b.setRoute(route, unix.NLM_F_EXCL)
	furnish := func() error { return s.hostSocket.carryOut(b) }
	err := s.around.do("kernel furnish host end", furnish)
	for attempt := 0; routeExists(err) && attempt < takeovers; attempt++ {
		if err := s.clearRoute(route, may); err != nil {
			return err
		}
		err = s.around.do("kernel furnish host end", furnish)
	}
	if err != nil {
		return fmt.Errorf("furnish host veth, table %d: %w", route.Table, err)
	}
	return nil
}

// routeExists tells whether the kernel refused a route because there is another to its destination.
func routeExists(err error) bool { return errors.Is(err, unix.EEXIST) }

// clearRoute removes a route that an earlier holder of the address left over another link, if may allows it: a plugin that
// was held up for long must not take the route of the address's next holder.
func (s *sandbox) clearRoute(want netlink.Route, may May) error {
	const filter = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_DST
	if err := s.list(); err != nil {
		return err
	}
	found, err := dump(func() ([]netlink.Route, error) {
		return s.host.RouteListFiltered(familyOf(want.Dst), &netlink.Route{Table: want.Table, Dst: want.Dst}, filter)
	})
	if err != nil {
		return fmt.Errorf("list routes to %s in table %d: %w", want.Dst, want.Table, err)
	}
	if err := may(); err != nil {
		return fmt.Errorf("replace route to %s: %w: %w", want.Dst, ErrTaken, err)
	}
	for _, route := range found {
		err := s.around.do("kernel remove stale route", func() error { return s.host.RouteDel(&route) })
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove stale route to %s in table %d: %w", want.Dst, want.Table, err)
		}
	}
	return nil
}

// awaitPod waits until the pod's end sends. It was up before its peer, so its carrier came later, and the kernel then
// switches the queue on in a worker (net/core/link_watch.c): until that ran, every packet of the pod is dropped in silence.
// The host's end needs no wait: it came up with carrier. Newer kernels do the worker's work when they are asked (commit
// facd15dfd691 of December 2023), so that the first answer mostly is the last; older ones are asked again.
func (s *sandbox) awaitPod(index int) error {
	deadline := time.Now().Add(carrierTimeout)
	for {
		inner, err := s.podSocket.link(s.ifName, index)
		switch {
		case err != nil:
			return fmt.Errorf("read state of %s: %w", s.ifName, err)
		case netlink.LinkOperState(inner.operState) == netlink.OperUp:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("await %s: still %s after %s", s.ifName, netlink.LinkOperState(inner.operState), carrierTimeout)
		}
		time.Sleep(carrierBackoff) //nolint:forbidigo // the backoff that the comment above explains
	}
}

// Teardown removes a pod's pair by its end inside the namespace at path; the host's neighbour and route go with it. An
// empty path, a vanished namespace and a missing link are success: then the pair is gone, and what bears its name on the
// host is another sandbox's.
func (a Around) Teardown(path, ifName string) error {
	s, vanished, err := open(path, ifName)
	if err != nil || vanished {
		return err
	}
	defer s.close()
	inner, err := s.podSocket.link(ifName, 0)
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil
	case err != nil:
		return fmt.Errorf("find %s in the sandbox: %w", ifName, err)
	case inner.kind != "veth":
		return fmt.Errorf("remove %s: %w", ifName, ErrForeignLink)
	}
	err = a.do("kernel remove veth", func() error { return s.podSocket.remove(inner.index) })
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", ifName, err)
	}
	return nil
}

// podMAC and hostMAC derive an end's MAC from the pod's address: 0a:58 or 0e:58 (locally administered, unicast), then its
// last four bytes. A MAC that was given at creation is never changed by udev's MACAddressPolicy, whose late change would
// make the other end's permanent neighbour entry wrong; and the next holder of an address keeps remote caches right.
func podMAC(addr netip.Addr) net.HardwareAddr  { return api.PodMAC(addr) }
func hostMAC(addr netip.Addr) net.HardwareAddr { return api.HostMAC(addr) }
