package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// table is our table as the library names it.
func table() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
}

// errGeneration says that the ruleset changed while it was read.
var errGeneration = errors.New("ruleset changed while it was read")

// observeTable reads our nftables table; nil means that there is none. The reading is of one generation of the ruleset: it
// is repeated when another program's transaction came between.
func (k *kernel) observeTable() (*Table, error) {
	var last error
	for range dumpTries {
		before, err := generation()
		if err != nil {
			return nil, err
		}
		t, err := k.readTable()
		after, genErr := generation()
		if genErr != nil {
			return nil, genErr
		}
		switch {
		case before != after:
			last = errGeneration
		case errors.Is(err, unix.EINTR):
			last = err
		default:
			return t, err
		}
	}
	return nil, fmt.Errorf("list nftables table %s: %w", tableName, last)
}

// generation is the number of the ruleset's last transaction (NFT_MSG_GETGEN).
func generation() (uint32, error) {
	const kind = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN
	req := nl.NewNetlinkRequest(kind, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: unix.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("read nftables generation: %w", err)
	}
	for _, m := range messages {
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("read nftables generation: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type&nl.NLA_TYPE_MASK == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("read nftables generation: no number in the answer")
}

func (k *kernel) readTable() (*Table, error) {
	tables, err := k.nft.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName }) {
		return nil, nil // no table is an answer, not an error
	}
	found := &Table{}
	sets, err := k.nft.GetSets(table())
	if err != nil {
		return nil, fmt.Errorf("list nftables sets: %w", err)
	}
	for _, s := range sets {
		if s.Anonymous {
			continue // belongs to a rule, and goes with it
		}
		set, err := k.readSet(s)
		if err != nil {
			return nil, err
		}
		found.Sets = append(found.Sets, set)
	}
	chains, err := k.nft.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name != tableName {
			continue
		}
		chain, err := k.readChain(c)
		if err != nil {
			return nil, err
		}
		found.Chains = append(found.Chains, chain)
	}
	return found, nil
}

// readSet reads a set's elements. The library does not give a verdict map's key type, so the type is that which the name has
// with us, where the properties that can be seen agree.
func (k *kernel) readSet(s *nftables.Set) (Set, error) {
	elements, err := k.nft.GetSetElements(&nftables.Set{Table: table(), Name: s.Name})
	if err != nil {
		return Set{}, fmt.Errorf("list nftables set %s: %w", s.Name, err)
	}
	set := Set{Name: s.Name, Type: setUnknown}
	if t := typeByName(s.Name); s.IsMap == t.verdicts() && s.Interval == (t == SetPrefix) {
		set.Type = t
	}
	set.Elements = set.Type.decode(elements)
	return set, nil
}

func typeByName(name string) SetType {
	switch name {
	case setInside:
		return SetPrefix
	case setOwn:
		return SetAddr
	case mapSource:
		return SetAddrEnd
	case mapArrival:
		return SetLinkEnd
	case mapMark:
		return SetMarkEnd
	}
	return setUnknown
}

func (k *kernel) readChain(c *nftables.Chain) (Chain, error) {
	rules, err := k.nft.GetRules(table(), c)
	if err != nil {
		return Chain{}, fmt.Errorf("list nftables chain %s: %w", c.Name, err)
	}
	chain := Chain{Name: c.Name}
	if c.Hooknum != nil && c.Priority != nil {
		chain.Hook = baseChain(string(c.Type), hookName(c), int(*c.Priority))
		if c.Policy != nil && *c.Policy != nftables.ChainPolicyAccept {
			chain.Hook += " # policy is another"
		}
	}
	for _, r := range rules {
		text, err := statementOf(r.UserData)
		if err != nil {
			text = fmt.Sprintf("# rule of another hand, handle %d", r.Handle)
		}
		chain.Rules = append(chain.Rules, Statement{Text: text})
	}
	return chain, nil
}

func hookName(c *nftables.Chain) string {
	switch *c.Hooknum {
	case *nftables.ChainHookPrerouting:
		return hookPrerouting
	case *nftables.ChainHookForward:
		return hookForward
	case *nftables.ChainHookPostrouting:
		return hookPostrouting
	}
	return fmt.Sprintf("%d", *c.Hooknum)
}
