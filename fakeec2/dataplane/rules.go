package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// Reasons for a drop; each is the name of a counter in the fabric's table. Package vpc says what they mean.
const (
	DropMulticast = vpc.DropMulticast
	DropNoAddress = vpc.DropNoAddress
	DropSource    = vpc.DropSource
	DropSourceMAC = vpc.DropSourceMAC
	DropEgress    = vpc.DropEgress
	DropIngress   = vpc.DropIngress
	DropTransit   = vpc.DropTransit
	DropNoPublic  = vpc.DropNoPublic
	DropNoOutside = vpc.DropNoOutside
	DropAllowance = vpc.DropAllowance
	DropVLAN      = vpc.DropVLAN // counted by tags
)

// dropReasons are those that are counted by rules, in the order of the counters.
func dropReasons() []string {
	return []string{
		DropMulticast, DropNoAddress, DropSource, DropSourceMAC, DropEgress, DropIngress, DropTransit, DropNoPublic, DropNoOutside,
		DropAllowance,
	}
}

const (
	tableName = "fabric"
	// restoredMark marks a packet that came with TTL 1. It never leaves the fabric: marks end at a namespace's edge.
	restoredMark = 1
	// arpInput is the kernel's NF_ARP_IN; in the arp family hooks have numbers of their own.
	arpInput   = 0
	arpRequest = 1
	// ICMP types of errors, which carry the beginning of a packet. Source: RFC 792.
	icmpUnreachable, icmpTimeExceeded, icmpParameterProblem = 3, 11, 12
	// ICMPv6 types. Source: RFC 4861.
	neighbourSolicitation, redirect = 135, 137
	// dynsetAdd is the kernel's NFT_DYNSET_OP_ADD.
	dynsetAdd = 0
	// allowance is how many packets a second an ENI may send to the link-local services together. Source: EC2 user guide.
	allowance = 1024
)

// rules is the fabric's nftables state: fixed chains, sets that follow the ports, and two chains for each set of security
// groups (groups.go). In nft's words:
//
//	table ip fabric {
//	  chain arrive { type filter hook prerouting priority -300
//	    meta pkttype != host counter name multicast drop
//	    iifname "out-*" ip saddr @vpc counter name source-check drop       # and @peered
//	    iifname "out-*" ip daddr != @publics counter name igw-no-public-address drop
//	    iifname "out-*" icmp type 3 @th,160,32 set @th,160,32 map @private_of  # the packet that an error is about; also 11, 12
//	    iifname "out-*" ip daddr set ip daddr map @private_of accept
//	    iifname "pcx-*" goto peering
//	    ip daddr & 224.0.0.0 == 224.0.0.0 counter name multicast drop
//	    iifname . ether saddr != @macs counter name source-mac drop
//	    iifname . ip saddr @sources goto switch
//	    iifname . ip saddr & 255.255.255.240 @blocks goto switch
//	    iifname @unchecked goto switch
//	    counter name source-check drop
//	  }
//	  chain peering {
//	    fib saddr . iif oif missing counter name source-check drop   # not of the VPC beyond this link
//	    ip daddr != @vpc counter name peering-not-transitive drop
//	    goto inside
//	  }
//	  chain switch {
//	    ip daddr @vpc goto inside
//	    ip daddr @peered goto inside
//	    ip saddr @associated goto leave
//	    counter name igw-no-public-address drop
//	  }
//	  chain inside {
//	    iifname . ip daddr @own goto own     # this port's gateway, and the services beside every ENI
//	    ip daddr 169.254.0.0/16 counter name no-such-address drop
//	    fib daddr oif missing counter name no-such-address drop
//	    ip ttl 1 ip ttl set 2 meta mark set 1
//	  }
//	  chain own {
//	    iifname . ip saddr @sources goto granted
//	    iifname . ip saddr & 255.255.255.240 @blocks goto granted
//	    counter name source-check drop       # answers go to the ENI only, whatever its check says
//	  }
//	  chain granted {
//	    ip daddr 169.254.0.0/16 add @allowance { iifname limit rate over 1024/second } counter name linklocal-allowance drop
//	    notrack accept
//	  }
//	  chain leave { fib daddr oif missing counter name igw-unknown-destination drop }
//	  chain forward { type filter hook forward priority 0
//	    ct state related goto finish
//	    ct state established ct direction original iifname . ct mark @ids oifname . ct label @ids goto finish
//	    ct state established ct direction reply iifname . ct label @ids oifname . ct mark @ids goto finish
//	    iifname vmap @egress_of
//	    oifname vmap @ingress_of
//	    ct mark 0 ct mark set iifname map @id_of ct label set oifname map @label_of
//	    goto finish
//	  }
//	  chain finish {
//	    iifname "out-*" accept
//	    oifname "out-*" accept
//	    meta mark 1 accept
//	    ip ttl set ip ttl map @ttl_plus_one  # what the router took away
//	  }
//	  chain igw { type filter hook postrouting priority 100
//	    oifname "out-*" icmp type 3 @th,192,32 set @th,192,32 map @public_of     # also 11, 12
//	    oifname "out-*" ip saddr set ip saddr map @public_of
//	  }
//	  chain output { type filter hook output priority -300; notrack }
//	}
//	table arp fabric {
//	  chain arrive { type filter hook input priority 0
//	    arp operation != request drop
//	    arp saddr ip set iifname map @primary_of accept
//	    drop
//	  }
//	}
//
// A router takes one from the TTL before it forwards, and a VPC does not: forward puts it back. A packet with TTL 1 would not
// come that far, so it gets 2 on arrival.
//
// Security groups are stateful for each ENI, but a packet has one connection entry in a namespace: it bears the two links of the
// first packet as mark and label, and a packet of the flow that passes by another link is checked as new.
//
// The internet gateway rewrites addresses one to one and keeps no state, so connections know private addresses only.
//
// The arp table keeps the neighbour table clean: the kernel learns the sender of a request, and a guest may ask from any of
// its addresses. As each request seems to come from the ENI's primary address, it meets the permanent entry of that.
//
// The rules of IPv6 are the same, without the gateway's translation, and with neighbour discovery in the place of ARP.
type rules struct {
	p        protocol
	conn     *nftables.Conn
	ip, arp  *nftables.Table // arp: with IPv4
	counters map[string]*nftables.NamedObj
	sets     sets
	have     elements
	chains   map[string][]groupRule // of security groups, as they stand
}

