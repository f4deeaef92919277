package dataplane

import (
	"cmp"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
)

// sets are the sets and maps of the rules.
type sets struct {
	vpc        *nftables.Set // ranges: the VPC's, and link-local, which never leaves it
	peered     *nftables.Set // ranges of peered VPCs
	sources    *nftables.Set // link name . IPv4 address that may send there
	blocks     *nftables.Set // the same for /28 prefixes, by their first addresses
	macs       *nftables.Set // link name . MAC that may send there
	own        *nftables.Set // link name . address of the network itself on that link
	unchecked  *nftables.Set // link names whose source check is off
	publics    *nftables.Set // public addresses
	associated *nftables.Set // private addresses that have a public one
	publicOf   *nftables.Set // private -> public address
	privateOf  *nftables.Set // public -> private address
	members    *nftables.Set // security group . address of a member
	// memberBlocks is the same for /28 prefixes, by their first addresses.
	memberBlocks *nftables.Set
	egressOf     *nftables.Set // link name -> chain of the sender's groups
	ingressOf    *nftables.Set // link name -> chain of the receiver's groups
	ids          *nftables.Set // link name . its number
	idOf         *nftables.Set // link name -> its number, for connection marks
	labelOf      *nftables.Set // link name -> its number, for connection labels
	primaryOf    *nftables.Set // link name -> primary address
	ttlPlusOne   *nftables.Set // t -> t + 1
	allowance    *nftables.Set // link name, with its limit of link-local packets; the kernel fills it
}

func (r *rules) addSets() error {
	name, addr, mac, number := nftables.TypeIFName, r.p.addr, nftables.TypeEtherAddr, nftables.TypeMark
	octet, label := nftables.TypeInteger, nftables.TypeInteger // these have no types of their own
	octet.Bytes, label.Bytes = 1, 16
	// Names are in the machine's byte order, which only listings need to know.
	native := binaryutil.NativeEndian
	set := func(name string, key nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: r.ip, Name: name, KeyType: key}
	}
	pair := func(name string, a, b nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: r.ip, Name: name, KeyType: nftables.MustConcatSetType(a, b), Concatenation: true}
	}
	toAddr := func(name string) *nftables.Set {
		return &nftables.Set{Table: r.ip, Name: name, KeyType: addr, IsMap: true, DataType: addr}
	}
	byLink := func(table *nftables.Table, title string, data nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: table, Name: title, KeyType: name, KeyByteOrder: native, IsMap: true, DataType: data}
	}
	r.sets = sets{
		vpc:     &nftables.Set{Table: r.ip, Name: "vpc", KeyType: addr, Interval: true},
		peered:  &nftables.Set{Table: r.ip, Name: "peered", KeyType: addr, Interval: true},
		sources: pair("sources", name, addr), blocks: pair("blocks", name, addr), macs: pair("macs", name, mac), own: pair("own", name, addr),
		unchecked: &nftables.Set{Table: r.ip, Name: "unchecked", KeyType: name, KeyByteOrder: native},
		publics:   set("publics", addr), associated: set("associated", addr),
		publicOf: toAddr("public_of"), privateOf: toAddr("private_of"),
		members: pair("members", mac, addr), memberBlocks: pair("member_blocks", mac, addr),
		egressOf: byLink(r.ip, "egress_of", nftables.TypeVerdict), ingressOf: byLink(r.ip, "ingress_of", nftables.TypeVerdict),
		ids: pair("ids", name, number), idOf: byLink(r.ip, "id_of", number), labelOf: byLink(r.ip, "label_of", label),
		primaryOf:  byLink(cmp.Or(r.arp, r.ip), "primary_of", addr),
		ttlPlusOne: &nftables.Set{Table: r.ip, Name: "ttl_plus_one", KeyType: octet, IsMap: true, DataType: octet},
		allowance:  &nftables.Set{Table: r.ip, Name: "allowance", KeyType: name, KeyByteOrder: native, Dynamic: true},
	}
	var ttls []nftables.SetElement
	for t := range byte(255) {
		ttls = append(ttls, nftables.SetElement{Key: []byte{t}, Val: []byte{t + 1}})
	}
	for _, s := range append(r.following(), r.sets.allowance) {
		if err := r.conn.AddSet(s, nil); err != nil {
			return fmt.Errorf("add set %s: %w", s.Name, err)
		}
	}
	if err := r.conn.AddSet(r.sets.ttlPlusOne, ttls); err != nil {
		return fmt.Errorf("add set ttl_plus_one: %w", err)
	}
	return nil
}

// following are the sets that follow the ports.
func (r *rules) following() []*nftables.Set {
	s := r.sets
	return []*nftables.Set{
		s.vpc, s.peered, s.sources, s.blocks, s.memberBlocks, s.macs, s.own, s.unchecked, s.publics, s.associated, s.publicOf, s.privateOf, s.members,
		s.egressOf, s.ingressOf, s.ids, s.idOf, s.labelOf, s.primaryOf,
	}
}
