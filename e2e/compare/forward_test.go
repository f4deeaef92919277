package compare_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

const (
	// tripsInBlock is one measured block: some milliseconds, long against the clock and short against the machine's moods.
	tripsInBlock = 200
	tripBlocks   = 40
)

// BenchmarkForward sends echoes from a pod in the middle of a node's pods to a machine of the VPC on which nothing runs.
func BenchmarkForward(b *testing.B) {
	record := figures.Record(b, "forward")
	w := boot(b, shape{pairs: len(figures.TripPods()), instanceType: largeType, quick: true, peer: true})
	peer, err := w.Machine(peerName)
	check(b, err)
	want := map[*node]int{}
	for i, p := range w.pairs {
		for _, n := range p {
			// All addresses at once, rather than an ENI whenever the last one is used up.
			n.Set(map[string]string{"MINIMUM_IP_TARGET": fmt.Sprint(figures.TripPods()[i] + 1), "WARM_IP_TARGET": "1"})
			want[n] = figures.TripPods()[i]
		}
	}
	w.start()
	w.awaitAddresses(want)
	pingers := map[*node]*pinger{}
	for i, p := range w.pairs {
		for _, n := range p.inTurn(i) {
			pods := n.make(figures.TripPods()[i])
			began := time.Now()
			for i := range pods {
				c, _ := n.insist(b.Context(), &pods[i])
				check(b, c.err)
			}
			b.Logf("%s has %d pods after %.1f s", n.machine, len(pods), time.Since(began).Seconds())
			pingers[n] = newPinger(b, pods[len(pods)/2].ns, peer.Address)
		}
	}
	for _, n := range w.all() {
		check(b, n.Stop()) // it has no part in forwarding
		pingers[n].block(b)
	}
	quiet(b)
	for block := range tripBlocks {
		for i, p := range w.pairs {
			for _, n := range p.inTurn(block) {
				record.Add(figures.Trip(n.side, figures.TripPods()[i]), block, pingers[n].block(b))
			}
		}
	}
	state, err := w.State(b.Context())
	check(b, err)
	if dropped := state.Drops["source-check"]; dropped > 0 {
		b.Errorf("the fabric dropped %d packets with foreign sources", dropped)
	}
}

// pinger is a raw socket in a pod that has another's kernel answer echo requests: the way there and back is worked off within the
// two system calls, so that what is measured is forwarding and not the scheduler.
type pinger struct {
	fd     int
	to     unix.SockaddrInet4
	packet []byte
	buffer []byte
}

func newPinger(tb testing.TB, ns *netlab.Namespace, to netip.Addr) *pinger {
	tb.Helper()
	p := &pinger{buffer: make([]byte, 256), to: unix.SockaddrInet4{Addr: to.As4()}}
	p.packet = make([]byte, 8+56) // echo request (RFC 792) with ping's usual payload
	p.packet[0] = 8
	binary.BigEndian.PutUint16(p.packet[2:], ^uint16(8<<8)) // all else is zero
	check(tb, ns.Do(func() (err error) {
		p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		return unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	}))
	tb.Cleanup(func() { _ = unix.Close(p.fd) })
	return p
}

func (p *pinger) ping() error {
	if err := unix.Sendto(p.fd, p.packet, 0, &p.to); err != nil {
		return fmt.Errorf("send echo request: %w", err)
	}
	n, _, err := unix.Recvfrom(p.fd, p.buffer, 0)
	if err != nil {
		return fmt.Errorf("await echo reply: %w", err)
	}
	// A raw socket gets the IP header too, and every ICMP message: a router's complaint is no reply.
	if header := int(p.buffer[0]&0xf) * 4; n <= header || p.buffer[header] != 0 {
		return fmt.Errorf("await echo reply: got another message: % x", p.buffer[:n])
	}
	return nil
}

// block is the time of one round trip, in microseconds, as the mean of a block of them.
func (p *pinger) block(tb testing.TB) float64 {
	tb.Helper()
	start := time.Now()
	for range tripsInBlock {
		check(tb, p.ping())
	}
	return float64(time.Since(start).Nanoseconds()) / 1000 / tripsInBlock
}
