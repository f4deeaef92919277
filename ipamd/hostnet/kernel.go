package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// kernel is the sockets of one Apply, Dump or Clean, in the namespace of the thread that opened them, and the links that
// were there.
type kernel struct {
	nl    *netlink.Handle
	nft   *nftables.Conn
	index map[string]int // link name to index
	name  map[int]string

	vethPrefix string
	foreign    []netlink.Rule // the rules of others, as last observed
}

func (h *Host) openKernel() (*kernel, error) {
	k, err := openKernel()
	if err == nil {
		k.vethPrefix = h.cfg.VethPrefix
	}
	return k, err
}

func openKernel() (*kernel, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	nft, err := nftables.New(nftables.AsLasting())
	if err != nil {
		nl.Close()
		return nil, fmt.Errorf("open nfnetlink: %w", err)
	}
	return &kernel{nl: nl, nft: nft}, nil
}

func (k *kernel) close() {
	k.nl.Close()
	_ = k.nft.CloseLasting() // closing a socket that is read and written synchronously has nothing left to report
}

// dump repeats a list that the kernel interrupted because the objects changed meanwhile (NLM_F_DUMP_INTR, EINTR): a list
// with holes would look like drift, and be "repaired". Every netlink dump of this package goes through it.
func dump[T any](what string, list func() ([]T, error)) ([]T, error) {
	var err error
	for range dumpTries {
		var items []T
		if items, err = list(); err == nil {
			return items, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return nil, fmt.Errorf("list %s: %w", what, err)
}

// presentLink is a link as found, with its IPv4 addresses.
type presentLink struct {
	name    string
	index   int
	mac     string
	mtu     int
	up      bool
	running bool // IFF_RUNNING: up, with a carrier, and its queue attached
	stacked bool // made on top of another link, whose MAC it may share
	addrs   []presentAddr
}

type presentAddr struct {
	prefix netip.Prefix
	label  string
}

// readLinks lists the namespace's links.
func (k *kernel) readLinks() ([]presentLink, error) {
	links, err := dump("links", k.nl.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump("addresses", func() ([]netlink.Addr, error) { return k.nl.AddrList(nil, unix.AF_INET) })
	if err != nil {
		return nil, err
	}
	k.index, k.name = make(map[string]int, len(links)), make(map[int]string, len(links))
	byIndex := make(map[int][]presentAddr)
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP.To4())
		if !ok {
			continue
		}
		bits, _ := a.Mask.Size()
		byIndex[a.LinkIndex] = append(byIndex[a.LinkIndex], presentAddr{netip.PrefixFrom(ip, bits), a.Label})
	}
	present := make([]presentLink, 0, len(links))
	for _, l := range links {
		at := l.Attrs()
		k.index[at.Name], k.name[at.Index] = at.Index, at.Name
		present = append(present, presentLink{
			name: at.Name, index: at.Index, mac: at.HardwareAddr.String(), mtu: at.MTU,
			up: at.Flags&net.FlagUp != 0, running: at.Flags&net.FlagRunning != 0,
			stacked: stackedType(l.Type()), addrs: byIndex[at.Index],
		})
	}
	return present, nil
}

// stackedType tells the kinds of link that sit on another one and take its MAC.
func stackedType(kind string) bool {
	return slices.Contains([]string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}, kind)
}

// matchLinks finds each ENI's link by MAC; where several share it (a bridge or bond over the card), the one that holds the
// ENI's primary address, else the oldest.
func matchLinks(enis []pool.HostENI, present []presentLink) map[string]string {
	names := make(map[string]string)
	for _, eni := range enis {
		mac, err := net.ParseMAC(eni.MAC)
		if err != nil {
			continue // nothing can have that MAC; the report shows the ENI missing
		}
		var best *presentLink
		for i := range present {
			l := &present[i]
			if l.mac != mac.String() || l.stacked {
				continue
			}
			if l.holds(eni.Primary) {
				best = l
				break
			}
			if best == nil || l.index < best.index {
				best = l
			}
		}
		if best != nil {
			names[eni.ID] = best.name
		}
	}
	return names
}

func (l *presentLink) holds(addr netip.Addr) bool {
	return slices.ContainsFunc(l.addrs, func(a presentAddr) bool { return a.prefix.Addr() == addr })
}

const sysctlRoot = "/proc/sys/net/ipv4"

// forwardingFile is net.ipv4.ip_forward. Images and kubelet set it too; a node without it forwards no pod's packet, so it is
// ensured here as the incumbent's init container does.
const forwardingFile = "ip_forward"

func rpFilterFile(link string) string { return filepath.Join("conf", link, "rp_filter") }

// readSysctl reads a number below net.ipv4, in the namespace of the calling thread.
func readSysctl(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(sysctlRoot, name))
	if err != nil {
		return 0, fmt.Errorf("read sysctl: %w", err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return value, nil
}

func writeSysctl(name string, value int) error {
	if err := os.WriteFile(filepath.Join(sysctlRoot, name), []byte(strconv.Itoa(value)), 0); err != nil {
		return fmt.Errorf("write sysctl: %w", err)
	}
	return nil
}