// newRules builds chains and empty sets in one transaction.
func newRules(ns *netlab.Namespace, p protocol) (*rules, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(ns.FD()), nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	r := &rules{p: p, conn: conn, counters: map[string]*nftables.NamedObj{}, have: elements{}, chains: map[string][]groupRule{}}
	r.ip = conn.AddTable(&nftables.Table{Name: tableName, Family: p.family})
	if p.family == nftables.TableFamilyIPv4 {
		r.arp = conn.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyARP})
	}
	for _, reason := range dropReasons() {
		o := &nftables.NamedObj{Table: r.ip, Name: reason, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}}
		conn.AddObj(o)
		r.counters[reason] = o
	}
	if err := r.addSets(); err != nil {
		r.close()
		return nil, err
	}
	r.addARP()
	r.addArrive()
	r.addForward()
	r.addGateway()
	if err := conn.Flush(); err != nil {
		r.close()
		return nil, fmt.Errorf("write nftables rules: %w", err)
	}
	return r, nil
}

func (r *rules) close() { _ = r.conn.CloseLasting() } // a socket's close has nothing to say here

// count adds this fabric's drop counters to total.
func (r *rules) count(total map[string]uint64) error { return countObjects(r.conn, r.ip, total) }

// countObjects adds the named counters of a table to total.
func countObjects(conn *nftables.Conn, table *nftables.Table, total map[string]uint64) error {
	objects, err := conn.GetNamedObjects(table)
	if err != nil {
		return err
	}
	for _, o := range objects {
		named, ok := o.(*nftables.NamedObj)
		if !ok {
			return errors.New("unexpected kind of object")
		}
		if c, ok := named.Obj.(*expr.Counter); ok {
			total[named.Name] += c.Packets
		}
	}
	return nil
}

func (r *rules) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	return r.conn.AddChain(&nftables.Chain{Name: name, Table: r.ip, Type: kind, Hooknum: hook, Priority: &priority})
}

// add appends a rule to a chain. Each part is a matcher or a statement from expressions.go.
func (r *rules) add(chain *nftables.Chain, parts ...[]expr.Any) {
	r.conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: slices.Concat(parts...)})
}

func (r *rules) chain(name string) *nftables.Chain {
	return r.conn.AddChain(&nftables.Chain{Name: name, Table: r.ip})
}

