package hostnet

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// State is a picture of this package's part of the kernel: as it is wanted (Desired) or as it was found. Its String is what
// Dump shows; two states are equal when their texts are.
type State struct {
	Forwarding bool // net.ipv4.ip_forward
	Links      []Link
	Addrs      []Address
	Rules      []Rule          // by priority, then text
	Routes     []Route         // by table, then destination; without the pods' table
	Pods       []pool.PodRoute // found: all; wanted: those that are put back where they are missing (the plugin writes them)
	Veths      []Veth          // found only, and not in the text
	Inherited  []pool.PodRoute // found only, and not in the text: pods that the incumbent connected
	NFT        *Table          // nil: there is none
}

// Link is an ENI's link.
type Link struct {
	Name     string
	Up       bool
	Running  bool // found only, and not in the text: nobody can repair it
	MTU      int  // bytes; 0 where the setting leaves MTUs alone
	RPFilter int  // the link's own rp_filter, not the maximum of it and that of "all", by which the kernel goes
}

// Address is the primary address of a secondary ENI on its link. Foreign is set on a found one that is not labelled as
// ours: it serves, and it is never removed.
type Address struct {
	Link    string
	Addr    netip.Addr
	Foreign bool
}

// Rule is a routing rule.
type Rule struct {
	Priority   int
	Mark, Mask uint32
	From       netip.Addr // zero: all
	Table      int
	Odd        string // found only: something that no rule of ours has; such a rule goes
}

// Route is the default route of an ENI's table. Via is on the link by definition, so the table needs no second route to it.
type Route struct {
	Table  int
	Dst    netip.Prefix
	Via    netip.Addr
	Link   string
	Onlink bool
	Metric int // found only: ours have none
}

// Table is our nftables table.
type Table struct {
	Sets   []Set   // by name
	Chains []Chain // by name
}

// Set is a named set or verdict map.
type Set struct {
	Name     string
	Type     SetType
	Elements []Element // by the bytes of the key
}

// SetType is the type of a set's keys and data as nft prints it.
type SetType string

// The types of set that the table uses.
const (
	SetPrefix   SetType = "ipv4_addr; flags interval"
	SetAddr     SetType = "ipv4_addr"
	SetAddrEnd  SetType = "ipv4_addr : verdict"
	SetLinkEnd  SetType = "ifname : verdict"
	SetMarkEnd  SetType = "mark : verdict"
	setUnknown  SetType = "unknown" // found only
	mapsVerdict         = " : verdict"
)

// Element is one member of a set. Goto names the chain where Type is a verdict map.
type Element struct {
	Key  string
	Goto string
}

// Chain is a chain of the table. Hook is empty for a chain that is only jumped to.
type Chain struct {
	Name  string
	Hook  string
	Rules []Statement
}

func (s State) linkNames() []string {
	names := make([]string, 0, len(s.Links))
	for _, l := range s.Links {
		names = append(names, l.Name)
	}
	return names
}

// String renders the state, one object a line, in an order that depends on nothing but the content.
func (s State) String() string {
	var b strings.Builder
	forward := 0
	if s.Forwarding {
		forward = 1
	}
	fmt.Fprintf(&b, "sysctl net.ipv4.ip_forward %d\n", forward)
	for _, l := range s.Links {
		fmt.Fprintln(&b, l)
	}
	for _, a := range s.Addrs {
		fmt.Fprintln(&b, a)
	}
	for _, r := range s.Rules {
		fmt.Fprintln(&b, r)
	}
	for _, r := range s.Routes {
		fmt.Fprintln(&b, r)
	}
	for _, p := range s.Pods {
		fmt.Fprintln(&b, podRouteText(p))
	}
	if s.NFT != nil {
		b.WriteString(s.NFT.String())
	}
	return b.String()
}

func (l Link) String() string {
	text := "link " + l.Name + " down"
	if l.Up {
		text = "link " + l.Name + " up"
	}
	if l.MTU != 0 {
		text += fmt.Sprintf(" mtu %d", l.MTU)
	}
	return fmt.Sprintf("%s rp_filter %d", text, l.RPFilter)
}

func (a Address) String() string {
	text := fmt.Sprintf("address %s dev %s", a.Addr, a.Link)
	if a.Foreign {
		return text + " (not ours)"
	}
	return text
}

func (r Rule) String() string {
	text := fmt.Sprintf("rule %d from all", r.Priority)
	if r.From.IsValid() {
		text = fmt.Sprintf("rule %d from %s", r.Priority, r.From)
	}
	if r.Mask != 0 {
		text += fmt.Sprintf(" fwmark %#x/%#x", r.Mark, r.Mask)
	}
	return fmt.Sprintf("%s%s lookup %d", text, r.Odd, r.Table)
}

func (r Route) String() string {
	dst := r.Dst.String()
	if r.Dst.Bits() == 0 {
		dst = "default"
	}
	text := fmt.Sprintf("route table %d %s", r.Table, dst)
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	text += " dev " + r.Link
	if r.Onlink {
		text += " onlink"
	}
	if r.Metric != 0 {
		text += fmt.Sprintf(" metric %d", r.Metric)
	}
	return text
}

// String renders the table as nft would list it, with numbers for the priorities.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %s {\n", tableName)
	for _, s := range t.Sets {
		b.WriteString(s.String())
	}
	for _, c := range t.Chains {
		b.WriteString(c.String())
	}
	b.WriteString("}\n")
	return b.String()
}

func (s Set) String() string {
	var b strings.Builder
	kind := "set"
	if s.Type.verdicts() {
		kind = "map"
	}
	fmt.Fprintf(&b, "\t%s %s {\n\t\ttype %s\n", kind, s.Name, s.Type)
	for _, e := range s.Elements {
		fmt.Fprintf(&b, "\t\t%s\n", e)
	}
	b.WriteString("\t}\n")
	return b.String()
}

func (t SetType) verdicts() bool { return strings.HasSuffix(string(t), mapsVerdict) }

func (e Element) String() string {
	if e.Goto == "" {
		return e.Key
	}
	return e.Key + " : goto " + e.Goto
}

func (c Chain) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
	if c.Hook != "" {
		fmt.Fprintf(&b, "\t\t%s\n", c.Hook)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "\t\t%s\n", r.Text)
	}
	b.WriteString("\t}\n")
	return b.String()
}
