package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
)

const (
	// elementsPerMessage keeps a message under 64 KiB, the limit of a netlink attribute: an element takes about 60 bytes.
	elementsPerMessage = 500
	// elementsPerFlush keeps a transaction under the default send buffer of a socket (208 KiB).
	elementsPerFlush = 2000
)

// sets are the sets and maps of the rules.
type sets struct {
	vpc        *nftables.Set // ranges: the VPC's, and link-local, which never leaves it
	sources    *nftables.Set // link name . IPv4 address that may send there
	macs       *nftables.Set // link name . MAC that may send there
	own        *nftables.Set // link name . address of the fabric on that link
	unchecked  *nftables.Set // link names whose source check is off
	publics    *nftables.Set // public addresses
	associated *nftables.Set // private addresses that have a public one
	publicOf   *nftables.Set // private -> public address
	privateOf  *nftables.Set // public -> private address
	primaryOf  *nftables.Set // link name -> primary address
	ttlPlusOne *nftables.Set // t -> t + 1
}

func (r *rules) addSets() error {
	name, addr, mac := nftables.TypeIFName, nftables.TypeIPAddr, nftables.TypeEtherAddr
	octet := nftables.TypeInteger // a TTL has no type of its own
	octet.Bytes = 1
	// Names are in the machine's byte order, which only listings need to know.
	native := binaryutil.NativeEndian
	r.sets = sets{
		vpc:        &nftables.Set{Table: r.ip, Name: "vpc", KeyType: addr, Interval: true},
		sources:    &nftables.Set{Table: r.ip, Name: "sources", KeyType: nftables.MustConcatSetType(name, addr), Concatenation: true},
		macs:       &nftables.Set{Table: r.ip, Name: "macs", KeyType: nftables.MustConcatSetType(name, mac), Concatenation: true},
		own:        &nftables.Set{Table: r.ip, Name: "own", KeyType: nftables.MustConcatSetType(name, addr), Concatenation: true},
		unchecked:  &nftables.Set{Table: r.ip, Name: "unchecked", KeyType: name, KeyByteOrder: native},
		publics:    &nftables.Set{Table: r.ip, Name: "publics", KeyType: addr},
		associated: &nftables.Set{Table: r.ip, Name: "associated", KeyType: addr},
		publicOf:   &nftables.Set{Table: r.ip, Name: "public_of", KeyType: addr, IsMap: true, DataType: addr},
		privateOf:  &nftables.Set{Table: r.ip, Name: "private_of", KeyType: addr, IsMap: true, DataType: addr},
		primaryOf:  &nftables.Set{Table: r.arp, Name: "primary_of", KeyType: name, KeyByteOrder: native, IsMap: true, DataType: addr},
		ttlPlusOne: &nftables.Set{Table: r.ip, Name: "ttl_plus_one", KeyType: octet, IsMap: true, DataType: octet},
	}
	var ttls []nftables.SetElement
	for t := range byte(255) {
		ttls = append(ttls, nftables.SetElement{Key: []byte{t}, Val: []byte{t + 1}})
	}
	for _, s := range r.following() {
		if err := r.conn.AddSet(s, nil); err != nil {
			return fmt.Errorf("add set %s: %w", s.Name, err)
		}
	}
	if err := r.conn.AddSet(r.sets.ttlPlusOne, ttls); err != nil {
		return fmt.Errorf("add set ttl_plus_one: %w", err)
	}
	return nil
}

// following are the sets that follow the ports, in the order of elements.
func (r *rules) following() []*nftables.Set {
	s := r.sets
	return []*nftables.Set{s.vpc, s.sources, s.macs, s.own, s.unchecked, s.publics, s.associated, s.publicOf, s.privateOf, s.primaryOf}
}

// element is a member of a set in the kernel's form: a value that compares with ==.
type element struct {
	key, value string // bytes
	end        bool   // the end of a range, exclusive
}

// elements are the members of each set, in the order of rules.following.
type elements [10]map[element]bool