func (r *rules) addArrive() {
	arrive := r.base("arrive", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw)
	toward, inside, own, leave, peering := r.chain("switch"), r.chain("inside"), r.chain("own"), r.chain("leave"), r.chain("peering")
	granted := r.chain("granted")

	fromOutside := linkPrefix(expr.MetaKeyIIFNAME, outsidePort)
	r.addNeighbourDiscovery(arrive)
	r.add(arrive, []expr.Any{&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: reg1}}, differs([]byte{packetHost}), r.drop(DropMulticast))
	r.add(arrive, fromOutside, load(r.p.source), inSet(r.sets.vpc), r.drop(DropSource))
	r.add(arrive, fromOutside, load(r.p.source), inSet(r.sets.peered), r.drop(DropSource))
	r.add(arrive, fromOutside, load(r.p.destination), notInSet(r.sets.publics), r.drop(DropNoPublic))
	r.addGatewayIn(arrive, fromOutside)
	r.add(arrive, linkPrefix(expr.MetaKeyIIFNAME, peerPort), goTo(peering))
	r.add(arrive, load(field{r.p.destination.base, r.p.destination.offset, 1}), masked(r.p.multicast), equals(r.p.multicast), r.drop(DropMulticast))
	r.add(arrive, linkName(reg1), loadTo(etherSource, reg2), notInSet(r.sets.macs), r.drop(DropSourceMAC))
	r.add(arrive, linkName(reg1), loadTo(r.p.source, reg2), inSet(r.sets.sources), goTo(toward))
	r.add(arrive, linkName(reg1), loadTo(r.p.source, reg2), maskedIn(reg2, r.p.blockMask), inSet(r.sets.blocks), goTo(toward))
	r.add(arrive, linkName(reg1), inSet(r.sets.unchecked), goTo(toward))
	r.add(arrive, r.drop(DropSource))

	r.add(peering, noWayBack(), r.drop(DropSource))
	r.add(peering, load(r.p.destination), notInSet(r.sets.vpc), r.drop(DropTransit))
	r.add(peering, goTo(inside))

	r.add(toward, load(r.p.destination), inSet(r.sets.vpc), goTo(inside))
	r.add(toward, load(r.p.destination), inSet(r.sets.peered), goTo(inside))
	if r.p.family == nftables.TableFamilyIPv6 {
		r.add(toward, goTo(leave)) // every IPv6 address is a public one
	}
	r.add(toward, load(r.p.source), inSet(r.sets.associated), goTo(leave))
	r.add(toward, r.drop(DropNoPublic))

	r.add(inside, linkName(reg1), loadTo(r.p.destination, reg2), inSet(r.sets.own), goTo(own))
	r.add(inside, r.p.in(r.p.destination, r.p.link), r.drop(DropNoAddress))
	r.add(inside, noRoute(), r.drop(DropNoAddress))
	r.add(inside, load(r.p.hops), equals([]byte{1}), value(reg1, []byte{2}), r.p.writeHops(reg1), setMark(restoredMark))

	r.add(own, linkName(reg1), loadTo(r.p.source, reg2), inSet(r.sets.sources), goTo(granted))
	r.add(own, linkName(reg1), loadTo(r.p.source, reg2), maskedIn(reg2, r.p.blockMask), inSet(r.sets.blocks), goTo(granted))
	r.add(own, r.drop(DropSource)) // answers go to the ENI only, whatever its check says
	r.add(granted, r.p.in(r.p.destination, r.p.services), linkName(reg1), r.overAllowance(), r.drop(DropAllowance))
	r.add(granted, []expr.Any{&expr.Notrack{}}, accept())

	r.add(leave, noRoute(), r.drop(DropNoOutside))
}

// overAllowance matches what is more than the allowance of the link in reg1.
func (r *rules) overAllowance() []expr.Any {
	return []expr.Any{&expr.Dynset{
		SrcRegKey: reg1, SetName: r.sets.allowance.Name, SetID: r.sets.allowance.ID, Operation: dynsetAdd,
		Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: allowance, Burst: allowance, Unit: expr.LimitTimeSecond, Over: true}},
	}}
}

func (r *rules) addForward() {
	forward := r.base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	finish := r.chain("finish")
	fromOutside := linkPrefix(expr.MetaKeyIIFNAME, outsidePort)
	toOutside := linkPrefix(expr.MetaKeyOIFNAME, outsidePort)
	established := state(expr.CtStateBitESTABLISHED)
	direction := func(d byte) []expr.Any { return append(tracked(expr.CtKeyDIRECTION, reg1), equals([]byte{d})...) }
	ends := func(in, out expr.CtKey) []expr.Any {
		return slices.Concat(linkName(reg1), tracked(in, reg2), inSet(r.sets.ids), linkOut(reg1), tracked(out, reg2), inSet(r.sets.ids))
	}

	r.add(forward, state(expr.CtStateBitRELATED), goTo(finish))
	r.add(forward, established, direction(0), ends(expr.CtKeyMARK, expr.CtKeyLABELS), goTo(finish))
	r.add(forward, established, direction(1), ends(expr.CtKeyLABELS, expr.CtKeyMARK), goTo(finish))
	r.add(forward, linkName(reg1), jumpBy(r.sets.egressOf))
	r.add(forward, linkOut(reg1), jumpBy(r.sets.ingressOf))
	r.add(forward, tracked(expr.CtKeyMARK, reg1), equals(markBytes(0)),
		linkName(reg1), mapTo(r.sets.idOf, reg1), setTracked(expr.CtKeyMARK, reg1),
		linkOut(reg1), mapTo(r.sets.labelOf, reg1), setTracked(expr.CtKeyLABELS, reg1))
	r.add(forward, goTo(finish))

	r.add(finish, fromOutside, accept())
	r.add(finish, toOutside, accept())
	r.add(finish, []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}}, equals(markBytes(restoredMark)), accept())
	r.add(finish, load(r.p.hops), mapTo(r.sets.ttlPlusOne, reg1), r.p.writeHops(reg1))
}

