package dataplane_test

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// ipNetOf is an address as the netlink library wants it.
func ipNetOf(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// pingAll asks many addresses at once and gives those that do not answer.
func (l *lab) pingAll(from *netlab.Namespace, src netip.Addr, targets []netip.Addr) []netip.Addr {
	l.t.Helper()
	var conn *icmp.PacketConn
	l.check(from.Do(func() error {
		var err error
		conn, err = icmp.ListenPacket("ip4:icmp", src.String())
		return err
	}))
	defer conn.Close()
	missing := map[string]netip.Addr{}
	for seq, dst := range targets {
		request := &icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: seq}}
		must(conn.WriteTo(must(request.Marshal(nil))(l.t), &net.IPAddr{IP: dst.AsSlice()}))(l.t)
		missing[dst.String()] = dst
	}
	l.check(conn.SetReadDeadline(time.Now().Add(patience)))
	buffer := make([]byte, 1500)
	for len(missing) > 0 {
		n, peer, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		l.check(err)
		if m, err := icmp.ParseMessage(1, buffer[:n]); err == nil && m.Type == ipv4.ICMPTypeEchoReply {
			delete(missing, peer.String())
		}
	}
	var left []netip.Addr
	for _, a := range missing {
		left = append(left, a)
	}
	return left
}

// packetSocket listens to all frames of one kind in a namespace.
func (l *lab) packetSocket(n *netlab.Namespace, etherType uint16) int {
	l.t.Helper()
	fd := -1
	l.check(n.Do(func() error {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(etherType<<8|etherType>>8))
		return err
	}))
	l.t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// watchARP counts the requests that a namespace sees, by the address that is asked for, until the returned function is called.
func (l *lab) watchARP(n *netlab.Namespace) func() map[string]int {
	l.t.Helper()
	fd := l.packetSocket(n, unix.ETH_P_ARP)
	return func() map[string]int {
		asked := map[string]int{}
		frame := make([]byte, 128)
		for {
			size, from, err := unix.Recvfrom(fd, frame, unix.MSG_DONTWAIT)
			if err != nil {
				return asked
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING || size < 42 || frame[21] != 1 {
				continue
			}
			asked[netip.AddrFrom4([4]byte(frame[38:42])).String()]++
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func contains(list []netip.Addr, a netip.Addr) bool { return slices.Contains(list, a) }
