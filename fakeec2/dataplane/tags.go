package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// tags count and drop the frames whose VLAN tag no branch of the port has. IP's own hooks never see them: the kernel takes a tag
// without a VLAN link for a frame to somebody else. In nft's words, one chain for each ENI's link:
//
//	table netdev fabric {
//	  chain p0123456789abc { type filter hook ingress device p0123456789abc priority 0
//	    ether type 0x8100 vlan id 0 return                          # a priority only
//	    ether type 0x8100 iifname . vlan id != @tags counter name vlan drop
//	    ether type 0x88a8 counter name vlan drop                    # tags within tags are no VPC's
//	  }
//	}
//
// It works where the kernel has no 802.1Q: it only reads the frames.
type tags struct {
	conn    *nftables.Conn
	table   *nftables.Table
	counter *nftables.NamedObj
	known   *nftables.Set // link of a trunk . VLAN id of a branch
	have    map[element]bool
	chains  map[string]bool // by port
}

var (
	etherType = field{expr.PayloadBaseLLHeader, 12, 2}
	vlanTag   = field{expr.PayloadBaseLLHeader, 14, 2}
	// vlanMask leaves the VLAN id of a tag.
	vlanMask = []byte{0x0f, 0xff}
)

func newTags(ns *netlab.Namespace) (*tags, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(ns.FD()), nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	t := &tags{conn: conn, have: map[element]bool{}, chains: map[string]bool{}}
	t.table = conn.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyNetdev})
	t.counter = &nftables.NamedObj{Table: t.table, Name: DropVLAN, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}}
	conn.AddObj(t.counter)
	vlan := nftables.TypeInteger
	vlan.Bytes = uint32(len(vlanMask))
	t.known = &nftables.Set{Table: t.table, Name: "tags", KeyType: nftables.MustConcatSetType(nftables.TypeIFName, vlan), Concatenation: true}
	if err := errors.Join(conn.AddSet(t.known, nil), conn.Flush()); err != nil {
		t.close()
		return nil, fmt.Errorf("write nftables rules for VLANs: %w", err)
	}
	return t, nil
}

func (t *tags) close() { _ = t.conn.CloseLasting() } // a socket's close has nothing to say here

// apply says which tags the branches have.
func (t *tags) apply(fabric fabric) error {
	want := map[element]bool{}
	for _, p := range fabric.Ports {
		if p.Trunk != "" {
			want[element{key: linkKey(p.Trunk) + string(binaryutil.BigEndian.PutUint16(uint16(p.VLAN))) + "\x00\x00"}] = true // padded to whole registers
		}
	}
	gone, added := compare(t.have, want)
	if len(gone)+len(added) == 0 {
		return nil
	}
	err := errors.Join(t.conn.SetDeleteElements(t.known, wire(gone, t.known)), t.conn.SetAddElements(t.known, wire(added, t.known)), t.conn.Flush())
	if err != nil { // it is unknown what stands: the next apply begins with nothing
		t.conn.FlushSet(t.known)
		t.have = map[element]bool{}
		return fmt.Errorf("change VLANs of trunks: %w", errors.Join(err, t.conn.Flush()))
	}
	t.have = want
	return nil
}

func (t *tags) chain(link string) *nftables.Chain {
	return &nftables.Chain{
		Name: link, Table: t.table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress,
		Priority: nftables.ChainPriorityFilter, Device: link,
	}
}

// watch begins to look at the frames of an ENI's link.
func (t *tags) watch(link string) error {
	chain := t.conn.AddChain(t.chain(link))
	add := func(parts ...[]expr.Any) {
		t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: slices.Concat(parts...)})
	}
	tagged := func(kind uint16) []expr.Any {
		return append(load(etherType), equals(binaryutil.BigEndian.PutUint16(kind))...)
	}
	drop := []expr.Any{&expr.Objref{Type: int(t.counter.Type), Name: t.counter.Name}, &expr.Verdict{Kind: expr.VerdictDrop}}
	add(tagged(unix.ETH_P_8021Q), load(vlanTag), masked(vlanMask), equals([]byte{0, 0}), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}})
	add(tagged(unix.ETH_P_8021Q), linkName(reg1), loadTo(vlanTag, reg2), maskedIn(reg2, vlanMask), notInSet(t.known), drop)
	add(tagged(unix.ETH_P_8021AD), drop)
	if err := t.conn.Flush(); err != nil {
		return fmt.Errorf("look at VLAN tags on %s: %w", link, err)
	}
	t.chains[link] = true
	return nil
}

// forget ends that. The chain of a link that is gone is gone with it on some kernels.
func (t *tags) forget(link string) error {
	if !t.chains[link] {
		return nil
	}
	delete(t.chains, link)
	t.conn.DelChain(t.chain(link))
	if err := t.conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("look no more at VLAN tags on %s: %w", link, err)
	}
	return nil
}

// count adds the drop counter to total.
func (t *tags) count(total map[string]uint64) error { return countObjects(t.conn, t.table, total) }