// addGatewayIn translates what comes through the internet gateway.
func (r *rules) addGatewayIn(arrive *nftables.Chain, fromOutside []expr.Any) {
	if r.p.family != nftables.TableFamilyIPv4 {
		return
	}
	r.rewriteInner(arrive, fromOutside, innerSource, r.sets.privateOf)
	r.add(arrive, fromOutside, load(ipDestination), mapTo(r.sets.privateOf, reg1), writeAddr(ipDestination, reg1), accept())
}

// addGateway translates what leaves through the internet gateway.
func (r *rules) addGateway() {
	output := r.base("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, *nftables.ChainPriorityRaw)
	if r.p.family == nftables.TableFamilyIPv6 { // two addresses of one ENI talk through one port; that is no detour
		r.add(output, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}}, equals([]byte{vpc.ProtoICMPv6}), load(icmpType), equals([]byte{redirect}), drop())
	}
	r.add(output, []expr.Any{&expr.Notrack{}})
	if r.p.family != nftables.TableFamilyIPv4 {
		return
	}
	igw := r.base("igw", nftables.ChainTypeFilter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	toOutside := linkPrefix(expr.MetaKeyOIFNAME, outsidePort)
	r.rewriteInner(igw, toOutside, innerDestination, r.sets.publicOf)
	r.add(igw, toOutside, load(ipSource), mapTo(r.sets.publicOf, reg1), writeAddr(ipSource, reg1))
}

// rewriteInner rewrites an address of the packet that an ICMP error is about.
func (r *rules) rewriteInner(chain *nftables.Chain, where []expr.Any, inner field, by *nftables.Set) {
	for _, kind := range []byte{icmpUnreachable, icmpTimeExceeded, icmpParameterProblem} {
		r.add(chain, where, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}}, equals([]byte{vpc.ProtoICMP}),
			load(icmpType), equals([]byte{kind}), load(inner), mapTo(by, reg1), writeInner(inner, reg1))
	}
}

func (r *rules) addARP() {
	if r.p.family != nftables.TableFamilyIPv4 {
		return
	}
	arrive := r.conn.AddChain(&nftables.Chain{
		Name: "arrive", Table: r.arp, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookRef(arpInput), Priority: nftables.ChainPriorityFilter,
	})
	r.add(arrive, load(arpOperation), differs(binaryutil.BigEndian.PutUint16(arpRequest)), drop())
	r.add(arrive, linkName(reg1), mapTo(r.sets.primaryOf, reg1), write(arpSender, reg1), accept())
	r.add(arrive, drop())
}

// addNeighbourDiscovery lets guests ask for their router and for the services beside it, and for nothing else. As in ARP, each
// question seems to come from one address of the ENI, which has a permanent entry. What else a guest's kernel says to its link
// (reports of multicast groups) is no packet of the VPC, and is not counted.
func (r *rules) addNeighbourDiscovery(arrive *nftables.Chain) {
	if r.p.family != nftables.TableFamilyIPv6 {
		return
	}
	icmp := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}}
	asks := slices.Concat(icmp, equals([]byte{vpc.ProtoICMPv6}), load(icmpType), equals([]byte{neighbourSolicitation}))
	asked := field{expr.PayloadBaseTransportHeader, 8, 16} // the address that is asked for
	r.add(arrive, asks, linkName(reg1), loadTo(asked, reg2), inSet(r.sets.own),
		linkName(reg1), mapTo(r.sets.primaryOf, reg1), writeSource6(reg1), []expr.Any{&expr.Notrack{}}, accept())
	r.add(arrive, asks, drop())
	r.add(arrive, load(field{ip6Destination.base, ip6Destination.offset, 2}), equals([]byte{0xff, 0x02}), drop())
}

// drop counts a packet and ends it.
func (r *rules) drop(reason string) []expr.Any {
	return append([]expr.Any{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: reason}}, drop()...)
}
