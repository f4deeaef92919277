package hostnet

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// pluginPod is a pod as the plugin builds it: its ends' MACs tell its address. Without a route it is one that lost it.
func (l *lab) pluginPod(veth, addr string, routed bool) {
	l.tb.Helper()
	ip := netip.MustParseAddr(addr)
	ns := l.namespace("sandbox-" + veth)
	l.must(netlab.Veth(netlab.End{NS: l.node, Name: veth, MAC: api.HostMAC(ip)}, netlab.End{NS: ns, Name: "eth0", MAC: api.PodMAC(ip)}))
	l.tb.Cleanup(func() { _ = netlab.DelLink(l.node, veth) })
	if !routed {
		return
	}
	l.must(netlab.Neigh(l.node, veth, ip, api.PodMAC(ip)))
	l.withTools(func(x tool) error {
		return x.nl.RouteAdd(&netlink.Route{Family: unix.AF_INET, LinkIndex: x.link(veth).Attrs().Index, Dst: ipNet(netip.PrefixFrom(ip, 32)),
			Scope: netlink.SCOPE_LINK, Table: tablePods, Protocol: protocol})
	})
}

// vethOf names links in these tests by the pod's name alone.
func vethOf(_ pool.Key, pod pool.Pod) string { return pod.Name }

func wantedPod(veth, addr string) pool.HostPod {
	return pool.HostPod{Pod: pool.Pod{Name: veth}, Addr: netip.MustParseAddr(addr)}
}

// A veth that was built for an address is evidence of life without any route; it gets its route back only where it is
// beyond doubt that it should have it.
func TestB34VethWithoutRouteIsEvidenceOfLife(t *testing.T) {
	lost := netip.MustParseAddr(podB)
	for name, c := range map[string]struct {
		pods     []pool.HostPod // wanted
		others   map[string]string
		prepare  func(x tool) error
		restored bool
	}{
		"held and done":                      {pods: []pool.HostPod{wantedPod("eniaaaa", podB)}, restored: true},
		"its link is down":                   {pods: []pool.HostPod{wantedPod("eniaaaa", podB)}, restored: true, prepare: func(x tool) error { return x.nl.LinkSetDown(x.link("eniaaaa")) }},
		"held by nobody":                     {},
		"held by a pod with another link":    {pods: []pool.HostPod{wantedPod("enibbbb", podB)}},
		"two links were built for it":        {pods: []pool.HostPod{wantedPod("eniaaaa", podB)}, others: map[string]string{"enibbbb": podB}},
		"the link was built for another pod": {pods: []pool.HostPod{wantedPod("eniaaaa", podC)}},
		"somebody else's route is in the way": {pods: []pool.HostPod{wantedPod("eniaaaa", podB)}, prepare: func(x tool) error {
			return x.nl.RouteAdd(&netlink.Route{Family: unix.AF_INET, Dst: ipNet(netip.PrefixFrom(lost, 32)), Table: tablePods, Type: unix.RTN_BLACKHOLE, Protocol: unix.RTPROT_STATIC})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, labOptions{})
			h := l.counting()
			l.apply(h.Host, wanted())
			l.pluginPod("eniaaaa", podB, false)
			for veth, addr := range c.others {
				l.pluginPod(veth, addr, false)
			}
			if c.prepare != nil {
				l.withTools(c.prepare)
			}
			want := wanted()
			want.Pods = c.pods
			report := l.applyOnce(h.Host, want)
			if !slices.ContainsFunc(report.Pods, func(p pool.PodRoute) bool { return p.Addr == lost }) {
				t.Errorf("the pod is taken for gone: %v", report.Pods)
			}
			if len(report.ENIs) != 2 {
				t.Errorf("the node suffers: %v", report)
			}
			if got := strings.Contains(l.dump(h.Host), "route table 7000 "+podB+" dev eniaaaa\n"); got != c.restored {
				t.Errorf("route restored: %v", got)
			}
			if got := slices.Contains(h.taken(), kindRoute); got != c.restored {
				t.Errorf("counted as a repaired route: %v\n%s", got, &h.log)
			}
			if c.restored {
				neighbours := l.neighbours("eniaaaa")
				if want := map[netip.Addr]string{lost: api.PodMAC(lost).String()}; !maps.Equal(neighbours, want) {
					t.Errorf("permanent neighbours %v, want %v", neighbours, want)
				}
			}
		})
	}
}

