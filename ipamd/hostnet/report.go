package hostnet

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// report says what the kernel was seen to hold: nothing in it is concluded from a request that was merely sent.
func report(want pool.HostState, names map[string]string, desired, found State) pool.HostReport {
	r := pool.HostReport{Pods: alive(found)}
	if !baseStands(desired, found) {
		return r
	}
	var sources []Element
	if i := found.NFT.set(mapSource); i >= 0 {
		sources = found.NFT.Sets[i].Elements
	}
	mapped := make(map[Element]bool, len(sources))
	for _, e := range sources {
		mapped[e] = true
	}
	for _, eni := range want.ENIs {
		name, ok := names[eni.ID]
		if !ok || !usable(eni) || !eniStands(eni, name, desired, found) {
			continue
		}
		r.ENIs = append(r.ENIs, eni.ID)
		for _, addr := range eni.Addresses {
			entry := Element{Key: addr.String(), Goto: chainUseENI(eni.Device)}
			if addr.Is4() && (eni.Device == 0 || mapped[entry]) {
				r.Addresses = append(r.Addresses, addr)
			}
		}
	}
	slices.SortFunc(r.Addresses, netip.Addr.Compare)
	r.Addresses = slices.Compact(r.Addresses)
	return r
}

// baseStands tells whether what every pod needs is there: forwarding, the rules, and all of the nftables table but the
// addresses.
func baseStands(desired, found State) bool {
	if !found.Forwarding || found.NFT == nil || desired.NFT == nil {
		return false
	}
	for _, r := range desired.Rules {
		if (r.Priority == priorityPods || r.Priority == priorityMain) && !slices.Contains(found.Rules, r) {
			return false
		}
	}
	for _, c := range desired.NFT.Chains {
		i := found.NFT.chain(c.Name)
		if i < 0 || found.NFT.Chains[i].Hook != c.Hook || !sameRules(found.NFT.Chains[i].Rules, c.Rules) {
			return false
		}
	}
	for _, s := range desired.NFT.Sets {
		i := found.NFT.set(s.Name)
		if i < 0 || s.Name != mapSource && s.Name != setOwn && !slices.Equal(found.NFT.Sets[i].Elements, s.Elements) {
			return false
		}
	}
	return true
}

// eniStands tells whether an ENI's link is usable and its table is complete. A link that was set up is usable when the kernel
// has seen its carrier and started its queue, which it does up to a second later (net/core/link_watch.c); until then it
// drops packets, and when it is done the watcher sees the change. A wrong MTU is repaired, but makes no ENI unusable.
func eniStands(eni pool.HostENI, name string, desired, found State) bool {
	i := slices.IndexFunc(found.Links, func(l Link) bool { return l.Name == name })
	if i < 0 || !found.Links[i].Up || !found.Links[i].Running || found.Links[i].RPFilter != rpFilterLoose {
		return false
	}
	if eni.Device == 0 {
		return true
	}
	if !slices.ContainsFunc(found.Addrs, Address{Link: name, Addr: eni.Primary}.same) {
		return false
	}
	own := tablePods + eniMark(eni.Device)
	for _, r := range desired.Rules {
		if r.Table == own && !slices.Contains(found.Rules, r) {
			return false
		}
	}
	for _, r := range desired.Routes {
		if r.Table == own && !slices.Contains(found.Routes, r) {
			return false
		}
	}
	return true
}

// gone makes a removal of what is not there a success.
func gone(err error) error {
	for _, errno := range []error{unix.ENOENT, unix.ESRCH, unix.ENODEV, unix.EADDRNOTAVAIL} {
		if errors.Is(err, errno) {
			return nil
		}
	}
	return err
}
