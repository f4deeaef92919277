package ipamd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/hostnet"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// kernelLeak compares all that the daemon has in the node's kernel (rules, routes, addresses, the nftables table) with what
// hostnet wants where the ENIs and addresses are those that EC2 has. Routes and links of pods are kernelAgrees' business.
func (f *fire) kernelLeak() error {
	handle, err := f.node.Netlink()
	if err != nil {
		return err
	}
	defer handle.Close()
	names, addrs, err := eniLinks(handle, f.model.ENIs())
	if err != nil {
		return err
	}
	want, found, err := f.hostTexts(names)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, found); diff != "" {
		return fmt.Errorf("kernel (-by EC2 +found):\n%s", diff)
	}
	return errors.Join(addrs, countsAgree(handle, want, len(f.running())))
}

// hostTexts gives the lines that hostnet wants for EC2's present state, and those that a process which knows nothing of
// earlier lives finds.
func (f *fire) hostTexts(names map[string]string) (want, found []string, err error) {
	settings, err := config.Load(f.env, annotate.Keys)
	if err != nil {
		return nil, nil, err
	}
	cfg := hostnet.Config{
		MTU: settings.ENIMTU, VethPrefix: settings.VethPrefix, ExternalSNAT: settings.ExternalSNAT, NodePort: settings.NodePort,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	host, err := hostnet.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	var dump string
	err = f.node.Do(func() (err error) { dump, err = host.Dump(context.Background()); return err })
	return ourLines(hostnet.Desired(cfg, f.hostState(), names).String()), ourLines(dump), err
}

// hostState is what EC2 has, in the pool's words.
func (f *fire) hostState() pool.HostState {
	var want pool.HostState
	for _, network := range f.model.VPCs() {
		want.VPCCIDRs = append(want.VPCCIDRs, network.CIDRs...)
	}
	for _, eni := range f.model.InstanceENIs(f.instance.ID) {
		if eni.Attachment == nil || eni.Attachment.Status != vpc.Attached {
			continue
		}
		subnet, _ := f.model.Subnet(eni.SubnetID)
		want.ENIs = append(want.ENIs, pool.HostENI{
			ID: eni.ID, MAC: eni.MAC, Device: eni.Attachment.Device, SubnetCIDR: subnet.CIDR, Primary: eni.Primary, Addresses: eni.Secondary,
		})
	}
	return want
}

// ourLines leaves out what others have: a fresh host shows no links, and routes of pods are the plugin's.
func ourLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "link ") || strings.HasPrefix(line, fmt.Sprintf("route table %d ", api.PodsTable))
	})
}

// eniLinks names the ENIs' links by id. The second result says which of them has other IPv4 addresses than its ENI's primary
// one, whoever put them there.
func eniLinks(handle *netlink.Handle, enis []vpc.ENI) (names map[string]string, wrong, err error) {
	links, err := handle.LinkList()
	if err != nil {
		return nil, nil, err
	}
	names = map[string]string{}
	var errs []error
	for _, link := range links {
		mac := link.Attrs().HardwareAddr.String()
		i := slices.IndexFunc(enis, func(e vpc.ENI) bool { return e.MAC == mac })
		if i < 0 {
			continue
		}
		names[enis[i].ID] = link.Attrs().Name
		list, err := handle.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return nil, nil, err
		}
		var found []netip.Addr
		for _, a := range list {
			addr, _ := netip.AddrFromSlice(a.IP.To4())
			found = append(found, addr)
		}
		errs = append(errs, differs("addresses of "+link.Attrs().Name, []netip.Addr{enis[i].Primary}, found))
	}
	return names, errors.Join(errs...), nil
}

// countsAgree counts what carries our protocol at any priority and in any table: hostnet's own reading passes over what is
// not where its objects are.
func countsAgree(handle *netlink.Handle, want []string, pods int) error {
	wanted := func(kind string) (n int) {
		for _, line := range want {
			if strings.HasPrefix(line, kind+" ") {
				n++
			}
		}
		return n
	}
	rules, err := handle.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	rules = slices.DeleteFunc(rules, func(r netlink.Rule) bool { return r.Protocol != api.RouteProtocol })
	routes, err := handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: api.RouteProtocol},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	switch {
	case err != nil:
		return err
	case len(rules) != wanted("rule"):
		return fmt.Errorf("kernel has %d rules of ours, wanted are %d: %v", len(rules), wanted("rule"), rules)
	case len(routes) != wanted("route")+pods:
		return fmt.Errorf("kernel has %d routes of ours, wanted are %d and those of %d pods: %v", len(routes), wanted("route"), pods, routes)
	}
	return nil
}
