package policygate

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The one table that this package owns, and its one chain.
const (
	tableName = "policygate"
	chainName = "forward"
)

// ifNameSize is IFNAMSIZ: how wide an interface name is in a set's key.
const ifNameSize = 16

// Workload is one address that may be used over one host link.
type Workload struct {
	Link    string
	Address netip.Addr
}

// Firewall is the agent's table in the kernel: packets forwarded from or to a pod's link pass only when link and address
// belong together.
type Firewall struct {
	conn  *nftables.Conn
	table *nftables.Table
	sets  map[uint8]*nftables.Set // by netfilter protocol family
}

// OpenFirewall makes the table anew in the network namespace of netns (a file descriptor; 0 is the caller's own), with the
// first workloads in it, in one transaction: what an earlier run left holds until then. With deny false it makes the sets
// but no rule, so that everything passes.
func OpenFirewall(netns int, deny bool, known []Workload) (*Firewall, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(netns), nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	f := &Firewall{conn: conn, sets: map[uint8]*nftables.Set{}}
	f.table = conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	conn.DelTable(f.table) // what an earlier run left; the line before makes sure that there is one
	f.table = conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	chain := conn.AddChain(&nftables.Chain{
		Table: f.table, Name: chainName, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for _, family := range families {
		if err := f.addFamily(chain, family, deny); err != nil {
			return nil, err
		}
	}
	if err := f.Apply(known, nil); err != nil {
		return nil, fmt.Errorf("make table inet %s: %w", tableName, err)
	}
	return f, nil
}

// Close lets go of the kernel and leaves the table where it is: an agent that stops must not open the gate.
func (f *Firewall) Close() error {
	if err := f.conn.CloseLasting(); err != nil {
		return fmt.Errorf("close nftables: %w", err)
	}
	return nil
}

// Apply lets add pass and remove pass no longer, in one transaction.
func (f *Firewall) Apply(add, remove []Workload) error {
	change := func(workloads []Workload, do func(*nftables.Set, []nftables.SetElement) error) error {
		for _, w := range workloads {
			if err := do(f.sets[protocol(w.Address)], []nftables.SetElement{element(w)}); err != nil {
				return fmt.Errorf("change workload %s %s: %w", w.Link, w.Address, err)
			}
		}
		return nil
	}
	if err := change(remove, f.conn.SetDeleteElements); err != nil {
		return err
	}
	if err := change(add, f.conn.SetAddElements); err != nil {
		return err
	}
	if err := f.conn.Flush(); err != nil {
		return fmt.Errorf("change workloads (%d more, %d fewer): %w", len(add), len(remove), err)
	}
	return nil
}

// family is what differs between IPv4 and IPv6 in the table.
type family struct {
	protocol    uint8
	set         string
	address     nftables.SetDatatype
	source      uint32 // offset of the source address in the network header
	destination uint32
}

// families: offsets are those of RFC 791 and RFC 8200.
var families = []family{
	{unix.NFPROTO_IPV4, "workloads", nftables.TypeIPAddr, 12, 16},
	{unix.NFPROTO_IPV6, "workloads6", nftables.TypeIP6Addr, 8, 24},
}

func (f *Firewall) addFamily(chain *nftables.Chain, fam family, deny bool) error {
	key, err := nftables.ConcatSetType(nftables.TypeIFName, fam.address)
	if err != nil {
		return fmt.Errorf("make key of set %s: %w", fam.set, err)
	}
	set := &nftables.Set{Table: f.table, Name: fam.set, KeyType: key, Concatenation: true}
	if err := f.conn.AddSet(set, nil); err != nil {
		return fmt.Errorf("make set %s: %w", fam.set, err)
	}
	f.sets[fam.protocol] = set
	if !deny {
		return nil
	}
	from := dropUnknown(set, fam, expr.MetaKeyIIFNAME, fam.source)
	f.conn.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: from})
	to := dropUnknown(set, fam, expr.MetaKeyOIFNAME, fam.destination)
	f.conn.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: to})
	return nil
}

// dropUnknown is the rule
//
//	meta nfproto <family> iifname "eni*" iifname . ip saddr != @workloads counter drop
//
// or its counterpart for packets towards a pod. Concatenated keys are built in consecutive 4-byte registers: the interface
// name takes four of them, the address follows.
func dropUnknown(set *nftables.Set, fam family, link expr.MetaKey, offset uint32) []expr.Any {
	const name, address = unix.NFT_REG32_00, unix.NFT_REG32_00 + ifNameSize/4
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG32_00},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG32_00, Data: []byte{fam.protocol}},
		&expr.Meta{Key: link, Register: name},
		&expr.Cmp{Op: expr.CmpOpEq, Register: name, Data: []byte(VethPrefix)},
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: fam.address.Bytes, DestRegister: address},
		&expr.Lookup{SourceRegister: name, SetName: set.Name, SetID: set.ID, Invert: true},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

func element(w Workload) nftables.SetElement {
	key := make([]byte, ifNameSize, ifNameSize+net6)
	copy(key, w.Link)
	return nftables.SetElement{Key: append(key, w.Address.AsSlice()...)}
}

// net6 is the longest address, in bytes.
const net6 = 16

func protocol(address netip.Addr) uint8 {
	if address.Is4() {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

// Known reads back from the kernel which workloads pass.
func (f *Firewall) Known() ([]Workload, error) {
	var known []Workload
	for _, fam := range families {
		elements, err := f.conn.GetSetElements(f.sets[fam.protocol])
		if err != nil {
			return nil, fmt.Errorf("list set %s: %w", fam.set, err)
		}
		for _, e := range elements {
			link, address := e.Key[:ifNameSize], e.Key[ifNameSize:][:fam.address.Bytes]
			addr, _ := netip.AddrFromSlice(address) // of the family's length by construction
			known = append(known, Workload{Link: string(bytes.TrimRight(link, "\x00")), Address: addr})
		}
	}
	return known, nil
}

// CountDrops counts the packets that the table in the network namespace of netns (0: the caller's own) has dropped since
// it was made. Zero where there is no table.
func CountDrops(netns int) (uint64, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(netns))
	if err != nil {
		return 0, fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: chainName})
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list rules of table inet %s: %w", tableName, err)
	}
	var drops uint64
	for _, rule := range rules {
		for _, e := range rule.Exprs {
			if counter, ok := e.(*expr.Counter); ok {
				drops += counter.Packets
			}
		}
	}
	return drops, nil
}
