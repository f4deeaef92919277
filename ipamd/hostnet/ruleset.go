package hostnet

import (
	"fmt"
	"net/netip"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// desiredTable is the nftables table for the ENIs that are there (ascending by device). Each part of it is the answer to a
// failure that was seen:
//
//   - It is several chains, not one. Where a packet came in is only to be seen before destination NAT (arrive); whether it
//     leaves the VPC is only known after it (leave), else a ClusterIP counts as outside; translation has its own hook (snat).
//   - "Leaves the VPC" is decided once for a connection, when it is new, and kept in the connection's mark. Decided for
//     each packet, the replies to a client outside that reached a pod directly (a load balancer with IP targets) would be
//     sent out by the primary ENI.
//   - Only our bits of a mark are ever written: kube-proxy and policy engines keep theirs in the same word.
//   - What comes for an address that no pod has at the moment ends here (unclaimed). Routed on, it would go back to the VPC,
//     which counts it as a packet from a wrong source, or go round. It is dropped, not refused: a pod that is just starting
//     is reached by the second try.
//   - The choice by source address is a verdict map, so its cost does not grow with the pods. Plain (hash) maps, as all
//     keys are single addresses: one more address is one small transaction that disturbs no other.
func desiredTable(cfg Config, want pool.HostState, there []pool.HostENI, names map[string]string) *Table {
	t := &Table{}
	prefixes := inside(want)
	// Without any CIDR nothing is called outside: SNAT for everything would be worse than for nothing.
	translate := !cfg.ExternalSNAT && len(prefixes) > 0

	t.addENIs(there)
	t.addSpare(cfg, there)
	t.addLeave(cfg, translate)
	if cfg.NodePort {
		t.addArrive(there, names)
	}
	if translate {
		set := Set{Name: setInside, Type: SetPrefix}
		for _, p := range prefixes {
			set.Elements = append(set.Elements, Element{Key: p.String()})
		}
		t.Sets = append(t.Sets, set)
		t.addSNAT(there, names)
	}
	return t
}

// addENIs gives every secondary ENI the chain that marks packets for it, and every secondary address its way there.
func (t *Table) addENIs(there []pool.HostENI) {
	sources := Set{Name: mapSource, Type: SetAddrEnd}
	seen := make(map[netip.Addr]bool)
	for _, eni := range there {
		if eni.Device == 0 {
			continue // no mark: the main table leads to the primary ENI
		}
		name := chainUseENI(eni.Device)
		t.Chains = append(t.Chains, Chain{Name: name, Rules: []Statement{
			say("", setPacketMark(markENIMask, uint32(eniMark(eni.Device)))),
		}})
		for _, addr := range eni.Addresses {
			if seen[addr] || !addr.Is4() {
				continue
			}
			seen[addr] = true
			sources.Elements = append(sources.Elements, Element{Key: addr.String(), Goto: name})
		}
	}
	t.Sets = append(t.Sets, sources)
}

// addSpare is the chain that ends packets for addresses of ours that are free or cooling: they have no route to a pod, so that
// the default route leads them out again. A pod of the other CNI, while one replaces the other, has a link by the same names.
func (t *Table) addSpare(cfg Config, there []pool.HostENI) {
	own := Set{Name: setOwn, Type: SetAddr}
	seen := make(map[netip.Addr]bool)
	for _, eni := range there {
		for _, addr := range eni.Addresses {
			if addr.Is4() && !seen[addr] {
				seen[addr] = true
				own.Elements = append(own.Elements, Element{Key: addr.String()})
			}
		}
	}
	t.Sets = append(t.Sets, own)
	t.Chains = append(t.Chains, Chain{Name: chainSpare, Hook: baseChain("filter", hookForward, priorityFilter), Rules: []Statement{
		say("to an address of ours that no pod has: not back to the VPC", notToLinks(cfg.VethPrefix), toAny(setOwn), discard()),
	}})
}

// addLeave is the chain that decides, after destination NAT, by which ENI a pod's packet leaves.
func (t *Table) addLeave(cfg Config, translate bool) {
	leave := Chain{Name: chainLeave, Hook: baseChain("filter", hookPrerouting, priorityLeave)}
	leave.Rules = append(leave.Rules, say("only what comes from pods", notFromLinks(cfg.VethPrefix), done()))
	if translate {
		leave.Rules = append(leave.Rules, say("new connection to outside the VPC: by the primary ENI, for all its packets",
			newConnection(), connectionMark(markOurs, 0), notTo(setInside), notToNode(), setConnectionMark(markMain, markMain)))
	}
	if translate || cfg.NodePort {
		leave.Rules = append(leave.Rules, say("connection that belongs to the primary ENI",
			connectionMark(markMain, markMain), setPacketMark(markMain, markMain), done()))
	}
	if cfg.NodePort {
		leave.Rules = append(leave.Rules, say("reply: by the ENI that the connection came by", byConnectionMark(markENIMask, mapMark)))
	}
	leave.Rules = append(leave.Rules, say("else by the ENI that holds the pod's address", bySource(mapSource)))
	t.Chains = append(t.Chains, leave)
}

// addArrive is the chain that notes, before destination NAT hides it, which ENI a connection to the node came by.
func (t *Table) addArrive(there []pool.HostENI, names map[string]string) {
	arrivals := Set{Name: mapArrival, Type: SetLinkEnd}
	marks := Set{Name: mapMark, Type: SetMarkEnd}
	for _, eni := range there {
		came := chainCameENI(eni.Device)
		noted := markMain
		if eni.Device != 0 {
			noted = uint32(eniMark(eni.Device))
			marks.Elements = append(marks.Elements, Element{Key: fmt.Sprintf("0x%08x", noted), Goto: chainUseENI(eni.Device)})
		}
		arrivals.Elements = append(arrivals.Elements, Element{Key: fmt.Sprintf("%q", names[eni.ID]), Goto: came})
		t.Chains = append(t.Chains, Chain{Name: came, Rules: []Statement{say("", setConnectionMark(markOurs, noted))}})
	}
	t.Sets = append(t.Sets, arrivals, marks)
	t.Chains = append(t.Chains, Chain{Name: chainArrive, Hook: baseChain("filter", hookPrerouting, priorityArrive), Rules: []Statement{
		say("connection to an address of the node, NodePorts among them", newConnection(), toArrivalLink(), byArrivalLink(mapArrival)),
	}})
}

// addSNAT is the chain that translates what leaves the VPC by the primary ENI to its primary address, the only one that may
// have a public one. The node's own connections have it already, and keep their ports.
func (t *Table) addSNAT(there []pool.HostENI, names map[string]string) {
	snat := Chain{Name: chainSNAT, Hook: baseChain("nat", hookPostrouting, prioritySNAT)}
	for _, eni := range there {
		if eni.Device == 0 {
			snat.Rules = append(snat.Rules, say("to outside the VPC: from the primary address",
				leavesBy(names[eni.ID]), notFrom(eni.Primary), notTo(setInside), translateSource(eni.Primary)))
		}
	}
	t.Chains = append(t.Chains, snat)
}

// Hooks by their names in nft.
const (
	hookPrerouting  = "prerouting"
	hookForward     = "forward"
	hookPostrouting = "postrouting"
)

// baseChain is a base chain's first line.
func baseChain(kind, hook string, priority int) string {
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", kind, hook, priority)
}