// elementsOf says what the sets should hold.
func elementsOf(want fabric) elements {
	var e elements
	for i := range e {
		e[i] = map[element]bool{}
	}
	vpc, sources, macs, own, unchecked := e[0], e[1], e[2], e[3], e[4]
	publics, associated, publicOf, privateOf, primaryOf := e[5], e[6], e[7], e[8], e[9]
	for _, cidr := range append(slices.Clone(want.CIDRs), netip.PrefixFrom(metadataAddr, 16)) {
		first, end := bounds(cidr)
		vpc[element{key: first}] = true
		vpc[element{key: end, end: true}] = true
	}
	for _, p := range want.Ports {
		if p.outside() {
			continue // the rules know these by name
		}
		link := linkKey(p.Name)
		for _, a := range p.addrs() {
			sources[element{key: link + bytesOf(a)}] = true
		}
		own[element{key: link + bytesOf(p.Gateway)}] = true
		own[element{key: link + bytesOf(metadataAddr)}] = true
		if mac, err := net.ParseMAC(p.MAC); err == nil { // plug reports what is none
			macs[element{key: link + string(mac) + "\x00\x00"}] = true // padded to whole registers
		}
		if p.Unchecked {
			unchecked[element{key: link}] = true
		}
		if p.Public.IsValid() {
			publics[element{key: bytesOf(p.Public)}] = true
			associated[element{key: bytesOf(p.Primary)}] = true
			publicOf[element{key: bytesOf(p.Primary), value: bytesOf(p.Public)}] = true
			privateOf[element{key: bytesOf(p.Public), value: bytesOf(p.Primary)}] = true
		}
		primaryOf[element{key: link, value: bytesOf(p.Primary)}] = true
	}
	return e
}

// apply brings the sets to the wanted members. Removals and additions of one step are one transaction; large steps are cut.
func (r *rules) apply(want elements) error {
	pending := 0
	for i, set := range r.following() {
		gone, added := compare(r.have[i], want[i])
		for _, step := range []struct {
			what []element
			do   func(*nftables.Set, []nftables.SetElement) error
		}{{gone, r.conn.SetDeleteElements}, {added, r.conn.SetAddElements}} {
			for chunk := range slices.Chunk(step.what, elementsPerMessage) {
				if err := step.do(set, wire(chunk, set.IsMap)); err != nil {
					return fmt.Errorf("change set %s: %w", set.Name, err)
				}
				if pending += len(chunk); pending >= elementsPerFlush {
					if err := r.flush(); err != nil {
						return err
					}
					pending = 0
				}
			}
		}
		// Ahead of the flush: where that fails, rebuild starts from nothing known.
		r.have[i] = want[i]
	}
	return r.flush()
}

// flush commits. After a failure it is unknown which members stand, so all are removed and the next apply adds them anew.
func (r *rules) flush() error {
	err := r.conn.Flush()
	if err == nil {
		return nil
	}
	for _, set := range r.following() {
		r.conn.FlushSet(set)
	}
	r.have = elements{}
	return fmt.Errorf("change nftables sets: %w", errors.Join(err, r.conn.Flush()))
}

// compare tells what is only in have and what is only in want, each in a fixed order.
func compare(have, want map[element]bool) (gone, added []element) {
	order := func(a, b element) int { return strings.Compare(a.key+a.value, b.key+b.value) }
	for e := range maps.Keys(have) {
		if !want[e] {
			gone = append(gone, e)
		}
	}
	for e := range maps.Keys(want) {
		if !have[e] {
			added = append(added, e)
		}
	}
	slices.SortFunc(gone, order)
	slices.SortFunc(added, order)
	return gone, added
}

func wire(chunk []element, isMap bool) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, len(chunk))
	for _, e := range chunk {
		w := nftables.SetElement{Key: []byte(e.key), IntervalEnd: e.end}
		if isMap {
			w.Val = []byte(e.value)
		}
		out = append(out, w)
	}
	return out
}

// linkKey is a link's name as a key: padded with zeros to the 16 bytes of the kernel's names.
func linkKey(name string) string { return name + strings.Repeat("\x00", nameLength+1-len(name)) }

func bytesOf(a netip.Addr) string { return string(a.AsSlice()) }

// bounds are the first address of a range and the first one after it.
func bounds(p netip.Prefix) (first, end string) {
	b := p.Masked().Addr().As4()
	start := binary.BigEndian.Uint32(b[:])
	after := binary.BigEndian.AppendUint32(nil, start+1<<(32-p.Bits()))
	return string(b[:]), string(after)
}
