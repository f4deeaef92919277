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
// No sysctl is written. The gateway needs no address and no proxy_arp on the host, because its neighbour entry is
// permanent; strict rp_filter accepts the pod's packets, because the rule for the pods' table comes before all others.
//
// # Two sandboxes of one pod name
//
// They share the host veth's name. The newer one wins: Setup removes a veth that bears the name, and with it the end in
// the older sandbox, even if that one still runs: the runtime makes a new sandbox only when it has given up the old one.
// Teardown deletes by the end inside the sandbox alone, so a late one for the older sandbox finds nothing and harms
// nothing.
package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// ErrForeignLink says that the name is taken by a link that is not a pod's veth of this recipe. It is left alone.
var ErrForeignLink = errors.New("link exists and is not this pod's veth")

// ErrHostNamespace says that the sandbox's namespace is the caller's own, whose links are the node's.
var ErrHostNamespace = errors.New("sandbox namespace is the host's own")

// Pair is what a pod's two ends are known by. Both addresses are read back, not assumed.
type Pair struct {
	HostMAC, PodMAC net.HardwareAddr
}

// The wait for the kernel to switch a link on. It takes well under a millisecond on an idle machine; the kernel's worker
// may put an event off by a second, and stands in the queue for the network configuration's lock like everybody.
const (
	carrierTimeout = 5 * time.Second
	carrierBackoff = 500 * time.Microsecond
)

// sandbox is a pod's namespace seen from the host's: one netlink socket in each.
type sandbox struct {
	ns        ns.NetNS
	host, pod *netlink.Handle
	ifName    string
}

// open enters a sandbox's namespace. vanished is true if path is empty or there is no namespace (any more).
func open(path, ifName string) (s *sandbox, vanished bool, err error) {
	if path == "" {
		return nil, true, nil
	}
	namespace, err := ns.GetNS(path)
	var absent ns.NSPathNotExistErr
	var notNS ns.NSPathNotNSErr
	switch {
	case errors.As(err, &absent), errors.As(err, &notNS):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("open namespace %s: %w", path, err)
	}
	s = &sandbox{ns: namespace, ifName: ifName}
	if err := s.connect(); err != nil {
		s.close()
		return nil, false, err
	}
	return s, false, nil
}

func (s *sandbox) connect() error {
	var own, theirs unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return fmt.Errorf("look at own namespace: %w", err)
	}
	if err := unix.Fstat(int(s.ns.Fd()), &theirs); err != nil {
		return fmt.Errorf("look at namespace %s: %w", s.ns.Path(), err)
	}
	if own.Ino == theirs.Ino && own.Dev == theirs.Dev {
		return ErrHostNamespace
	}
	var err error
	if s.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink of the host: %w", err)
	}
	if s.pod, err = netlink.NewHandleAt(netns.NsHandle(s.ns.Fd()), unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink of namespace %s: %w", s.ns.Path(), err)
	}
	return nil
}

func (s *sandbox) close() {
	if s.host != nil {
		s.host.Close()
	}
	if s.pod != nil {
		s.pod.Close()
	}
	_ = s.ns.Close()
}

// Setup builds a pod's network in the namespace at path. It is idempotent: a complete pair is kept, an incomplete one (a
// plugin was killed) or a stale one of the same name (an older sandbox's) is replaced. ErrForeignLink and ErrHostNamespace
// name what it will not touch. After an error nothing of a new pair stands; only the kill of the process leaves a part.
func Setup(path, ifName string, recipe api.PodNetwork) (Pair, error) {
	if err := validate(recipe); err != nil {
		return Pair{}, err
	}
	s, vanished, err := open(path, ifName)
	if err != nil {
		return Pair{}, err
	}
	if vanished {
		return Pair{}, fmt.Errorf("set up %s: no namespace at %q", ifName, path)
	}
	defer s.close()

	host, err := s.create(recipe)
	if errors.Is(err, unix.EEXIST) {
		if found, diff, err := s.compare(recipe); err == nil && len(diff) == 0 {
			return found.macs(), s.awaitHost(found.host.Attrs().Index)
		}
		if err := s.clear(recipe); err != nil {
			return Pair{}, err
		}
		host, err = s.create(recipe)
	}
	if err != nil {
		return Pair{}, fmt.Errorf("create veth %s: %w", recipe.HostVeth, err)
	}
	if err := s.furnish(recipe, host); err != nil {
		if undo := s.host.LinkDel(&netlink.Veth{LinkAttrs: *host}); undo != nil && !errors.Is(undo, unix.ENODEV) {
			err = fmt.Errorf("%w; remove veth again: %w", err, undo)
		}
		return Pair{}, err
	}
	return Pair{HostMAC: host.HardwareAddr, PodMAC: podMAC(recipe.Addr.Addr())}, nil
}

// furnish gives both ends of a new pair what they carry, and waits until they carry packets.
func (s *sandbox) furnish(recipe api.PodNetwork, host *netlink.LinkAttrs) error {
	if err := s.furnishPod(recipe, host.HardwareAddr); err != nil {
		return err
	}
	if err := s.furnishHost(recipe, host.Index); err != nil {
		return err
	}
	return s.awaitHost(host.Index)
}