// A DEL comes between the reading and the repair: the pod has lost nothing.
func TestB34PodThatEndsMeanwhileIsNoDrift(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.counting()
	h.cfg.Around = func(point string, run func() error) error {
		if point == "kernel set neighbour" {
			l.must(netlab.DelLink(l.node, "eniaaaa"))
		}
		return run()
	}
	l.apply(h.Host, wanted())
	l.pluginPod("eniaaaa", podB, false)
	want := wanted()
	want.Pods = []pool.HostPod{wantedPod("eniaaaa", podB)}
	if report := l.applyOnce(h.Host, want); len(report.Pods) != 0 {
		t.Errorf("still seen: %v", report.Pods)
	}
	if got := h.taken(); len(got) != 0 || strings.Contains(h.log.String(), "WARN") {
		t.Errorf("counted %v\n%s", got, &h.log)
	}
}

// neighbours are a link's permanent entries.
func (l *lab) neighbours(link string) map[netip.Addr]string {
	l.tb.Helper()
	found := map[netip.Addr]string{}
	l.withTools(func(x tool) error {
		entries, err := dump("neighbours", func() ([]netlink.Neigh, error) {
			return x.nl.NeighList(x.link(link).Attrs().Index, unix.AF_INET)
		})
		for _, n := range entries {
			if addr, ok := netip.AddrFromSlice(n.IP.To4()); ok && n.State&netlink.NUD_PERMANENT != 0 {
				found[addr] = n.HardwareAddr.String()
			}
		}
		return err
	})
	return found
}

// counting is a Host that notes its repairs and its log.
type counting struct {
	*Host
	repairs []string
	log     strings.Builder
}

func (l *lab) counting() *counting {
	l.tb.Helper()
	c := &counting{}
	cfg := settings()
	cfg.Veth = vethOf
	cfg.Repaired = func(kind string) { c.repairs = append(c.repairs, kind) }
	cfg.Logger = slog.New(slog.NewTextHandler(&c.log, nil))
	c.Host = l.host(cfg)
	return c
}

