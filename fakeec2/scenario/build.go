package scenario

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	defaultType     = "m5.xlarge"
	defaultRPFilter = 1
)

// World is a scenario that has been built.
type World struct {
	Model    *vpc.VPC
	Faults   *fault.Table
	Buckets  *fault.Buckets
	RPFilter map[string]int // by instance id
}

// Build makes the model of a scenario. The nodes are launched now. What the model's laws refuse is an *Error.
func (s Scenario) Build(now time.Time) (World, error) {
	w := World{Model: vpc.New(s.options()), Faults: &fault.Table{}, Buckets: fault.NewBuckets(s.Throttle), RPFilter: map[string]int{}}
	w.Faults.Seed(s.Seed)
	for _, b := range s.Buckets {
		w.Buckets.Set(b.Action, fault.Bucket{Size: b.Size, Refill: b.Refill})
	}
	var p problems
	for i, f := range s.Faults {
		p.refused(fmt.Sprintf("faults[%d]", i), w.Faults.Add(f.Rule()))
	}
	where := s.buildVPCs(w.Model, &p)
	if err := p.err(); err != nil {
		return World{}, locate(err, s.lines) // what stands in the VPCs would only be refused because of it
	}
	s.buildAddresses(w.Model, where, &p)
	for i, n := range s.Nodes {
		instance, err := w.Model.Launch(now, n.launch(where))
		if err != nil {
			p.refused(fmt.Sprintf("nodes[%d]", i), err)
			continue
		}
		w.RPFilter[instance.ID] = defaultRPFilter
		if n.RPFilter != nil {
			w.RPFilter[instance.ID] = *n.RPFilter
		}
	}
	if err := p.err(); err != nil {
		return World{}, locate(err, s.lines)
	}
	return w, nil
}

func (s Scenario) options() vpc.Options {
	lags := vpc.DefaultLags()
	for _, x := range []struct {
		given *Duration
		set   func(vpc.Range)
	}{
		{s.Delays.Attach, func(r vpc.Range) { lags.Attach = r }}, {s.Delays.Link, func(r vpc.Range) { lags.Link = r }},
		{s.Delays.Detach, func(r vpc.Range) { lags.Detach = r }}, {s.Delays.IMDS, lags.SetMetadata},
	} {
		if x.given != nil {
			x.set(vpc.Exactly(time.Duration(*x.given)))
		}
	}
	for name, r := range s.Lags {
		lags.Set(name, vpc.Range(r))
	}
	options := vpc.Options{
		Seed: s.Seed, Region: s.Region, Account: s.Account, Lags: &lags, Inferred: s.Inferred.laws(),
		ENIQuota: s.Limits.ENIs, GroupsPerENI: s.Limits.GroupsPerENI, NAULimit: s.Limits.Usage, PeeredNAU: s.Limits.PeeredUsage,
		TagSettle: time.Duration(s.Limits.TagSettle),
	}
	if s.Delays.Reuse != nil {
		if options.ReuseDelay = time.Duration(*s.Delays.Reuse); options.ReuseDelay == 0 {
			options.ReuseDelay = -1 // at once
		}
	}
	for _, t := range s.Types {
		made := vpc.InstanceType{
			Name: t.Name, ENIs: t.ENIs, IPv4: t.Addresses, IPv6: t.IPv6, Cards: t.Cards, BareMetal: t.BareMetal, EFA: t.EFA,
			Trunk: t.Branches > 0, Branches: t.Branches,
		}
		if t.Xen {
			made.Hypervisor = vpc.Xen
		}
		options.Types = append(options.Types, made)
	}
	return options
}

// laws are those that the model keeps; the others are the endpoint's.
func (i Inferred) laws() vpc.Inferred {
	return vpc.Inferred{
		LateAddressLimit: i.LateAddressLimit, UnassignKnown: i.UnassignKnown, MixedLists: i.MixedLists, ShortIsBlocks: i.ShortIsBlocks,
		AllMissing: i.AllMissing, PrefixOnXen: i.PrefixOnXen, UnfitType: i.UnfitType, BranchLimit: i.BranchLimit,
	}
}

// places are ids by the names that the file uses. Parse has made sure that every name is there.
type places struct {
	networks, subnets map[string]string
	groups            map[string]map[string]string // by subnet: those of its VPC
}

// placedVPC is a VPC and where it stands in the file.
type placedVPC struct {
	VPC
	field string
}

// networks are all VPCs of the file.
func (s Scenario) networks() []placedVPC {
	var out []placedVPC
	if len(s.VPCs) == 0 || len(s.VPC.CIDRs)+len(s.VPC.Subnets)+len(s.VPC.Groups) > 0 {
		out = append(out, placedVPC{s.VPC, "vpc"})
	}
	for i, n := range s.VPCs {
		out = append(out, placedVPC{n, fmt.Sprintf("vpcs[%d]", i)})
	}
	return out
}