// create makes the pair with each end where it lives, and returns the host's. Moving an end between namespaces takes 12
// to 33 ms, being born in place 1 ms.
func (s *sandbox) create(recipe api.PodNetwork) (*netlink.LinkAttrs, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = recipe.HostVeth
	attrs.MTU = recipe.MTU
	attrs.Flags = net.FlagUp
	attrs.HardwareAddr = hostMAC(recipe.Addr.Addr())
	veth := netlink.NewVeth(attrs)
	veth.PeerName = s.ifName
	veth.PeerNamespace = netlink.NsFd(s.ns.Fd())
	veth.PeerHardwareAddr = podMAC(recipe.Addr.Addr())
	if err := s.host.LinkAdd(veth); err != nil {
		return nil, err
	}
	if veth.Index == 0 {
		return nil, errors.New("its index cannot be read")
	}
	return &veth.LinkAttrs, nil
}

// clear removes what stands in the way of a new pair: the sandbox's own end, if it belongs to a veth of the recipe's name,
// and a host veth of that name, whichever sandbox it led to.
func (s *sandbox) clear(recipe api.PodNetwork) error {
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
	if err := s.host.LinkDel(found.host); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove stale veth %s: %w", recipe.HostVeth, err)
	}
	return nil
}

// furnishPod gives the pod's end its address, gateway and routes.
func (s *sandbox) furnishPod(recipe api.PodNetwork, gatewayMAC net.HardwareAddr) error {
	link, err := s.pod.LinkByName(s.ifName)
	if err != nil {
		return fmt.Errorf("find %s in the sandbox: %w", s.ifName, err)
	}
	index := link.Attrs().Index
	if err := s.pod.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", s.ifName, err)
	}
	if err := s.pod.AddrReplace(link, &netlink.Addr{IPNet: ipNet(recipe.Addr)}); err != nil {
		return fmt.Errorf("add address %s: %w", recipe.Addr, err)
	}
	if err := s.pod.NeighSet(permanent(index, recipe.Gateway, gatewayMAC)); err != nil {
		return fmt.Errorf("add gateway's neighbour entry: %w", err)
	}
	for _, route := range podRoutes(recipe, index) {
		if err := s.pod.RouteReplace(&route); err != nil {
			return fmt.Errorf("add route to %s: %w", route.Dst, err)
		}
	}
	return nil
}

// furnishHost makes the pod reachable. The route comes last, and replaces one that an earlier holder of the address left
// over another link.
func (s *sandbox) furnishHost(recipe api.PodNetwork, index int) error {
	addr := recipe.Addr.Addr()
	if err := s.host.NeighSet(permanent(index, addr, podMAC(addr))); err != nil {
		return fmt.Errorf("add pod's neighbour entry: %w", err)
	}
	route := hostRoute(recipe, index)
	if err := s.host.RouteReplace(&route); err != nil {
		return fmt.Errorf("add route to %s in table %d: %w", route.Dst, route.Table, err)
	}
	return nil
}

// awaitHost waits until the host's end sends. It was up before its peer, so its carrier came later, and the kernel then
// switches the queue on in a worker (net/core/link_watch.c): until that ran, every reply to the pod is dropped in silence.
// The pod's end needs no wait: it came up with carrier. Newer kernels do the worker's work when they are asked (commit
// facd15dfd691 of December 2023), so that the first answer mostly is the last; older ones are asked again.
func (s *sandbox) awaitHost(index int) error {
	deadline := time.Now().Add(carrierTimeout)
	for {
		link, err := s.host.LinkByIndex(index)
		switch {
		case err != nil:
			return fmt.Errorf("read state of host veth: %w", err)
		case link.Attrs().OperState == netlink.OperUp:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("await host veth: still %s after %s", link.Attrs().OperState, carrierTimeout)
		}
		time.Sleep(carrierBackoff) //nolint:forbidigo // the backoff that the comment above explains
	}
}

// Teardown removes a pod's pair by its end inside the namespace at path; the host's neighbour and route go with it. An
// empty path, a vanished namespace and a missing link are success: then the pair is gone, and what bears its name on the
// host is another sandbox's.
func Teardown(path, ifName string) error {
	s, vanished, err := open(path, ifName)
	if err != nil || vanished {
		return err
	}
	defer s.close()
	link, err := s.pod.LinkByName(ifName)
	switch {
	case isAbsent(err):
		return nil
	case err != nil:
		return fmt.Errorf("find %s in the sandbox: %w", ifName, err)
	case link.Type() != "veth":
		return fmt.Errorf("remove %s: %w", ifName, ErrForeignLink)
	}
	if err := s.pod.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", ifName, err)
	}
	return nil
}

// podMAC and hostMAC derive an end's MAC from the pod's address: 0a:58 or 0e:58 (locally administered, unicast), then its
// last four bytes. A MAC that was given at creation is never changed by udev's MACAddressPolicy, whose late change would
// make the other end's permanent neighbour entry wrong; and the next holder of an address keeps remote caches right.
func podMAC(addr netip.Addr) net.HardwareAddr  { return derivedMAC(0x0a, addr) }
func hostMAC(addr netip.Addr) net.HardwareAddr { return derivedMAC(0x0e, addr) }

func derivedMAC(first byte, addr netip.Addr) net.HardwareAddr {
	bytes := addr.AsSlice()
	return append(net.HardwareAddr{first, 0x58}, bytes[len(bytes)-4:]...)
}
