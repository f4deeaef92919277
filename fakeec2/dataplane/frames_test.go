package dataplane_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	etherLength = 14
	ipLength    = 20
	ip6Length   = 40
	tcpLength   = 20
	shortLength = 8 // of the headers of UDP and ICMP
)

// frame makes the Ethernet frame of a packet. The payload tells it from all others.
func frame(p vpc.Packet, from, to net.HardwareAddr, payload []byte) []byte {
	out := append(append([]byte{}, to...), from...)
	upper := segment(p, payload)
	src, dst := p.Src.AsSlice(), p.Dst.AsSlice()
	if p.Src.Is6() {
		out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IPV6)
		out = append(out, 0x60, 0, 0, 0)
		out = binary.BigEndian.AppendUint16(out, uint16(len(upper)))
		out = append(out, byte(p.Protocol), 64)
		return append(append(append(out, src...), dst...), upper...)
	}
	ip := make([]byte, ipLength)
	ip[0], ip[8], ip[9] = 0x45, 64, byte(p.Protocol)
	binary.BigEndian.PutUint16(ip[2:], uint16(ipLength+len(upper)))
	copy(ip[12:], src)
	copy(ip[16:], dst)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IP)
	return append(append(out, ip...), upper...)
}

// segment makes what is behind the IP header.
func segment(p vpc.Packet, payload []byte) []byte {
	var upper []byte
	switch p.Protocol {
	case vpc.ProtoTCP:
		upper = make([]byte, tcpLength, tcpLength+len(payload))
		upper[12], upper[13] = tcpLength/4<<4, 2 // SYN
	case vpc.ProtoUDP, vpc.ProtoICMP, vpc.ProtoICMPv6:
		upper = make([]byte, shortLength, shortLength+len(payload))
	}
	upper = append(upper, payload...)
	at := map[int]int{vpc.ProtoTCP: 16, vpc.ProtoUDP: 6, vpc.ProtoICMP: 2, vpc.ProtoICMPv6: 2}[p.Protocol] // of the checksum
	switch p.Protocol {
	case vpc.ProtoTCP, vpc.ProtoUDP:
		binary.BigEndian.PutUint16(upper[0:], uint16(p.SrcPort))
		binary.BigEndian.PutUint16(upper[2:], uint16(p.DstPort))
		if p.Protocol == vpc.ProtoUDP {
			binary.BigEndian.PutUint16(upper[4:], uint16(len(upper)))
		}
	case vpc.ProtoICMP, vpc.ProtoICMPv6:
		upper[0], upper[1] = byte(p.SrcPort), byte(p.DstPort)
		binary.BigEndian.PutUint16(upper[4:], uint16(p.ID))
	default:
		return upper
	}
	var pseudo []byte
	if p.Protocol != vpc.ProtoICMP {
		pseudo = slices.Concat(p.Src.AsSlice(), p.Dst.AsSlice(), []byte{0, byte(p.Protocol), byte(len(upper) >> 8), byte(len(upper))})
	}
	binary.BigEndian.PutUint16(upper[at:], checksum(append(pseudo, upper...)))
	return upper
}

func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	if len(data)%2 == 1 {
		sum += uint32(data[len(data)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// seenFrame is what an observer reads of a frame.
type seenFrame struct {
	src, dst netip.Addr
	payload  string // its last bytes, as long as a tag
	reply    bool   // an ICMP echo reply
}

func readFrame(data []byte, tagLength int) (seenFrame, bool) {
	if len(data) < etherLength+ipLength+tagLength {
		return seenFrame{}, false
	}
	ip := data[etherLength:]
	switch binary.BigEndian.Uint16(data[12:]) {
	case unix.ETH_P_IP:
		ip = ip[:min(len(ip), int(binary.BigEndian.Uint16(ip[2:])))]
		return seenFrame{
			src: netip.AddrFrom4([4]byte(ip[12:16])), dst: netip.AddrFrom4([4]byte(ip[16:20])), payload: string(ip[len(ip)-tagLength:]),
			reply: ip[9] == vpc.ProtoICMP && ip[ipLength] == 0,
		}, true
	case unix.ETH_P_IPV6:
		if len(ip) < ip6Length+tagLength {
			break
		}
		ip = ip[:min(len(ip), ip6Length+int(binary.BigEndian.Uint16(ip[4:])))]
		return seenFrame{
			src: netip.AddrFrom16([16]byte(ip[8:24])), dst: netip.AddrFrom16([16]byte(ip[24:40])), payload: string(ip[len(ip)-tagLength:]),
			reply: ip[6] == vpc.ProtoICMPv6 && ip[ip6Length] == 129,
		}, true
	}
	return seenFrame{}, false
}
