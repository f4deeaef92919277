package dataplane

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers of 16 bytes. A concatenated key of a link name and something else fills reg1 and continues in reg2.
const (
	reg1 = unix.NFT_REG_1
	reg2 = unix.NFT_REG_2
	// regAfter8 is the register that follows the first 8 bytes of reg1.
	regAfter8 = unix.NFT_REG32_00 + 2
)

// packetHost is the kernel's PACKET_HOST: the frame was sent to the port's own MAC.
const packetHost = 0

// field is a field of a header.
type field struct {
	base           expr.PayloadBase
	offset, length uint32 // bytes
}

// Fields of the headers. In ARP over Ethernet the sender's IPv4 address follows 8 fixed bytes and a MAC.
var (
	etherSource   = field{expr.PayloadBaseLLHeader, 6, 6}
	ipTTL         = field{expr.PayloadBaseNetworkHeader, 8, 1}
	ipSource      = field{expr.PayloadBaseNetworkHeader, 12, 4}
	ipDestination = field{expr.PayloadBaseNetworkHeader, 16, 4}
	arpOperation  = field{expr.PayloadBaseNetworkHeader, 6, 2}
	arpSender     = field{expr.PayloadBaseNetworkHeader, 14, 4}

	ip6Hops        = field{expr.PayloadBaseNetworkHeader, 7, 1}
	ip6Source      = field{expr.PayloadBaseNetworkHeader, 8, 16}
	ip6Destination = field{expr.PayloadBaseNetworkHeader, 24, 16}

	destinationPort = field{expr.PayloadBaseTransportHeader, 2, 2}
	icmpType        = field{expr.PayloadBaseTransportHeader, 0, 1}
	icmpCode        = field{expr.PayloadBaseTransportHeader, 1, 1}
	// An ICMP error carries an IP header behind its own 8 bytes.
	innerSource      = field{expr.PayloadBaseTransportHeader, 8 + 12, 4}
	innerDestination = field{expr.PayloadBaseTransportHeader, 8 + 16, 4}
)

// Offsets of the checksums in the headers of IPv4 and ICMP.
const (
	ipChecksum   = 10
	icmpChecksum = 2
	// icmp6Checksum is that of ICMPv6 from the beginning of the IPv6 header, which has 40 bytes.
	icmp6Checksum = 40 + 2
)

func load(f field) []expr.Any { return loadTo(f, reg1) }

func loadTo(f field, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: f.base, Offset: f.offset, Len: f.length}}
}

// write writes a register into a field that no checksum covers.
func write(f field, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register, Base: f.base, Offset: f.offset, Len: f.length,
	}}
}

// writeHops writes a register into the TTL or hop limit and mends the checksum of IPv4's header. The nft tool has no words for
// a computed TTL; the kernel takes it.
func (p protocol) writeHops(register uint32) []expr.Any {
	write := &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register, Base: p.hops.base, Offset: p.hops.offset, Len: p.hops.length,
	}
	if p.hopsChecksum {
		write.CsumType, write.CsumOffset = expr.CsumTypeInet, ipChecksum
	}
	return []expr.Any{write}
}

// writeAddr writes an address and mends the checksums of the header and of the protocol above.
func writeAddr(f field, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register, Base: f.base, Offset: f.offset, Len: f.length,
		CsumType: expr.CsumTypeInet, CsumOffset: ipChecksum, CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}}
}

// writeSource6 writes the source of an ICMPv6 message without extension headers, such as neighbour discovery has, and mends the
// message's checksum, which covers it.
func writeSource6(register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register, Base: ip6Source.base, Offset: ip6Source.offset, Len: ip6Source.length,
		CsumType: expr.CsumTypeInet, CsumOffset: icmp6Checksum,
	}}
}

// writeInner writes into what an ICMP message carries, and mends its checksum. That of the carried header nobody looks at.
func writeInner(f field, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register, Base: f.base, Offset: f.offset, Len: f.length,
		CsumType: expr.CsumTypeInet, CsumOffset: icmpChecksum,
	}}
}

func value(register uint32, data []byte) []expr.Any {
	return []expr.Any{&expr.Immediate{Register: register, Data: data}}
}

func equals(data []byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: data}}
}

func differs(data []byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: data}}
}

func masked(mask []byte) []expr.Any { return maskedIn(reg1, mask) }

func maskedIn(register uint32, mask []byte) []expr.Any {
	return []expr.Any{&expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask)),
	}}
}

// linkPrefix matches links by the beginning of their name.
func linkPrefix(key expr.MetaKey, prefix string) []expr.Any {
	return append([]expr.Any{&expr.Meta{Key: key, Register: reg1}}, equals([]byte(prefix))...)
}

func linkName(register uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register}}
}

func linkOut(register uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register}}
}

func tracked(key expr.CtKey, register uint32) []expr.Any {
	return []expr.Any{&expr.Ct{Key: key, Register: register}}
}

// state matches packets whose connection has one of the states.
func state(bits uint32) []expr.Any {
	return slices.Concat(tracked(expr.CtKeySTATE, reg1), masked(binaryutil.NativeEndian.PutUint32(bits)), differs(make([]byte, 4)))
}

func setTracked(key expr.CtKey, register uint32) []expr.Any {
	return []expr.Any{&expr.Ct{Key: key, SourceRegister: true, Register: register}}
}

// jumpBy goes to the chain that a verdict map has for reg1, and comes back.
func jumpBy(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

func inSet(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, SetName: s.Name, SetID: s.ID}}
}

func notInSet(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, SetName: s.Name, SetID: s.ID, Invert: true}}
}

// mapTo looks reg1 up in a map; a key that is not there ends the rule.
func mapTo(s *nftables.Set, register uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, DestRegister: register, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// noRoute matches a destination that no route leads to.
func noRoute() []expr.Any {
	fib := &expr.Fib{Register: reg1, ResultOIF: true, FlagDADDR: true, FlagPRESENT: true}
	return append([]expr.Any{fib}, equals([]byte{0})...)
}

// noWayBack matches a source that no route leads to through the link that the packet came by.
func noWayBack() []expr.Any {
	fib := &expr.Fib{Register: reg1, ResultOIF: true, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true}
	return append([]expr.Any{fib}, equals([]byte{0})...)
}

func markBytes(m uint32) []byte { return binaryutil.NativeEndian.PutUint32(m) }

func setMark(m uint32) []expr.Any {
	return append(value(reg1, markBytes(m)), &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1})
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

func goTo(c *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Name}}
}
