package hostnet

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Statement is one rule of a chain. Text is the rule as nft lists it, and its identity: it is kept in the kernel with the
// rule (see userdata.go), so that a found rule is known by its text and nothing need be decompiled. Why is the rule's
// comment in nft's listing. A found statement has no expressions.
type Statement struct {
	Text  string
	Why   string
	exprs []expr.Any
}

// phrase is a part of a statement: some nft text and the expressions that it compiles to. A test lets nft list what was
// compiled and compares it with the text.
type phrase struct {
	text  string
	exprs []expr.Any
}

// say joins phrases to a statement.
func say(why string, parts ...phrase) Statement {
	s := Statement{Why: why}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		texts = append(texts, p.text)
		s.exprs = append(s.exprs, p.exprs...)
	}
	s.Text = strings.Join(texts, " ")
	return s
}

// reg is the register that every phrase computes in: nftables' first one.
const reg = unix.NFT_REG_1

// Offsets and length of the addresses in the IPv4 header (RFC 791).
const (
	offsetSource      = 12
	offsetDestination = 16
	addressLength     = 4
)

// number is a 32-bit value as registers hold marks, states and types: in the machine's byte order.
func number(v uint32) []byte { return binaryutil.NativeEndian.PutUint32(v) }

func compare(op expr.CmpOp, data []byte) expr.Any {
	return &expr.Cmp{Op: op, Register: reg, Data: data}
}

// keep is reg = reg & mask ^ xor.
func keep(mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 4, Mask: number(mask), Xor: number(xor)}
}

func address(offset uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressLength}
}

func lookup(set string, verdict bool) expr.Any {
	return &expr.Lookup{SourceRegister: reg, SetName: set, IsDestRegSet: verdict}
}

// notFromLinks: the packet did not come by a link whose name begins with prefix.
func notFromLinks(prefix string) phrase {
	return phrase{fmt.Sprintf("iifname != %q", prefix+"*"), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg},
		compare(expr.CmpOpNeq, []byte(prefix)),
	}}
}

// notToLinks: the packet is not about to leave by a link whose name begins with prefix.
func notToLinks(prefix string) phrase {
	return phrase{fmt.Sprintf("oifname != %q", prefix+"*"), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg},
		compare(expr.CmpOpNeq, []byte(prefix)),
	}}
}

// leavesBy: the packet is about to leave by the link.
func leavesBy(link string) phrase {
	return phrase{fmt.Sprintf("oifname %q", link), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg},
		compare(expr.CmpOpEq, linkKey(link)),
	}}
}

func newConnection() phrase {
	return phrase{"ct state new", []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: reg},
		keep(expr.CtStateBitNEW, 0),
		compare(expr.CmpOpNeq, number(0)),
	}}
}

// toArrivalLink: the destination is an address of the link that the packet came by.
func toArrivalLink() phrase {
	return phrase{"fib daddr . iif type local", []expr.Any{
		&expr.Fib{Register: reg, FlagDADDR: true, FlagIIF: true, ResultADDRTYPE: true},
		compare(expr.CmpOpEq, number(unix.RTN_LOCAL)),
	}}
}

// notToNode: the destination is no address of this node.
func notToNode() phrase {
	return phrase{"fib daddr type != local", []expr.Any{
		&expr.Fib{Register: reg, FlagDADDR: true, ResultADDRTYPE: true},
		compare(expr.CmpOpNeq, number(unix.RTN_LOCAL)),
	}}
}

// notTo: the destination is in none of the set's prefixes.
func notTo(set string) phrase {
	return phrase{"ip daddr != @" + set, []expr.Any{
		address(offsetDestination),
		&expr.Lookup{SourceRegister: reg, SetName: set, Invert: true},
	}}
}

// toAny: the destination is one of the set's addresses.
func toAny(set string) phrase {
	return phrase{"ip daddr @" + set, []expr.Any{address(offsetDestination), lookup(set, false)}}
}

func notFrom(addr netip.Addr) phrase {
	return phrase{"ip saddr != " + addr.String(), []expr.Any{address(offsetSource), compare(expr.CmpOpNeq, addr.AsSlice())}}
}

// connectionMark: the bits of mask in the connection's mark are value.
func connectionMark(mask, value uint32) phrase {
	return phrase{fmt.Sprintf("ct mark & 0x%08x == 0x%08x", mask, value), []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: reg},
		keep(mask, 0),
		compare(expr.CmpOpEq, number(value)),
	}}
}

// setConnectionMark writes the bits of mask in the connection's mark and leaves the others.
func setConnectionMark(mask, value uint32) phrase {
	return phrase{"ct mark set ct mark " + masked(mask, value), []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: reg},
		keep(^mask, value),
		&expr.Ct{Key: expr.CtKeyMARK, Register: reg, SourceRegister: true},
	}}
}

// setPacketMark writes the bits of mask in the packet's mark and leaves the others (kube-proxy's 0x4000 among them, without
// which a hairpin connection breaks).
func setPacketMark(mask, value uint32) phrase {
	return phrase{"meta mark set meta mark " + masked(mask, value), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg},
		keep(^mask, value),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg, SourceRegister: true},
	}}
}

// masked is nft's way to list "the bits of mask become value": it keeps the bits that it sets next.
func masked(mask, value uint32) string {
	if mask == value {
		return fmt.Sprintf("| 0x%08x", value)
	}
	return fmt.Sprintf("& 0x%08x | 0x%08x", ^mask|value, value)
}

func byArrivalLink(m string) phrase {
	return phrase{"iifname vmap @" + m, []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}, lookup(m, true)}}
}

func byConnectionMark(mask uint32, m string) phrase {
	return phrase{fmt.Sprintf("ct mark & 0x%08x vmap @%s", mask, m), []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, keep(mask, 0), lookup(m, true)}}
}

func bySource(m string) phrase {
	return phrase{"ip saddr vmap @" + m, []expr.Any{address(offsetSource), lookup(m, true)}}
}

func translateSource(addr netip.Addr) phrase {
	return phrase{fmt.Sprintf("snat to %s fully-random", addr), []expr.Any{
		&expr.Immediate{Register: reg, Data: addr.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg, FullyRandom: true},
	}}
}

func discard() phrase {
	return phrase{"drop", []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}}
}

func done() phrase {
	return phrase{"return", []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}}
}
