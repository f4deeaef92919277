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
	"github.com/google/nftables/expr"
)

const (
	// elementsPerMessage keeps a message under 64 KiB, the limit of a netlink attribute: an element takes about 60 bytes.
	elementsPerMessage = 500
	// elementsPerFlush keeps a transaction under the default send buffer of a socket (208 KiB).
	elementsPerFlush = 2000
)

// element is a member of a set in the kernel's form: a value that compares with ==.
type element struct {
	key, value string // bytes; of a verdict map, the value is the chain to jump to
	end        bool   // the end of a range, exclusive
}

// elements are the members of each set, by its name.
type elements map[string]map[element]bool

func (e elements) add(set *nftables.Set, key, value string) {
	e[set.Name][element{key: key, value: value}] = true
}

func (e elements) addRange(set *nftables.Set, r netip.Prefix) {
	first, end := bounds(r)
	e[set.Name][element{key: first}] = true
	e[set.Name][element{key: end, end: true}] = true
}

// elementsOf says what the sets should hold.
func (r *rules) elementsOf(want fabric) elements {
	e, s := elements{}, r.sets
	for _, set := range r.following() {
		e[set.Name] = map[element]bool{}
	}
	for _, cidr := range append(r.p.only(want.CIDRs), r.p.services, r.p.link) {
		e.addRange(s.vpc, cidr)
	}
	for name, cidrs := range want.Peers {
		e.add(s.ids, linkKey(name)+linkID(name), "")
		e.add(s.idOf, linkKey(name), linkID(name))
		e.add(s.labelOf, linkKey(name), labelOf(name))
		for _, cidr := range r.p.only(cidrs) {
			e.addRange(s.peered, cidr)
		}
	}
	for m := range want.Members {
		if !r.p.has(m.addr.Addr()) {
			continue
		}
		set := s.memberBlocks
		if m.addr.IsSingleIP() {
			set = s.members
		}
		e.add(set, string(groupKey(m.group))+bytesOf(m.addr.Addr()), "")
	}
	for _, p := range want.Ports {
		e.add(s.ids, linkKey(p.Name)+linkID(p.Name), "")
		e.add(s.idOf, linkKey(p.Name), linkID(p.Name))
		e.add(s.labelOf, linkKey(p.Name), labelOf(p.Name))
		if !p.outside() { // the rules know these by name
			r.addPort(e, p, want)
		}
	}
	return e
}

func (r *rules) addPort(e elements, p port, want fabric) {
	s, link := r.sets, linkKey(p.Name)
	for _, a := range r.p.only(p.holds()) {
		set := s.blocks
		if a.IsSingleIP() {
			set = s.sources
		}
		e.add(set, link+bytesOf(a.Addr()), "")
	}
	for _, a := range r.p.own(p, want.Resolver) {
		e.add(s.own, link+bytesOf(a), "")
	}
	if mac, err := net.ParseMAC(p.MAC); err == nil { // plug reports what is none
		e.add(s.macs, link+string(mac)+"\x00\x00", "") // padded to whole registers
	}
	if p.Unchecked {
		e.add(s.unchecked, link, "")
	}
	if p.Egress != "" {
		e.add(s.egressOf, link, p.Egress)
		e.add(s.ingressOf, link, p.Ingress)
	}
	if r.p.family == nftables.TableFamilyIPv6 {
		if p.hasIPv6() {
			e.add(s.primaryOf, link, bytesOf(p.linkLocal6()))
		}
		return
	}
	if p.Public.IsValid() {
		e.add(s.publics, bytesOf(p.Public), "")
		e.add(s.associated, bytesOf(p.Primary), "")
		e.add(s.publicOf, bytesOf(p.Primary), bytesOf(p.Public))
		e.add(s.privateOf, bytesOf(p.Public), bytesOf(p.Primary))
	}
	e.add(s.primaryOf, link, bytesOf(p.Primary))
}

// apply brings chains and sets to what is wanted. New chains come before the elements that lead to them, and old ones go after.
// Removals and additions of one step are one transaction; large steps are cut.
func (r *rules) apply(fabric fabric) error {
	want := r.elementsOf(fabric)
	r.addChains(fabric.Chains)
	pending := 0
	for _, set := range r.following() {
		gone, added := compare(r.have[set.Name], want[set.Name])
		for _, step := range []struct {
			what []element
			do   func(*nftables.Set, []nftables.SetElement) error
		}{{gone, r.conn.SetDeleteElements}, {added, r.conn.SetAddElements}} {
			for chunk := range slices.Chunk(step.what, elementsPerMessage) {
				if err := step.do(set, wire(chunk, set)); err != nil {
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
		// Ahead of the flush: where that fails, the next apply starts from nothing known.
		r.have[set.Name] = want[set.Name]
	}
	r.dropChains(fabric.Chains)
	return r.flush()
}

// flush commits. After a failure it is unknown what stands, so all elements and the chains of groups are removed, and the next
// apply adds them anew.
func (r *rules) flush() error {
	err := r.conn.Flush()
	if err == nil {
		return nil
	}
	for _, set := range r.following() {
		r.conn.FlushSet(set)
	}
	errs := []error{err, r.conn.Flush()}
	chains, listed := r.conn.ListChainsOfTableFamily(r.p.family)
	errs = append(errs, listed)
	for _, c := range chains {
		if c.Table.Name == tableName && (strings.HasPrefix(c.Name, egressChain) || strings.HasPrefix(c.Name, ingressChain)) {
			r.conn.FlushChain(c)
			r.conn.DelChain(c)
		}
	}
	r.have, r.chains = elements{}, map[string][]groupRule{}
	return fmt.Errorf("change nftables rules: %w", errors.Join(append(errs, r.conn.Flush())...))
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

func wire(chunk []element, set *nftables.Set) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, len(chunk))
	for _, e := range chunk {
		w := nftables.SetElement{Key: []byte(e.key), IntervalEnd: e.end}
		switch {
		case !set.IsMap:
		case set.DataType == nftables.TypeVerdict:
			w.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: e.value}
		default:
			w.Val = []byte(e.value)
		}
		out = append(out, w)
	}
	return out
}

// linkKey is a link's name as a key: padded with zeros to the 16 bytes of the kernel's names.
func linkKey(name string) string { return name + strings.Repeat("\x00", nameLength+1-len(name)) }

// linkID is a link's number in connection marks, and labelOf the same in connection labels, which are 16 bytes.
func linkID(name string) string {
	return string(binary.NativeEndian.AppendUint32(nil, uint32(hash64(name))))
}

func labelOf(name string) string { return linkID(name) + strings.Repeat("\x00", 12) }

func bytesOf(a netip.Addr) string { return string(a.AsSlice()) }

// bounds are the first address of a range and the first one after it.
func bounds(p netip.Prefix) (first, end string) {
	start := p.Masked().Addr().AsSlice()
	after := slices.Clone(start)
	for i := (p.Bits() - 1) / 8; i >= 0; i-- { // add one at the last bit of the prefix
		step := byte(1)
		if i == (p.Bits()-1)/8 {
			step = 0x80 >> ((p.Bits() - 1) % 8)
		}
		after[i] += step
		if after[i] >= step {
			break // nothing to carry
		}
	}
	return string(start), string(after)
}
