package dataplane

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers of 16 bytes. A concatenated key of a link name and something else fills reg1 and continues in reg2.
const (
	reg1 = unix.NFT_REG_1
	reg2 = unix.NFT_REG_2
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

	// classD are the bits that all addresses from 224.0.0.0 on have: multicast, reserved, broadcast.
	classD = []byte{224, 0, 0, 0}
)

// ipChecksum is the offset of the checksum in the IPv4 header.
const ipChecksum = 10

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

// writeTTL writes a register into the TTL and mends the header's checksum. The nft tool has no words for a computed TTL; the
// kernel takes it.
func writeTTL(register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register, Base: ipTTL.base, Offset: ipTTL.offset, Len: ipTTL.length,
		CsumType: expr.CsumTypeInet, CsumOffset: ipChecksum,
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

func masked(mask []byte) []expr.Any {
	return []expr.Any{&expr.Bitwise{
		SourceRegister: reg1, DestRegister: reg1, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask)),
	}}
}

// linkPrefix matches links by the beginning of their name.
func linkPrefix(key expr.MetaKey, prefix string) []expr.Any {
	return append([]expr.Any{&expr.Meta{Key: key, Register: reg1}}, equals([]byte(prefix))...)
}

func linkName(register uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register}}
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

func mark(m uint32) []byte { return binaryutil.NativeEndian.PutUint32(m) }

func setMark(m uint32) []expr.Any {
	return append(value(reg1, mark(m)), &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1})
}

func nat(kind expr.NATType) []expr.Any {
	return []expr.Any{&expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: reg1}}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

func goTo(c *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Name}}
}
