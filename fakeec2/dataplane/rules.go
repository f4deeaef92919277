package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// Reasons for a drop; each is the name of a counter in the fabric's table. Source of the laws: VPC user guide.
const (
	DropMulticast = "multicast"               // broadcast or multicast: a VPC carries unicast only
	DropNoAddress = "no-such-address"         // in the VPC's range, but no ENI holds it; also another subnet's gateway
	DropSource    = "source-check"            // the source is not an address of the ENI, or a VPC's source from outside
	DropSourceMAC = "source-mac"              // the frame's source is not the ENI's MAC
	DropNoPublic  = "igw-no-public-address"   // toward or from the internet without a public association
	DropNoOutside = "igw-unknown-destination" // nobody is there: outside hosts are those of the model
	DropUntracked = "igw-untracked"           // a packet at the internet gateway that belongs to no connection
)

// dropReasons are all of them, in the order of the counters.
func dropReasons() []string {
	return []string{
		DropMulticast, DropNoAddress, DropSource, DropSourceMAC, DropNoPublic, DropNoOutside, DropUntracked,
	}
}

const (
	tableName = "fabric"
	// restoredMark marks a packet that came with TTL 1. It never leaves the fabric: marks end at a namespace's edge.
	restoredMark = 1
	// arpInput is the kernel's NF_ARP_IN; in the arp family hooks have numbers of their own.
	arpInput   = 0
	arpRequest = 1
)

// rules is the fabric's nftables state: fixed chains, and sets that follow the ports. In nft's words:
//
//	table ip fabric {
//	  chain arrive { type filter hook prerouting priority -300
//	    iifname "out-*" ip saddr @vpc counter name source-check drop
//	    iifname "out-*" ip daddr @publics accept
//	    iifname "out-*" counter name igw-no-public-address drop
//	    meta pkttype != host counter name multicast drop
//	    ip daddr & 224.0.0.0 == 224.0.0.0 counter name multicast drop
//	    iifname . ether saddr != @macs counter name source-mac drop
//	    iifname . ip saddr @sources goto switch
//	    iifname @unchecked goto switch
//	    counter name source-check drop
//	  }
//	  chain switch {
//	    ip daddr @vpc goto inside
//	    ip saddr @associated goto leave
//	    counter name igw-no-public-address drop
//	  }
//	  chain inside {
//	    notrack
//	    iifname . ip daddr @own accept       # this port's gateway, and instance metadata
//	    fib daddr oif missing counter name no-such-address drop
//	    ip ttl 1 ip ttl set 2 meta mark set 1
//	  }
//	  chain leave { fib daddr oif missing counter name igw-unknown-destination drop }
//	  chain forward { type filter hook forward priority 0
//	    iifname "out-*" accept
//	    oifname "out-*" ct state invalid counter name igw-untracked drop
//	    oifname "out-*" accept
//	    meta mark 1 accept
//	    ip ttl set ip ttl map @ttl_plus_one  # what the router took away
//	  }
//	  chain igw_in  { type nat hook prerouting priority -100;  iifname "out-*" dnat to ip daddr map @private_of }
//	  chain igw_out { type nat hook postrouting priority 100;  oifname "out-*" snat to ip saddr map @public_of }
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
// come that far, so it gets 2 on arrival. Only connections through the internet gateway are tracked.
//
// The arp table keeps the neighbour table clean: the kernel learns the sender of a request, and a guest may ask from any of
// its addresses. As each request seems to come from the ENI's primary address, it meets the permanent entry of that.
type rules struct {
	conn     *nftables.Conn
	ip, arp  *nftables.Table
	counters map[string]*nftables.NamedObj
	sets     sets
	have     elements
}

// newRules builds chains and empty sets in one transaction.
func newRules(ns *netlab.Namespace) (*rules, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(ns.FD()), nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	r := &rules{conn: conn, counters: map[string]*nftables.NamedObj{}}
	r.ip = conn.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4})
	r.arp = conn.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyARP})
	for _, reason := range dropReasons() {
		o := &nftables.NamedObj{Table: r.ip, Name: reason, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}}
		conn.AddObj(o)
		r.counters[reason] = o
	}
	if err := r.addSets(); err != nil {
		r.close()
		return nil, err
	}
	r.addArrive()
	r.addForward()
	r.addGateway()
	r.addARP()
	if err := conn.Flush(); err != nil {
		r.close()
		return nil, fmt.Errorf("write nftables rules: %w", err)
	}
	return r, nil
}

