package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	resolverPort = "53"
	timePort     = "123"
	// maxDatagram is more than a question or a time request has.
	maxDatagram = 1500
	// resolverTTL is what EC2's resolver gives private names, in seconds.
	resolverTTL = 60
)

// serveReserved answers at the addresses that every ENI finds beside it: the resolver and the clock. Each fabric has one
// socket for each; the address that was asked answers, out of the link that asked.
func (p *Plane) serveReserved(f *fabricNet, cidrs []netip.Prefix) error {
	for port, reply := range map[string]func([]byte) []byte{
		resolverPort: func(question []byte) []byte { return resolve(question, p.model.Region(), cidrs) },
		timePort:     func(request []byte) []byte { return tellTime(request, time.Now()) },
	} {
		var conn net.PacketConn
		err := f.ns.Do(func() error {
			var err error
			conn, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp4", "0.0.0.0:"+port)
			return err
		})
		if err != nil {
			return fmt.Errorf("listen for the VPC's own services: %w", err)
		}
		f.sockets = append(f.sockets, conn)
		p.serving.Go(func() { answerDatagrams(conn, reply) })
	}
	return nil
}

// answerDatagrams ends when the socket is closed.
func answerDatagrams(conn net.PacketConn, reply func([]byte) []byte) {
	packets := ipv4.NewPacketConn(conn)
	if err := packets.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
		return // closed already
	}
	buffer := make([]byte, maxDatagram)
	for {
		n, control, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return
		}
		if answer := reply(buffer[:n]); answer != nil && control != nil {
			// Whoever does not take the answer asks again.
			_, _ = packets.WriteTo(answer, &ipv4.ControlMessage{Src: control.Dst, IfIndex: control.IfIndex}, from)
		}
	}
}

// resolve answers a question about the private names of the VPC's addresses; it knows no others.
func resolve(question []byte, region string, cidrs []netip.Prefix) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil || header.Response {
		return nil
	}
	q, err := parser.Question()
	if err != nil {
		return nil
	}
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{q},
	}
	addr, known := addressOfName(q.Name.String(), region, cidrs)
	switch {
	case !known:
		answer.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		answer.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: resolverTTL},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil // a question that cannot be repeated
	}
	return packed
}

func addressOfName(name, region string, cidrs []netip.Prefix) (netip.Addr, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	first, _, _ := strings.Cut(name, ".")
	dashed, _ := strings.CutPrefix(first, "ip-")
	addr, err := netip.ParseAddr(strings.ReplaceAll(dashed, "-", "."))
	if err != nil || vpc.PrivateDNSName(region, addr) != name {
		return netip.Addr{}, false
	}
	for _, c := range cidrs {
		if c.Contains(addr) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

const (
	ntpLength = 48
	// ntpEpoch is how many seconds NTP's era began before Unix's. Source: RFC 5905.
	ntpEpoch = 2_208_988_800
	// ntpServer is version 4, mode 4 (server); stratum 3 is what EC2's clock says.
	ntpServer, ntpStratum = 4<<3 | 4, 3
)

// tellTime answers an NTP client (RFC 5905).
func tellTime(request []byte, now time.Time) []byte {
	const clientMode = 3
	if len(request) < ntpLength || request[0]&7 != clientMode {
		return nil
	}
	answer := make([]byte, ntpLength)
	answer[0], answer[1], answer[3] = ntpServer, ntpStratum, 0xec // a precision of 2^-20 s
	copy(answer[12:], "EC2 ")
	stamp := uint64(now.Unix()+ntpEpoch)<<32 | uint64(now.Nanosecond())<<32/uint64(time.Second)
	copy(answer[24:32], request[40:48]) // the client's own stamp comes back
	for _, at := range []int{16, 32, 40} {
		binary.BigEndian.PutUint64(answer[at:], stamp)
	}
	return answer
}