// taken gives the kinds that were repaired since it was asked last.
func (c *counting) taken() []string {
	kinds := c.repairs
	c.repairs = nil
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// What an operator is alarmed by are changes that others made, of whatever kind; and only those.
func TestB32OnlyDriftIsCounted(t *testing.T) {
	kinds := map[string][]string{
		"ENI table flushed": {kindRoute}, "ENI route by another gateway": {kindRoute}, "second route with a metric": {kindRoute},
		"blackhole for an ENI": {kindRoute}, "rules of ours deleted": {kindRule}, "rule of ours with a selector": {kindRule},
		"rp_filter strict": {kindSysctl}, "rp_filter off": {kindSysctl}, "forwarding off": {kindSysctl},
		"ENI link down":   {kindLink, kindRoute},                                    // whose routes the kernel then drops
		"ENI MTU lowered": {kindLink}, "ENI address gone": {kindAddress, kindRoute}, // here too: the link's last address
		"obsolete ENI left by an earlier daemon": {kindAddress, kindRoute, kindRule},
	}
	for name := range tableDamages() {
		kinds[name] = []string{kindNFT}
	}
	l := newLab(t, labOptions{rpFilter: 1})
	h := l.counting()
	l.apply(h.Host, wanted())
	if got := h.taken(); len(got) != 0 {
		t.Fatalf("the first set-up counts as repair of %v", got)
	}
	for name, damage := range damages() {
		l.withTools(damage)
		h.log.Reset()
		l.apply(h.Host, wanted())
		if got := h.taken(); !slices.Equal(got, kinds[name]) {
			t.Errorf("%s: counted as %v, not %v", name, got, kinds[name])
		}
		if n := strings.Count(h.log.String(), "repaired"); n != 1 {
			t.Errorf("%s: %d lines in the log:\n%s", name, n, &h.log)
		}
	}
}

func TestB32WantedChangesAreNoDrift(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	h := l.counting()
	one := wanted()
	one.ENIs = one.ENIs[:1]
	more := wanted()
	more.VPCCIDRs = append(more.VPCCIDRs, netip.MustParsePrefix("100.64.0.0/16"))
	more.ENIs[1].Addresses = addrs(podB)
	for _, want := range []pool.HostState{one, wanted(), more, one, wanted()} {
		l.apply(h.Host, want)
	}
	// The ENI's link goes and comes, as at a detachment and the next attachment, between two passes.
	l.must(netlab.DelLink(l.node, "eth1"))
	mac, err := net.ParseMAC(macSecondary)
	l.must(err)
	l.must(netlab.Veth(netlab.End{NS: l.node, Name: "eth1", MAC: mac, Down: true}, netlab.End{NS: l.fabric, Name: "again"}))
	l.applyOnce(h.Host, wanted())
	if got := h.taken(); len(got) != 0 {
		t.Errorf("counted as repairs: %v\n%s", got, &h.log)
	}
	// Both at once: what is drift is counted all the same.
	l.withTools(func(x tool) error {
		return x.nl.RuleDel(Rule{Priority: priorityPods, Table: tablePods}.wire())
	})
	l.applyOnce(h.Host, more)
	if got := h.taken(); !slices.Equal(got, []string{kindRule}) {
		t.Errorf("a rule was deleted while a CIDR came: counted as %v", got)
	}
}

// A repair that fails is counted when it succeeds, and not before.
func TestB32FailedRepairIsCountedOnce(t *testing.T) {
	l := newLab(t, labOptions{})
	fail := false
	var repaired []string
	cfg := settings()
	cfg.Repaired = func(kind string) { repaired = append(repaired, kind) }
	cfg.Around = func(_ string, run func() error) error {
		if fail {
			return unix.ENOBUFS
		}
		return run()
	}
	h := l.host(cfg)
	l.apply(h, wanted())
	l.withTools(routingDamages()["ENI table flushed"])
	fail = true
	for range 2 {
		if err := l.node.Do(func() error { _, err := h.Apply(t.Context(), wanted()); return err }); err == nil {
			t.Fatal("no error")
		}
	}
	if len(repaired) != 0 {
		t.Errorf("counted before it was done: %v", repaired)
	}
	fail = false
	l.applyOnce(h, wanted())
	l.applyOnce(h, wanted())
	if !slices.Equal(repaired, []string{kindRoute}) {
		t.Errorf("counted %v", repaired)
	}
}

func TestB35RepeatedRepairsNameASuspectOnceAnHour(t *testing.T) {
	var r repeats
	start := time.Unix(0, 0)
	minutes := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	for _, step := range []struct {
		at   int
		want []string
	}{
		{0, nil}, {4, nil}, {11, nil}, // the first is too long ago
		{12, []string{kindRule}}, {13, nil}, {14, nil},
		{71, nil}, {72, nil}, {73, []string{kindRule}}, // an hour after the complaint, and still three in ten minutes
		{200, nil},
	} {
		if got := r.note([]string{kindRule}, minutes(step.at)); !slices.Equal(got, step.want) {
			t.Errorf("minute %d: %v, want %v", step.at, got, step.want)
		}
	}
	if got := r.note([]string{kindNFT}, minutes(73)); len(got) != 0 {
		t.Errorf("another kind's first repair: %v", got)
	}
	for kind, culprit := range map[string]string{kindRule: "systemd-networkd", kindRoute: "NetworkManager", kindNFT: "firewall", kindSysctl: "sysctl"} {
		if !strings.Contains(suspect(kind), culprit) {
			t.Errorf("%s: %s", kind, suspect(kind))
		}
	}
}

// Each line is a rule of somebody else's, and whether it gets pods' packets before ours do.
func TestB36ForeignRulesThatMatter(t *testing.T) {
	rule := func(priority int, set func(r *netlink.Rule)) netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table = unix.AF_INET, priority, 99
		if set != nil {
			set(r)
		}
		return *r
	}
	from := func(p string) func(*netlink.Rule) {
		return func(r *netlink.Rule) { r.Src = ipNet(netip.MustParsePrefix(p)) }
	}
	to := func(p string) func(*netlink.Rule) {
		return func(r *netlink.Rule) { r.Dst = ipNet(netip.MustParsePrefix(p)) }
	}
	for _, c := range []struct {
		name    string
		rule    netlink.Rule
		matters bool
	}{
		{"everything, before ours", rule(100, nil), true},
		{"everything, before main", rule(5270, nil), true},
		{"everything, after main", rule(40000, nil), false},
		{"to a pod, before ours", rule(399, to(podA+"/32")), true},
		{"to a pod, after ours", rule(401, to(podA+"/32")), false},
		{"to another network", rule(100, to("192.168.0.0/16")), false},
		{"from a pod of the primary ENI, before main", rule(30000, from(podA+"/32")), true},
		{"from a pod of another ENI, before its mark", rule(1601, from("10.0.2.0/24")), true},
		{"from a pod of another ENI, after its mark", rule(1700, from(podB+"/32")), false},
		{"from a pod of the primary ENI, to the main table", rule(1000, func(r *netlink.Rule) { from(podA + "/32")(r); r.Table = tableMain }), false},
		{"from the node's own address, before ours", rule(100, from(nodePrimary+"/32")), true}, // kubelet's probes
		{"from the node's own address, after ours", rule(500, from(nodePrimary+"/32")), false},
		{"for a mark", rule(100, func(r *netlink.Rule) { r.Mark = 0x80000 }), false},
		{"for an ENI's packets, before ours", rule(399, func(r *netlink.Rule) { r.IifName = "eth0" }), true},
		{"for an ENI's packets, after ours", rule(401, func(r *netlink.Rule) { r.IifName = "eth0" }), false},
		{"for a pod's packets", rule(399, func(r *netlink.Rule) { r.IifName = "eni0123456789a" }), true},
		{"the local table, moved", rule(15, func(r *netlink.Rule) { r.Table = unix.RT_TABLE_LOCAL }), false},
		{"the incumbent's", rule(512, to(podA+"/32")), false},
		{"nm-cloud-setup's, whatever it selects", rule(30401, from(nodeSecondary+"/32")), true},
	} {
		got := foreignRules([]netlink.Rule{c.rule}, wanted(), "eni")
		if (len(got) == 1) != c.matters {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// The Host says in its status what the table above finds, and stops saying it.
func TestB36WarningsComeAndGo(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.counting()
	stranger := netlink.NewRule()
	stranger.Family, stranger.Priority, stranger.Table, stranger.Src = unix.AF_INET, 30200, 30200, ipNet(netip.MustParsePrefix(podA+"/32"))
	l.withTools(func(x tool) error { return x.nl.RuleAdd(stranger) })
	for range 3 {
		l.applyOnce(h.Host, wanted())
	}
	want := []string{fmt.Sprintf("foreign rule gets pods' packets before ours do: 30200: from %s/32 lookup 30200 "+
		"(NetworkManager's nm-cloud-setup: disable nm-cloud-setup.timer and nm-cloud-setup.service, and reboot)", podA)}
	if diff := cmp.Diff(want, h.Warnings()); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(h.log.String(), "foreign rules get"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	l.withTools(func(x tool) error { return x.nl.RuleDel(stranger) })
	l.applyOnce(h.Host, wanted())
	if got := h.Warnings(); len(got) != 0 {
		t.Errorf("the rule is gone, still warned: %q", got)
	}
}
