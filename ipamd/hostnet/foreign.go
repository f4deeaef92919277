package hostnet

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	// priorityOfMain is where the kernel looks up the main table, by which the packets of the primary ENI's pods leave.
	priorityOfMain = 32766
	// cloudSetupFirst to cloudSetupLast are the priorities and tables of nm-cloud-setup: 30200, 30350 and 30400 plus the
	// number of the interface (NetworkManager, src/nm-cloud-setup/main.c).
	cloudSetupFirst, cloudSetupLast = 30200, 30499
)

// incumbents are the priorities of the other CNI's rules. They are part of taking over from it, not strangers.
var incumbents = []int{10, 20, 512, 1024, 1535, 1536, 32765}

// foreignRules describes the rules of others that some pod's packets meet before the rule of ours (or the main table) that
// should decide: nothing of ours is missing then, and still packets go astray.
func foreignRules(rules []netlink.Rule, want pool.HostState, vethPrefix string) []string {
	var found []string
	for _, r := range rules {
		if !catchesPods(r, want, vethPrefix) {
			continue
		}
		text := fmt.Sprintf("%d: %s lookup %d", r.Priority, selectors(r), r.Table)
		if cloudSetup(r.Priority) || cloudSetup(r.Table) {
			text += " (NetworkManager's nm-cloud-setup: disable nm-cloud-setup.timer and nm-cloud-setup.service, and reboot)"
		}
		found = append(found, text)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func cloudSetup(number int) bool { return number >= cloudSetupFirst && number <= cloudSetupLast }

// catchesPods tells whether a rule takes a pod's packet before the rule that decides about it: for packets to pods that is
// ours for the pods' table, for those from pods that of their ENI's mark (of the primary ENI: the main table's). A rule for a
// mark is for packets that somebody marks on purpose, one for an outgoing link for sockets bound to it.
func catchesPods(r netlink.Rule, want pool.HostState, vethPrefix string) bool {
	switch {
	case r.Priority >= priorityOfMain, slices.Contains(incumbents, r.Priority):
		return false
	case cloudSetup(r.Priority), cloudSetup(r.Table):
		return true // what it does not catch now it will: it asks for all addresses of the ENIs every five minutes
	case r.Table == unix.RT_TABLE_LOCAL, r.Table == tableMain && r.SuppressPrefixlen >= 0:
		return false // the kernel's own; and the main table without its default route
	case r.Mark != 0, r.OifName != "", r.Invert:
		return false
	}
	otherLinks := r.IifName != "" && !strings.HasPrefix(r.IifName, vethPrefix) // only packets to pods come by those
	from, to := prefixOf(r.Src), prefixOf(r.Dst)
	for _, eni := range want.ENIs {
		decides := priorityOfMain
		if eni.Device != 0 {
			decides = priorityMark + eniMark(eni.Device)
		}
		for _, addr := range eni.Addresses {
			toPod := r.Priority < priorityPods && to.Contains(addr)
			fromPod := !otherLinks && r.Priority < decides && to.Bits() == 0 && from.Contains(addr) && (r.Table != tableMain || eni.Device != 0)
			if toPod || fromPod {
				return true
			}
		}
	}
	return false
}

// prefixOf is a rule's source or destination; nil is everything.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return everywhere()
	}
	addr, ok := netip.AddrFromSlice(n.IP.To4())
	if !ok {
		return everywhere()
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}

// selectors are a rule's conditions as ip(8) prints them.
func selectors(r netlink.Rule) string {
	text := "from all"
	if r.Src != nil {
		text = "from " + prefixOf(r.Src).String()
	}
	if r.Dst != nil {
		text += " to " + prefixOf(r.Dst).String()
	}
	if r.IifName != "" {
		text += " iif " + r.IifName
	}
	return text
}
