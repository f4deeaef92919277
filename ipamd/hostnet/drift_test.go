package hostnet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// tool is what a damage is done with, in the node.
type tool struct {
	nl  *netlink.Handle
	nft *nftables.Conn
}

func (x tool) link(name string) netlink.Link {
	link, err := x.nl.LinkByName(name)
	if err != nil {
		panic(err)
	}
	return link
}

func (x tool) eachRule(f func(netlink.Rule) error) error {
	rules, err := x.nl.RuleList(unix.AF_INET)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

func (x tool) chain(name string) *nftables.Chain { return &nftables.Chain{Name: name, Table: table()} }

// damages are what other programs and people do to a node. Each leaves the kernel in another state than the desired one.
func damages() map[string]func(x tool) error {
	all := tableDamages()
	maps.Copy(all, routingDamages())
	return all
}

func routingDamages() map[string]func(x tool) error {
	return map[string]func(x tool) error{
		"ENI table flushed": func(x tool) error {
			return x.nl.RouteDel(&netlink.Route{Family: unix.AF_INET, Table: tablePods + 2, Dst: ipNet(everywhere())})
		},
		"ENI route by another gateway": func(x tool) error {
			return x.nl.RouteReplace(&netlink.Route{Table: tablePods + 2, Dst: ipNet(everywhere()), Gw: netip.MustParseAddr("10.0.2.9").AsSlice(),
				LinkIndex: x.link("eth1").Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Protocol: protocol})
		},
		"second route with a metric": func(x tool) error {
			return x.nl.RouteAdd(&netlink.Route{Table: tablePods + 2, Dst: ipNet(everywhere()), Gw: netip.MustParseAddr("10.0.2.1").AsSlice(),
				LinkIndex: x.link("eth1").Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Protocol: protocol, Priority: 100})
		},
		"blackhole for an ENI": func(x tool) error {
			return x.nl.RouteReplace(&netlink.Route{Table: tablePods + 2, Dst: ipNet(everywhere()), Type: unix.RTN_BLACKHOLE, Protocol: protocol})
		},
		"rules of ours deleted": func(x tool) error {
			return x.eachRule(func(r netlink.Rule) error {
				if r.Protocol != protocol {
					return nil
				}
				return x.nl.RuleDel(&r)
			})
		},
		"rule of ours with a selector": func(x tool) error {
			r := Rule{Priority: priorityMark + 2, Mark: 2, Mask: markENIMask, Table: tablePods + 2}.wire()
			if err := x.nl.RuleDel(r); err != nil {
				return err
			}
			r.IifName = "lo"
			return x.nl.RuleAdd(r)
		},
		"rp_filter strict": func(tool) error { return writeSysctl(rpFilterFile("eth1"), 1) },
		"rp_filter off":    func(tool) error { return writeSysctl(rpFilterFile("eth0"), 0) },
		"forwarding off":   func(tool) error { return writeSysctl(forwardingFile, 0) },
		"ENI link down":    func(x tool) error { return x.nl.LinkSetDown(x.link("eth1")) },
		"ENI MTU lowered":  func(x tool) error { return x.nl.LinkSetMTU(x.link("eth1"), 1500) },
		"ENI address gone": func(x tool) error {
			return x.nl.AddrDel(x.link("eth1"), Address{Link: "eth1", Addr: netip.MustParseAddr(nodeSecondary)}.wire())
		},
		"obsolete ENI left by an earlier daemon": func(x tool) error {
			lo := x.link("lo").Attrs().Index
			if err := x.nl.RuleAdd(Rule{Priority: priorityMark + 9, Mark: 9, Mask: markENIMask, Table: tablePods + 9}.wire()); err != nil {
				return err
			}
			if err := x.nl.AddrAdd(x.link("lo"), Address{Link: "lo", Addr: netip.MustParseAddr("10.0.9.9")}.wire()); err != nil {
				return err
			}
			return x.nl.RouteAdd(&netlink.Route{Table: tablePods + 9, Dst: ipNet(everywhere()), LinkIndex: lo, Protocol: protocol, Scope: netlink.SCOPE_LINK})
		},
	}
}

func tableDamages() map[string]func(x tool) error {
	return map[string]func(x tool) error{
		"nft table deleted": func(x tool) error { x.nft.DelTable(table()); return x.nft.Flush() },
		"map element removed": func(x tool) error {
			if err := x.nft.SetDeleteElements(&nftables.Set{Table: table(), Name: mapSource}, []nftables.SetElement{{Key: netip.MustParseAddr(podB).AsSlice()}}); err != nil {
				return err
			}
			return x.nft.Flush()
		},
		"own addresses flushed": func(x tool) error {
			x.nft.FlushSet(&nftables.Set{Table: table(), Name: setOwn})
			return x.nft.Flush()
		},
		"forward chain flushed": func(x tool) error { x.nft.FlushChain(x.chain(chainSpare)); return x.nft.Flush() },
		"map flushed": func(x tool) error {
			x.nft.FlushSet(&nftables.Set{Table: table(), Name: mapArrival})
			return x.nft.Flush()
		},
		"CIDR set flushed": func(x tool) error {
			x.nft.FlushSet(&nftables.Set{Table: table(), Name: setInside})
			return x.nft.Flush()
		},
		"base chain flushed": func(x tool) error { x.nft.FlushChain(x.chain(chainLeave)); return x.nft.Flush() },
		"base chain at another priority": func(x tool) error {
			x.nft.FlushChain(x.chain(chainSNAT))
			x.nft.DelChain(x.chain(chainSNAT))
			tx := transaction{conn: x.nft, table: table()}
			tx.addChain(Chain{Name: chainSNAT, Hook: baseChain("nat", hookPostrouting, 90)})
			return x.nft.Flush()
		},
		"foreign rule in front": func(x tool) error {
			x.nft.InsertRule(&nftables.Rule{Table: table(), Chain: x.chain(chainLeave), Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
			return x.nft.Flush()
		},
		"foreign chain and set": func(x tool) error {
			x.nft.AddChain(x.chain("stray"))
			x.nft.AddRule(&nftables.Rule{Table: table(), Chain: x.chain("stray"), Exprs: say("", bySource(mapSource)).exprs})
			if err := x.nft.AddSet(&nftables.Set{Table: table(), Name: "strays", KeyType: nftables.TypeIPAddr}, nil); err != nil {
				return err
			}
			return x.nft.Flush()
		},
	}
}

// withTools runs f in the node.
func (l *lab) withTools(f func(x tool) error) {
	l.tb.Helper()
	l.must(l.node.Do(func() error {
		k, err := openKernel()
		if err != nil {
			return err
		}
		defer k.close()
		return f(tool{k.nl, k.nft})
	}))
}

func TestApplyRepairsEveryDamage(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.host(settings())
	good := l.apply(h, wanted())
	want := l.dump(h)
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			l.tb = t
			l.withTools(damage)
			if l.dump(h) == want {
				t.Fatal("the damage does not show in the dump")
			}
			report := l.apply(h, wanted())
			if diff := cmp.Diff(want, l.dump(h)); diff != "" {
				t.Errorf("not repaired (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(good, report, compareAddrs); diff != "" {
				t.Errorf("report after the repair: %s", diff)
			}
		})
	}
	l.tb = t
}

// foreign puts objects of others into the node, many with the incumbent's numbers or close to ours.
func (l *lab) foreign() {
	l.tb.Helper()
	l.must(netlab.AddAddr(l.node, "eth0", netip.MustParsePrefix("10.0.1.99/32")))
	l.withTools(func(x tool) error {
		lo := x.link("lo").Attrs().Index
		for i, r := range []netlink.Route{
			{Table: 2}, {Table: 10001}, {Table: 6999}, {Table: tableLast + 1},
			{Table: 2, Protocol: protocol}, {Protocol: protocol}, // our protocol, but in tables that are not ours
			{Table: tablePods, Protocol: unix.RTPROT_STATIC}, // our table, another protocol
		} {
			r.LinkIndex, r.Dst, r.Scope = lo, ipNet(netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(i), 0}), 24)), netlink.SCOPE_LINK
			if err := x.nl.RouteAdd(&r); err != nil {
				return fmt.Errorf("add route %v: %w", r, err)
			}
		}
		for _, priority := range []int{10, 20, 400, 512, 1024, 1535, 1536, 1602, 32765} {
			r := netlink.NewRule()
			r.Family, r.Priority, r.Table, r.Dst = unix.AF_INET, priority, 2, ipNet(netip.MustParsePrefix("198.51.100.0/24"))
			if err := x.nl.RuleAdd(r); err != nil {
				return err
			}
		}
		r := Rule{Priority: 300, Table: 2}.wire() // our protocol, but not our priority
		if err := x.nl.RuleAdd(r); err != nil {
			return err
		}
		for _, t := range []*nftables.Table{
			{Name: "aws-cni", Family: nftables.TableFamilyIPv4}, {Name: tableName, Family: nftables.TableFamilyIPv6}, {Name: "nat", Family: nftables.TableFamilyIPv4},
		} {
			x.nft.AddTable(t)
			c := x.nft.AddChain(&nftables.Chain{Name: chainSNAT, Table: t, Type: nftables.ChainTypeNAT,
				Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
			x.nft.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: []expr.Any{&expr.Counter{}}})
		}
		return x.nft.Flush()
	})
}

