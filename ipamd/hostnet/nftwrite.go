package hostnet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
)

// transaction collects the changes that turn the found table into the wanted one; the kernel takes all of them or none, and
// no packet sees a part.
type transaction struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// writeTable commits the difference between two tables. found is nil where there is none.
func (k *kernel) writeTable(want, found *Table) error {
	tx := &transaction{conn: k.nft, table: table()}
	if found != nil && !changeable(want, found) {
		tx.conn.DelTable(tx.table)
		found = nil
	}
	if found == nil {
		tx.conn.AddTable(tx.table)
		found = &Table{}
	}
	if err := tx.queue(want, found); err != nil {
		return err
	}
	if err := tx.conn.Flush(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// changeable tells whether the found objects can stay: a base chain's hook and a set's type are for life.
func changeable(want, found *Table) bool {
	for _, c := range want.Chains {
		if i := found.chain(c.Name); i >= 0 && found.Chains[i].Hook != c.Hook {
			return false
		}
	}
	for _, s := range want.Sets {
		if i := found.set(s.Name); i >= 0 && found.Sets[i].Type != s.Type {
			return false
		}
	}
	return true
}

func (t *Table) chain(name string) int {
	return slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name })
}

func (t *Table) set(name string) int {
	return slices.IndexFunc(t.Sets, func(s Set) bool { return s.Name == name })
}

// queue orders the changes so that every object exists before something refers to it, and nothing refers to it when it goes.
func (tx *transaction) queue(want, found *Table) error {
	for _, c := range want.Chains {
		if found.chain(c.Name) < 0 {
			tx.addChain(c)
		}
	}
	for _, s := range want.Sets {
		if found.set(s.Name) < 0 {
			if err := tx.conn.AddSet(tx.set(s), nil); err != nil {
				return fmt.Errorf("queue set %s: %w", s.Name, err)
			}
		}
	}
	for _, s := range found.Sets {
		if err := tx.removeElements(want, s); err != nil {
			return err
		}
	}
	tx.writeRules(want, found)
	for _, s := range want.Sets {
		if err := tx.addElements(found, s); err != nil {
			return err
		}
	}
	tx.removeObjects(want, found)
	return nil
}

func (tx *transaction) addChain(c Chain) {
	chain := &nftables.Chain{Name: c.Name, Table: tx.table}
	var kind, hook string
	var priority int32
	if n, _ := fmt.Sscanf(c.Hook, "type %s hook %s priority %d;", &kind, &hook, &priority); n == 3 {
		chain.Type = nftables.ChainType(kind)
		chain.Hooknum = map[string]*nftables.ChainHook{
			hookPrerouting: nftables.ChainHookPrerouting, hookForward: nftables.ChainHookForward, hookPostrouting: nftables.ChainHookPostrouting,
		}[hook]
		chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(priority))
	}
	tx.conn.AddChain(chain)
}

// set is what the kernel is told of a set.
func (tx *transaction) set(s Set) *nftables.Set {
	key, _, _ := strings.Cut(string(s.Type), " ")
	types := map[string]nftables.SetDatatype{
		"ipv4_addr;": nftables.TypeIPAddr,
		"ipv4_addr":  nftables.TypeIPAddr,
		"ifname":     nftables.TypeIFName,
		"mark":       nftables.TypeMark,
	}
	set := &nftables.Set{Table: tx.table, Name: s.Name, KeyType: types[key], Interval: s.Type == SetPrefix}
	set.KeyByteOrder = binaryutil.BigEndian
	if s.Type == SetLinkEnd || s.Type == SetMarkEnd {
		set.KeyByteOrder = binaryutil.NativeEndian // only nft asks, to list the keys
	}
	if s.Type.verdicts() {
		set.IsMap, set.DataType = true, nftables.TypeVerdict
	}
	return set
}

// removeElements takes out what is not wanted any more, and the entries that shall lead elsewhere.
func (tx *transaction) removeElements(want *Table, found Set) error {
	var keep []Element
	if i := want.set(found.Name); i >= 0 {
		keep = want.Sets[i].Elements
	}
	return tx.inPortions(missing(found.Elements, keep), found, tx.conn.SetDeleteElements)
}

func (tx *transaction) addElements(found *Table, want Set) error {
	var have []Element
	if i := found.set(want.Name); i >= 0 {
		have = found.Sets[i].Elements
	}
	return tx.inPortions(missing(want.Elements, have), want, tx.conn.SetAddElements)
}

// inPortions queues elements of a set in messages of limited size.
func (tx *transaction) inPortions(elements []Element, of Set, queue func(*nftables.Set, []nftables.SetElement) error) error {
	for portion := range slices.Chunk(elements, elementsPerMessage) {
		encoded, err := of.Type.encode(portion)
		if err != nil {
			return fmt.Errorf("queue elements of %s: %w", of.Name, err)
		}
		if err := queue(tx.set(of), encoded); err != nil {
			return fmt.Errorf("queue elements of %s: %w", of.Name, err)
		}
	}
	return nil
}

// writeRules rewrites the chains whose rules differ, whole: rules have an order, and a chain has at most five.
func (tx *transaction) writeRules(want, found *Table) {
	for _, c := range want.Chains {
		i := found.chain(c.Name)
		if i >= 0 && sameRules(found.Chains[i].Rules, c.Rules) {
			continue
		}
		chain := &nftables.Chain{Name: c.Name, Table: tx.table}
		if i >= 0 {
			tx.conn.FlushChain(chain)
		}
		for _, r := range c.Rules {
			tx.conn.AddRule(&nftables.Rule{Table: tx.table, Chain: chain, Exprs: r.exprs, UserData: r.userData()})
		}
	}
}

func sameRules(a, b []Statement) bool {
	return slices.EqualFunc(a, b, func(x, y Statement) bool { return x.Text == y.Text })
}

// removeObjects takes out chains and sets that are not wanted. All chains are emptied before the first goes, as one may
// refer to another.
func (tx *transaction) removeObjects(want, found *Table) {
	var gone []*nftables.Chain
	for _, c := range found.Chains {
		if want.chain(c.Name) < 0 {
			gone = append(gone, &nftables.Chain{Name: c.Name, Table: tx.table})
		}
	}
	for _, c := range gone {
		tx.conn.FlushChain(c)
	}
	for _, s := range found.Sets {
		if want.set(s.Name) < 0 {
			tx.conn.DelSet(&nftables.Set{Table: tx.table, Name: s.Name})
		}
	}
	for _, c := range gone {
		tx.conn.DelChain(c)
	}
}

// sameTable tells whether nothing need be written.
func sameTable(want, found *Table) bool {
	return want != nil && found != nil && want.String() == found.String()
}
