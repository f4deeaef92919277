package hostnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// linkNames are the links of the lab's ENIs.
func linkNames() map[string]string {
	return map[string]string{"eni-primary": "eth0", "eni-second": "eth1"}
}

func TestReportSaysWhatTheKernelHolds(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	h := l.host(settings())
	l.pod(podA)
	want := wanted()
	want.ENIs = append(want.ENIs, pool.HostENI{ID: "eni-coming", MAC: "02:00:00:00:07:0a", Device: 2,
		SubnetCIDR: netip.MustParsePrefix("10.0.7.0/24"), Primary: netip.MustParseAddr("10.0.7.10"), Addresses: addrs("10.0.7.11")})
	first := l.apply(h, want)
	if diff := cmp.Diff(pool.HostReport{
		ENIs:      []string{"eni-primary", "eni-second"},
		Addresses: addrs(podA, podB, podC),
		Pods:      []pool.PodRoute{{Addr: netip.MustParseAddr(podA), Link: "eni0a00010b"}},
	}, first, compareAddrs); diff != "" {
		t.Error(diff)
	}

	l.port(port{ns: l.node, link: "ens7", mac: "02:00:00:00:07:0a", gateway: "10.0.7.1", addrs: []string{"10.0.7.10", "10.0.7.11"}, bare: true})
	second := l.apply(h, want)
	if diff := cmp.Diff([]string{"eni-primary", "eni-second", "eni-coming"}, second.ENIs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(addrs(podA, podB, podC, "10.0.7.11"), second.Addresses, compareAddrs); diff != "" {
		t.Error(diff)
	}

	l.must(netlab.DelLink(l.node, "ens7"))
	if diff := cmp.Diff(first, l.apply(h, want), compareAddrs); diff != "" {
		t.Errorf("after the link went: %s", diff)
	}
}

// A link that is up but has no carrier drops what is sent: its addresses must not be handed out.
func TestENIWithoutCarrierIsNotReported(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.host(settings())
	l.apply(h, wanted())
	far := l.ports[1].fabricLink()
	set := func(f func(*netlink.Handle, netlink.Link) error) {
		nl, err := l.fabric.Netlink()
		l.must(err)
		defer nl.Close()
		link, err := nl.LinkByName(far)
		l.must(err)
		l.must(f(nl, link))
	}
	set((*netlink.Handle).LinkSetDown)
	report := l.await(h, func(r pool.HostReport) bool { return len(r.ENIs) == 1 })
	if diff := cmp.Diff(pool.HostReport{ENIs: []string{"eni-primary"}, Addresses: addrs(podA)}, report, compareAddrs); diff != "" {
		t.Error(diff)
	}
	set((*netlink.Handle).LinkSetUp)
	report = l.await(h, func(r pool.HostReport) bool { return len(r.ENIs) == 2 })
	if diff := cmp.Diff(addrs(podA, podB, podC), report.Addresses, compareAddrs); diff != "" {
		t.Error(diff)
	}
}

// await applies until the report is as wanted, or for five seconds: the kernel follows a carrier within one.
func (l *lab) await(h *Host, good func(pool.HostReport) bool) pool.HostReport {
	l.tb.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(5 * time.Second); ; <-poll.C {
		report := l.applyOnce(h, wanted())
		if good(report) || time.Now().After(deadline) {
			return report
		}
	}
}

func TestAnyOrderOfStatesEndsInTheDesiredOne(t *testing.T) {
	both := wanted()
	fewer, moved, second, none := wanted(), wanted(), wanted(), pool.HostState{}
	fewer.ENIs[1].Addresses = addrs(podC)
	moved.ENIs[0].Addresses, moved.ENIs[1].Addresses = nil, addrs(podA, podB)
	second.VPCCIDRs = prefixes("10.0.0.0/16", "100.64.0.0/16")
	primary := wanted()
	primary.ENIs = primary.ENIs[:1]
	renumbered := wanted() // the same card attached at another device index
	renumbered.ENIs[1].Device = 3
	states := []pool.HostState{both, fewer, moved, second, none, primary, renumbered}

	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			l := newLab(t, labOptions{rpFilter: int(seed)})
			random := rand.New(rand.NewPCG(seed, 1))
			for visit := range 40 {
				cfg, want := variants()[random.IntN(4)], states[random.IntN(len(states))]
				h := l.host(cfg)
				l.apply(h, want)
				if diff := cmp.Diff(Desired(cfg, want, linkNames()).String(), l.dump(h)); diff != "" {
					t.Fatalf("visit %d: external SNAT %v, NodePort %v, state %v (-want +got):\n%s", visit, cfg.ExternalSNAT, cfg.NodePort, want, diff)
				}
			}
		})
	}
}

// An address whose ENI changes must change its mark in one transaction: the map never lacks it, and never has it twice.
func TestAddressMovesBetweenENIs(t *testing.T) {
	l := newLab(t, labOptions{})
	l.port(port{ns: l.node, link: "eth2", mac: "02:00:00:00:07:0a", gateway: "10.0.7.1", addrs: []string{"10.0.7.10"}, bare: true})
	h := l.host(settings())
	want := wanted()
	want.ENIs = append(want.ENIs, pool.HostENI{ID: "eni-third", MAC: "02:00:00:00:07:0a", Device: 2,
		SubnetCIDR: netip.MustParsePrefix("10.0.7.0/24"), Primary: netip.MustParseAddr("10.0.7.10")})
	l.apply(h, want)
	before := l.generation()
	want.ENIs[1].Addresses, want.ENIs[2].Addresses = addrs(podB), addrs(podC)
	report := l.apply(h, want)
	if diff := cmp.Diff(addrs(podA, podB, podC), report.Addresses, compareAddrs); diff != "" {
		t.Error(diff)
	}
	if got := l.generation() - before; got != 1 {
		t.Errorf("%d transactions, want 1", got)
	}
}

func TestFlowsUnderOtherSettings(t *testing.T) {
	for _, cfg := range variants() {
		t.Run(fmt.Sprintf("externalSNAT=%v nodePort=%v", cfg.ExternalSNAT, cfg.NodePort), func(t *testing.T) {
			l := newLab(t, labOptions{rpFilter: 1})
			l.populate()
			l.apply(l.host(cfg), wanted())
			for _, f := range flows() {
				if f.services || cfg.ExternalSNAT && f.to == fmt.Sprintf("%s:%d", outsideAddr, echoPort) {
					continue // NodePort is what may be off; without translation the gateway's host is out of reach
				}
				if err := l.try(f); err != nil {
					t.Errorf("%s (%s to %s): %v", f.name, f.from, f.to, err)
				}
			}
			seen := map[bool]string{true: podB, false: nodePrimary}[cfg.ExternalSNAT]
			f := flow{name: "pod to network outside", from: podB, to: fmt.Sprintf("%s:%d", onpremAddr, echoPort), seen: seen}
			if err := l.try(f); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
			if n := l.drops(); n != 0 {
				t.Errorf("%d packets from a wrong source", n)
			}
		})
	}
}

func TestNewRefusesBadSettings(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no logger":         func(c *Config) { c.Logger = nil },
		"no veth prefix":    func(c *Config) { c.VethPrefix = "" },
		"long veth prefix":  func(c *Config) { c.VethPrefix = "enipod" },
		"veth prefix quote": func(c *Config) { c.VethPrefix = `e"i` },
		"negative MTU":      func(c *Config) { c.MTU = -1 },
	} {
		cfg := settings()
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