func (s Scenario) buildVPCs(model *vpc.VPC, p *problems) places {
	where := places{networks: map[string]string{}, subnets: map[string]string{}, groups: map[string]map[string]string{}}
	for _, n := range s.networks() {
		network, err := model.AddVPC(vpc.Network{ID: n.ID, CIDRs: n.CIDRs, IPv6CIDRs: n.IPv6})
		if err != nil {
			p.refused(n.field, err)
			continue
		}
		where.networks[n.Name] = network.ID
		groups := n.buildGroups(model, network, p)
		for i, sub := range n.Subnets {
			field := fmt.Sprintf("%s.subnets[%d]", n.field, i)
			added, err := model.AddSubnet(vpc.Subnet{
				ID: sub.ID, VPCID: network.ID, AZ: sub.AZ, CIDR: sub.CIDR, IPv6CIDR: sub.IPv6, AssignIPv6: sub.AssignIPv6, Tags: sub.Tags,
			})
			p.refused(field, err)
			where.subnets[sub.Name], where.groups[sub.Name] = added.ID, groups
			for j, r := range sub.Reservations {
				if err == nil {
					_, refused := model.CreateSubnetCIDRReservation(time.Time{}, vpc.CIDRReservation{SubnetID: added.ID, CIDR: r.CIDR, Type: r.Type})
					p.refused(fmt.Sprintf("%s.reservations[%d]", field, j), refused)
				}
			}
		}
	}
	for i, x := range s.Peerings {
		_, err := model.AddPeering(vpc.Peering{A: where.networks[x.Between[0]], B: where.networks[x.Between[1]], CrossRegion: x.CrossRegion})
		p.refused(fmt.Sprintf("peerings[%d]", i), err)
	}
	return where
}

// buildGroups adds a VPC's groups first and their rules then: rules may name any group.
func (n placedVPC) buildGroups(model *vpc.VPC, network vpc.Network, p *problems) map[string]string {
	ids := map[string]string{"default": network.DefaultGroup}
	for i, g := range n.Groups {
		added, err := model.AddSecurityGroup(vpc.SecurityGroup{ID: g.ID, VPCID: network.ID, Name: g.Name, Tags: g.Tags, Egress: []vpc.Rule{}})
		p.refused(fmt.Sprintf("%s.securityGroups[%d]", n.field, i), err)
		ids[g.Name] = added.ID
	}
	for i, g := range n.Groups {
		ingress, egress := g.Ingress, g.Egress
		if ingress == nil && egress == nil {
			ingress = []Rule{{Peer: g.Name}}
		}
		if egress == nil {
			egress = []Rule{{Peer: "0.0.0.0/0"}, {Peer: "::/0"}}
		}
		for direction, rules := range [][]Rule{ingress, egress} {
			if len(rules) > 0 && ids[g.Name] != "" {
				p.refused(fmt.Sprintf("%s.securityGroups[%d]", n.field, i), model.AuthorizeSecurityGroup(time.Time{}, ids[g.Name], direction == 1, rulesOf(rules, ids)))
			}
		}
	}
	return ids
}

func rulesOf(rules []Rule, ids map[string]string) []vpc.Rule {
	var out []vpc.Rule
	for _, r := range rules {
		made := vpc.Rule{Protocol: cmp.Or(r.Protocol, vpc.Any)}
		if made.Protocol != vpc.Any {
			made.From, made.To, _ = r.ports()
		}
		if cidr, err := netip.ParsePrefix(r.Peer); err == nil {
			made.CIDR = cidr
		} else {
			made.Group = ids[r.Peer]
		}
		out = append(out, made)
	}
	return out
}

// ports reads a port, a range or, for nothing, all ports (of ICMP: all types).
func (r Rule) ports() (from, to int, ok bool) {
	if r.Ports == "" {
		if strings.HasPrefix(r.Protocol, "icmp") {
			return -1, -1, true
		}
		return 0, 65535, true
	}
	low, high, two := strings.Cut(r.Ports, "-")
	if !two {
		high = low
	}
	from, err := strconv.Atoi(low)
	if err != nil {
		return 0, 0, false
	}
	to, err = strconv.Atoi(high)
	return from, to, err == nil && from <= to && from >= 0 && to <= 65535
}

// buildAddresses adds services and outside hosts.
func (s Scenario) buildAddresses(model *vpc.VPC, where places, p *problems) {
	for i, x := range s.Services {
		p.refused(fmt.Sprintf("services[%d]", i), model.AddService(vpc.Service{
			Name: x.Name, Addr: x.Address, SubnetID: where.subnets[x.Subnet], Namespace: x.Namespace,
		}))
	}
	for i, x := range s.Outside {
		p.refused(fmt.Sprintf("outside[%d]", i), model.AddOutside(vpc.Outside{Name: x.Name, Addr: x.Address, CIDR: x.Network, Namespace: x.Namespace}))
	}
}

func (n Node) launch(where places) vpc.LaunchInput {
	in := vpc.LaunchInput{
		ID: n.ID, Name: n.Name, Type: cmp.Or(n.Type, defaultType), ImageID: n.Image, Role: n.Role, Namespace: n.Namespace, Public: n.Public,
		TokensRequired: n.TokensRequired, MetadataOff: n.MetadataOff, MetadataIPv6: n.MetadataIPv6, MetadataTags: n.MetadataTags, PredictableNames: n.Names, Tags: n.Tags,
	}
	if n.HopLimit != nil {
		in.HopLimit = *n.HopLimit
	}
	groups := func(names []string, subnet string) []string {
		var ids []string
		for _, name := range names {
			ids = append(ids, where.groups[subnet][name])
		}
		return ids
	}
	in.Interfaces = append(in.Interfaces, vpc.LaunchInterface{Create: vpc.CreateNetworkInterfaceInput{
		SubnetID: where.subnets[n.Subnet], Groups: groups(n.Groups, n.Subnet), Primary: n.Address, IPv6Count: n.IPv6,
	}})
	for _, e := range n.ENIs {
		subnet := cmp.Or(e.Subnet, n.Subnet)
		in.Interfaces = append(in.Interfaces, vpc.LaunchInterface{Device: e.Device, Card: e.Card, KeepOnTermination: e.Keep, Create: vpc.CreateNetworkInterfaceInput{
			SubnetID: where.subnets[subnet], Groups: groups(e.Groups, subnet), SecondaryCount: e.Secondary, PrefixCount: e.Prefixes, IPv6Count: e.IPv6,
		}})
	}
	return in
}
