package cni_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// nodeAddr is the node's own address, from which it pings pods.
var nodeAddr = netip.MustParsePrefix("10.0.1.10/32")

// route gives the node what the daemon would: an address, the rule for the pods' table, and strict reverse path
// filtering, the hardest profile of an image.
func (n *node) route() *netlab.Namespace {
	n.t.Helper()
	here, err := netlab.Current()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = here.Close() })
	if err := netlab.AddAddr(here, "lo", nodeAddr); err != nil {
		n.t.Fatal(err)
	}
	rule := netlink.NewRule()
	rule.Table = api.PodsTable
	rule.Priority = 100
	if err := netlink.RuleAdd(rule); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = netlink.RuleDel(rule)
		lo, _ := netlink.LinkByName("lo")
		_ = netlink.AddrDel(lo, &netlink.Addr{IPNet: &net.IPNet{IP: nodeAddr.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}})
	})
	for _, name := range []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"} {
		if err := here.SetSysctl(name, "1"); err != nil {
			n.t.Fatal(err)
		}
	}
	return here
}

// ping sends one echo request from a namespace and waits for its reply: no second try.
func ping(from *netlab.Namespace, to netip.Addr) error {
	return from.Do(func() error {
		conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		if err != nil {
			return err
		}
		defer conn.Close()
		id := os.Getpid() & 0xffff
		request, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: 1}}).Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		for buffer := make([]byte, 1500); ; {
			size, peer, err := conn.ReadFrom(buffer)
			if err != nil {
				return fmt.Errorf("ping %s: %w", to, err)
			}
			reply, err := icmp.ParseMessage(1, buffer[:size])
			if err != nil {
				return err
			}
			if echo, ok := reply.Body.(*icmp.Echo); ok && reply.Type == ipv4.ICMPTypeEchoReply && echo.ID == id && peer.String() == to.String() {
				return nil
			}
		}
	})
}

// TestFirstPingPassesBothWays runs while other links come and go: the kernel switches a link on in a worker that waits for
// the same lock, and what is sent before that is lost.
func TestFirstPingPassesBothWays(t *testing.T) {
	n := newNode(t, "1.0.0")
	host := n.route()
	stop := churn(t, filepath.Join(n.folder, "churn"))
	defer stop()
	for i := range 20 {
		s := n.sandbox(fmt.Sprintf("sb%d", i), fmt.Sprintf("web-%d", i))
		addr, _ := netip.AddrFromSlice(n.add(s).IPs[0].Address.IP.To4())
		if err := ping(s.ns, nodeAddr.Addr()); err != nil {
			t.Errorf("first ping out of pod %d: %v", i, err)
		}
		if err := ping(host, addr); err != nil {
			t.Errorf("first ping into pod %d: %v", i, err)
		}
	}
}

// churn makes and removes links in a namespace of its own until stop is called: each removal holds the kernel's one lock
// for network configuration for some milliseconds.
func churn(t *testing.T, path string) (stop func()) {
	t.Helper()
	ns, err := netlab.New(path)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	workers.Go(func() {
		for ctx.Err() == nil {
			link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "churn"}}
			if err := errors.Join(handle.LinkAdd(link), handle.LinkDel(link)); err != nil {
				t.Errorf("churn: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		workers.Wait()
		handle.Close()
		_ = ns.Close()
	}
}
