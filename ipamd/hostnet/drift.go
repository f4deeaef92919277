package hostnet

import (
	"slices"
	"time"
)

// memory is what the last Apply left behind. It tells drift, which others made, from what is wanted anew.
type memory struct {
	known   bool            // there was an Apply since the start, or since Clean
	desired State           // of the last Apply
	index   map[string]int  // of the ENI links then
	open    map[string]bool // steps that it left undone, and whether they were drift
}

// drift tells which of the steps put right what others have changed. Nothing is drift before the first Apply: what an
// earlier daemon left, or the kernel lacks after boot, is set up. A link that is another one than it was (an ENI that went and
// came) has lost everything rightly.
func (m *memory) drift(desired, found State, index map[string]int, steps []step) map[string]bool {
	drifted := make(map[string]bool)
	if !m.known || len(steps) == 0 {
		return drifted
	}
	before := m.desired
	for name, was := range m.index {
		if index[name] != was {
			before = before.without(name)
		}
	}
	for _, l := range desired.Links {
		if !slices.ContainsFunc(before.Links, func(b Link) bool { return b.Name == l.Name }) {
			before.Links = append(slices.Clone(before.Links), Link{Name: l.Name}) // new, so all of it is wanted
		}
	}
	wanted := make(map[string]bool)
	for _, s := range difference(desired, before) {
		wanted[s.String()] = true
	}
	for _, s := range steps {
		was, left := m.open[s.String()]
		switch {
		case left:
			drifted[s.String()] = was
		case s.pod:
			drifted[s.String()] = true // the plugin has built it: its pod is done
		case s.kind == kindNFT && before.NFT != nil:
			drifted[s.String()] = !sameTable(before.NFT, found.NFT) // one step for all changes of the table
		default:
			drifted[s.String()] = !wanted[s.String()]
		}
	}
	return drifted
}

// keep remembers an Apply. left are its steps that were not carried out.
func (m *memory) keep(desired State, index map[string]int, left map[string]bool) {
	*m = memory{known: true, desired: desired, index: make(map[string]int), open: left}
	for _, l := range desired.Links {
		m.index[l.Name] = index[l.Name]
	}
}

// without is the state less everything that goes with a link.
func (s State) without(link string) State {
	s.Links = slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool { return l.Name == link })
	s.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), func(a Address) bool { return a.Link == link })
	s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r Route) bool { return r.Link == link })
	return s
}

const (
	// repeatsNeeded passes that repair the same kind of object within repeatsWithin are no accident: somebody manages the
	// node's network by other plans.
	repeatsNeeded = 3
	repeatsWithin = 10 * time.Minute
	// repeatsQuiet is the least time between two complaints of one kind.
	repeatsQuiet = time.Hour
)

// repeats remembers when kinds of object had to be repaired.
type repeats struct {
	passes map[string][]time.Time
	told   map[string]time.Time
}

// note takes the kinds that one pass repaired, and gives those that are worth a complaint now, in order.
func (r *repeats) note(kinds []string, now time.Time) []string {
	if r.passes == nil {
		r.passes, r.told = make(map[string][]time.Time), make(map[string]time.Time)
	}
	var complain []string
	for _, kind := range kinds {
		recent := slices.DeleteFunc(append(r.passes[kind], now), func(at time.Time) bool { return now.Sub(at) > repeatsWithin })
		r.passes[kind] = recent
		if told, ok := r.told[kind]; len(recent) >= repeatsNeeded && (!ok || now.Sub(told) >= repeatsQuiet) {
			r.told[kind] = now
			complain = append(complain, kind)
		}
	}
	slices.Sort(complain)
	return complain
}

// suspect is the class of program that is known to change a kind of object behind our back, and what its owner can do. The
// kernel does not tell who it was.
func suspect(kind string) string {
	switch kind {
	case kindRule, kindRoute, kindAddress, kindLink, kindNeighbour:
		const networkd = "systemd-networkd (set ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in networkd.conf, and Unmanaged=yes for links that it need not configure)"
		if kind == kindRule {
			return networkd // NetworkManager leaves foreign rules alone
		}
		return networkd + ", or NetworkManager (list the ENIs' and pods' links in unmanaged-devices, and disable nm-cloud-setup.timer)"
	case kindNFT:
		return "a firewall that flushes the whole ruleset (nftables.service, firewalld, ufw)"
	}
	return "a sysctl file (systemd-sysctl, tuned)"
}