// others is the text of everything in the node that is not ours: rules, routes, addresses and nftables chains with the
// number of their rules.
func (l *lab) others() string {
	l.tb.Helper()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	l.withTools(func(x tool) error {
		if err := x.eachRule(func(r netlink.Rule) error {
			if !ours(r) {
				add("rule %v protocol %d mark %d", r, r.Protocol, r.Mark)
			}
			return nil
		}); err != nil {
			return err
		}
		routes, err := x.nl.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range routes {
			mine := r.Protocol == protocol && r.Table >= tablePods && r.Table <= tableLast
			kernels := r.Table == unix.RT_TABLE_LOCAL // follows the addresses
			if !mine && !kernels {
				add("route %v", r)
			}
		}
		addrs, err := x.nl.AddrList(nil, unix.AF_INET)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if !strings.HasSuffix(a.Label, labelSuffix) {
				add("address %v index %d", a, a.LinkIndex)
			}
		}
		chains, err := x.nft.ListChains()
		if err != nil {
			return err
		}
		for _, c := range chains {
			if c.Table.Name == tableName && c.Table.Family == nftables.TableFamilyIPv4 {
				continue
			}
			rules, err := x.nft.GetRules(c.Table, c)
			if err != nil {
				return err
			}
			add("chain %d %s %s: %d rules", c.Table.Family, c.Table.Name, c.Name, len(rules))
		}
		return nil
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestB40ForeignStateIsNeverTouchedAndCleanLeavesNothing(t *testing.T) {
	l := newLab(t, labOptions{})
	l.foreign()
	before := l.others()
	h := l.host(settings())
	l.clean(h) // nothing there yet
	if diff := cmp.Diff(before, l.others()); diff != "" {
		t.Errorf("an early Clean changed foreign state:\n%s", diff)
	}
	report := l.apply(h, wanted())
	if len(report.ENIs) != 2 {
		t.Errorf("report %v", report)
	}
	l.pod(podB)
	if diff := cmp.Diff(before, l.others()); diff != "" {
		t.Errorf("Apply changed foreign state:\n%s", diff)
	}
	l.clean(l.host(settings())) // another process, which never applied anything
	if diff := cmp.Diff(before, l.others()); diff != "" {
		t.Errorf("Clean changed foreign state:\n%s", diff)
	}
	if diff := cmp.Diff("sysctl net.ipv4.ip_forward 1\n", l.dump(l.host(settings()))); diff != "" {
		t.Errorf("Clean left something:\n%s", diff)
	}
	l.clean(h)
}

// The incumbent and cloud images give secondary links their address in a form of their own. It serves, and stays.
func TestForeignAddressServes(t *testing.T) {
	l := newLab(t, labOptions{})
	l.must(netlab.AddAddr(l.node, "eth1", netip.MustParsePrefix(nodeSecondary+"/24")))
	before := l.others()
	h := l.host(settings())
	if report := l.apply(h, wanted()); len(report.ENIs) != 2 {
		t.Errorf("report %v", report)
	}
	l.clean(h)
	// The link is up now, so the address has its subnet's route in the main table; apart from that all is as before.
	after := strings.Join(slices.DeleteFunc(strings.Split(l.others(), "\n"), func(line string) bool {
		return strings.Contains(line, "Dst: 10.0.2.0/24")
	}), "\n")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestCancelledApplyReportsNothing(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	h := l.host(settings())
	err := l.node.Do(func() error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		report, err := h.Apply(ctx, wanted())
		if len(report.ENIs) != 0 || len(report.Addresses) != 0 {
			t.Errorf("nothing was written, but the report is %v", report)
		}
		return err
	})
	if err == nil {
		t.Error("no error from a cancelled Apply")
	}
}