func (r *rules) close() { _ = r.conn.CloseLasting() } // a socket's close has nothing to say here

// count adds this fabric's drop counters to total.
func (r *rules) count(total map[string]uint64) error {
	objects, err := r.conn.GetNamedObjects(r.ip)
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

func (r *rules) addArrive() {
	arrive := r.base("arrive", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw)
	toward := r.conn.AddChain(&nftables.Chain{Name: "switch", Table: r.ip})
	inside := r.conn.AddChain(&nftables.Chain{Name: "inside", Table: r.ip})
	leave := r.conn.AddChain(&nftables.Chain{Name: "leave", Table: r.ip})

	fromOutside := linkPrefix(expr.MetaKeyIIFNAME, outsidePort)
	r.add(arrive, fromOutside, load(ipSource), inSet(r.sets.vpc), r.drop(DropSource))
	r.add(arrive, fromOutside, load(ipDestination), inSet(r.sets.publics), accept())
	r.add(arrive, fromOutside, r.drop(DropNoPublic))
	r.add(arrive, []expr.Any{&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: reg1}}, differs([]byte{packetHost}), r.drop(DropMulticast))
	r.add(arrive, load(ipDestination), masked(classD), equals(classD), r.drop(DropMulticast))
	r.add(arrive, linkName(reg1), loadTo(etherSource, reg2), notInSet(r.sets.macs), r.drop(DropSourceMAC))
	r.add(arrive, linkName(reg1), loadTo(ipSource, reg2), inSet(r.sets.sources), goTo(toward))
	r.add(arrive, linkName(reg1), inSet(r.sets.unchecked), goTo(toward))
	r.add(arrive, r.drop(DropSource))

	r.add(toward, load(ipDestination), inSet(r.sets.vpc), goTo(inside))
	r.add(toward, load(ipSource), inSet(r.sets.associated), goTo(leave))
	r.add(toward, r.drop(DropNoPublic))

	r.add(inside, []expr.Any{&expr.Notrack{}})
	r.add(inside, linkName(reg1), loadTo(ipDestination, reg2), inSet(r.sets.own), accept())
	r.add(inside, noRoute(), r.drop(DropNoAddress))
	r.add(inside, load(ipTTL), equals([]byte{1}), value(reg1, []byte{2}), writeTTL(reg1), setMark(restoredMark))

	r.add(leave, noRoute(), r.drop(DropNoOutside))
}

func (r *rules) addForward() {
	forward := r.base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	fromOutside := linkPrefix(expr.MetaKeyIIFNAME, outsidePort)
	toOutside := linkPrefix(expr.MetaKeyOIFNAME, outsidePort)

	state := []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: reg1}}
	none, invalid := make([]byte, 4), binaryutil.NativeEndian.PutUint32(expr.CtStateBitINVALID)
	r.add(forward, fromOutside, accept())
	r.add(forward, toOutside, state, masked(invalid), differs(none), r.drop(DropUntracked))
	r.add(forward, toOutside, accept())
	r.add(forward, []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}}, equals(mark(restoredMark)), accept())
	r.add(forward, load(ipTTL), mapTo(r.sets.ttlPlusOne, reg1), writeTTL(reg1))
}

func (r *rules) addGateway() {
	in := r.base("igw_in", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
	r.add(in, linkPrefix(expr.MetaKeyIIFNAME, outsidePort), load(ipDestination), mapTo(r.sets.privateOf, reg1), nat(expr.NATTypeDestNAT))
	out := r.base("igw_out", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	r.add(out, linkPrefix(expr.MetaKeyOIFNAME, outsidePort), load(ipSource), mapTo(r.sets.publicOf, reg1), nat(expr.NATTypeSourceNAT))
	output := r.base("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, *nftables.ChainPriorityRaw)
	r.add(output, []expr.Any{&expr.Notrack{}})
}

func (r *rules) addARP() {
	arrive := r.conn.AddChain(&nftables.Chain{
		Name: "arrive", Table: r.arp, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookRef(arpInput), Priority: nftables.ChainPriorityFilter,
	})
	r.add(arrive, load(arpOperation), differs(binaryutil.BigEndian.PutUint16(arpRequest)), drop())
	r.add(arrive, linkName(reg1), mapTo(r.sets.primaryOf, reg1), write(arpSender, reg1), accept())
	r.add(arrive, drop())
}

// drop counts a packet and ends it.
func (r *rules) drop(reason string) []expr.Any {
	return append([]expr.Any{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: reason}}, drop()...)
}
