// Package ping sends trains of ICMP echo requests and remembers which were answered, and when.
//
// It owns one socket per place to ping from, and the matching of answers to requests. It never decides what a loss means
// and never opens a namespace: the socket is given to it. Start with Prober; IPv4 only.
package ping

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// Listen opens a raw ICMP socket in the network namespace of the calling thread. It takes echo replies only: a responder
// that is pinged by thirty pods must not hand every request to the harness as well.
func Listen() (net.PacketConn, error) {
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return nil, fmt.Errorf("open ICMP socket: %w", err)
	}
	var filter ipv4.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv4.ICMPTypeEchoReply)
	if err := conn.IPv4PacketConn().SetICMPFilter(&filter); err != nil {
		_ = conn.Close() // the filter's failure is the one to tell
		return nil, fmt.Errorf("filter ICMP socket: %w", err)
	}
	return conn, nil
}

// Prober sends trains from one socket.
type Prober struct {
	conn   net.PacketConn
	ended  chan struct{}
	mu     sync.Mutex
	trains map[uint16]*Train // by ICMP identifier
	last   uint16
}

// NewProber takes over a socket that Listen opened.
func NewProber(conn net.PacketConn) *Prober {
	p := &Prober{conn: conn, ended: make(chan struct{}), trains: map[uint16]*Train{}}
	go p.receive()
	return p
}

// Close closes the socket and waits for its reader. Trains that still run record no more answers.
func (p *Prober) Close() error {
	err := p.conn.Close()
	<-p.ended
	if err != nil {
		return fmt.Errorf("close ICMP socket: %w", err)
	}
	return nil
}

// Train is a series of requests to one address.
type Train struct {
	prober *Prober
	id     uint16
	to     net.Addr
	from   netip.Addr // whose answers count
	mu     sync.Mutex
	sent   []time.Time
	answer []time.Time // by sequence number; zero: none so far
	err    error       // the last failure to send
	first  chan struct{}
	done   chan struct{}
}

// maxTrain is how many requests fit one train: ICMP's sequence numbers.
const maxTrain = 1 << 16

// Start sends a request at once and then one every interval, until ctx ends or sequence numbers run out (after eleven
// minutes at 10 ms). A sender that the scheduler held back skips intervals rather than bunching requests up.
func (p *Prober) Start(ctx context.Context, to netip.Addr, interval time.Duration) *Train {
	t := &Train{
		prober: p, to: &net.IPAddr{IP: to.AsSlice()}, from: to,
		first: make(chan struct{}), done: make(chan struct{}),
	}
	p.mu.Lock()
	p.last++
	t.id = p.last
	p.trains[t.id] = t
	p.mu.Unlock()
	go t.run(ctx, interval)
	return t
}

func (t *Train) run(ctx context.Context, interval time.Duration) {
	defer close(t.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for seq := range maxTrain {
		t.send(seq)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t *Train) send(seq int) {
	message := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(t.id), Seq: seq}}
	wire, err := message.Marshal(nil)
	t.mu.Lock()
	t.sent = append(t.sent, time.Now())
	t.answer = append(t.answer, time.Time{})
	t.mu.Unlock()
	if err == nil {
		_, err = t.prober.conn.WriteTo(wire, t.to)
	}
	if err != nil {
		t.mu.Lock()
		t.err = err
		t.mu.Unlock()
	}
}

// Answered is closed at the first answer.
func (t *Train) Answered() <-chan struct{} { return t.first }

// Done is closed when the last request has been sent. Answers may still come.
func (t *Train) Done() <-chan struct{} { return t.done }

// receive is the one reader of the socket.
func (p *Prober) receive() {
	defer close(p.ended)
	buffer := make([]byte, 1500) // an echo reply of ours is 8 bytes; anything longer is another's
	for {
		n, from, err := p.conn.ReadFrom(buffer)
		at := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier request of ours, delivered through the socket: that request stays unanswered
		}
		message, err := icmp.ParseMessage(ipv4.ICMPTypeEchoReply.Protocol(), buffer[:n])
		if err != nil {
			continue
		}
		echo, ok := message.Body.(*icmp.Echo)
		sender, isIP := from.(*net.IPAddr)
		if !ok || !isIP || message.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		p.mu.Lock()
		train := p.trains[uint16(echo.ID)]
		p.mu.Unlock()
		if train != nil {
			train.take(sender, echo.Seq, at)
		}
	}
}

func (t *Train) take(sender *net.IPAddr, seq int, at time.Time) {
	address, ok := netip.AddrFromSlice(sender.IP)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok || address.Unmap() != t.from || seq >= len(t.answer) || !t.answer[seq].IsZero() {
		return
	}
	t.answer[seq] = at
	select {
	case <-t.first:
	default:
		close(t.first)
	}
}

// Result is what became of a train.
type Result struct {
	Sent, Failed int           // Failed: sent and never answered
	FirstReply   time.Time     // when the first answer came; zero: none
	LastFailure  time.Time     // when the last unanswered request was sent; zero: none
	LongestGap   time.Duration // the longest time without a request that was answered, among the requests sent
	SendErr      error         // the last failure to send, if any
}

// Result counts. Answers that come later than the call are not in it.
func (t *Train) Result() Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Result{Sent: len(t.sent), SendErr: t.err}
	var alive time.Time
	for seq, sent := range t.sent {
		if alive.IsZero() {
			alive = sent
		}
		r.LongestGap = max(r.LongestGap, sent.Sub(alive))
		at := t.answer[seq]
		if at.IsZero() {
			r.Failed++
			r.LastFailure = sent
			continue
		}
		alive = sent
		if r.FirstReply.IsZero() || at.Before(r.FirstReply) {
			r.FirstReply = at
		}
	}
	return r
}

// Forget ends the matching of answers for a train; its Result stays as it is.
func (t *Train) Forget() {
	t.prober.mu.Lock()
	defer t.prober.mu.Unlock()
	delete(t.prober.trains, t.id)
}
