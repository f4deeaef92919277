package scenario

import (
	"fmt"
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
	RPFilter map[string]int // by instance id
}

// Build makes the model of a scenario. The nodes are launched now. What the model's laws refuse is an *Error.
func (s Scenario) Build(now time.Time) (World, error) {
	w := World{Model: vpc.New(s.options()), Faults: &fault.Table{}, RPFilter: map[string]int{}}
	var p problems
	for i, f := range s.Faults {
		p.refused(fmt.Sprintf("faults[%d]", i), w.Faults.Add(f.Rule()))
	}
	where := s.buildVPC(w.Model, &p)
	if err := p.err(); err != nil {
		return World{}, err // what stands in the VPC would only be refused because of it
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
		return World{}, err
	}
	return w, nil
}

func (s Scenario) options() vpc.Options {
	delay := func(d *Duration) time.Duration {
		switch {
		case d == nil:
			return 0 // the model's default
		case *d == 0:
			return -1 // at once
		default:
			return time.Duration(*d)
		}
	}
	options := vpc.Options{
		Seed: s.Seed, Region: s.Region, Account: s.Account,
		AttachDelay: delay(s.Delays.Attach), LinkDelay: delay(s.Delays.Link), DetachDelay: delay(s.Delays.Detach),
		IMDSLag: delay(s.Delays.IMDS), ReuseDelay: delay(s.Delays.Reuse),
	}
	for _, t := range s.Types {
		options.Types = append(options.Types, vpc.InstanceType{Name: t.Name, ENIs: t.ENIs, IPv4: t.Addresses})
	}
	return options
}

// places are ids by the names that the file uses. Parse has made sure that every name is there.
type places struct {
	subnets, groups map[string]string
}

func (s Scenario) buildVPC(model *vpc.VPC, p *problems) places {
	where := places{subnets: map[string]string{}, groups: map[string]string{}}
	network, err := model.AddVPC(vpc.Network{ID: s.VPC.ID, CIDRs: s.VPC.CIDRs})
	if err != nil {
		p.refused("vpc", err)
		return where
	}
	where.groups["default"] = network.DefaultGroup
	for i, g := range s.VPC.Groups {
		added, err := model.AddSecurityGroup(vpc.SecurityGroup{ID: g.ID, VPCID: network.ID, Name: g.Name, Tags: g.Tags})
		p.refused(fmt.Sprintf("vpc.securityGroups[%d]", i), err)
		where.groups[g.Name] = added.ID
	}
	for i, sub := range s.VPC.Subnets {
		added, err := model.AddSubnet(vpc.Subnet{ID: sub.ID, VPCID: network.ID, AZ: sub.AZ, CIDR: sub.CIDR, Tags: sub.Tags})
		p.refused(fmt.Sprintf("vpc.subnets[%d]", i), err)
		where.subnets[sub.Name] = added.ID
	}
	return where
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
		ID: n.ID, Name: n.Name, Type: n.Type, SubnetID: where.subnets[n.Subnet], ImageID: n.Image, Role: n.Role, Namespace: n.Namespace,
		PrivateIP: n.Address, Public: n.Public, TokensRequired: n.TokensRequired, Tags: n.Tags,
	}
	if in.Type == "" {
		in.Type = defaultType
	}
	if n.HopLimit != nil {
		in.HopLimit = *n.HopLimit
	}
	for _, name := range n.Groups {
		in.Groups = append(in.Groups, where.groups[name])
	}
	return in
}
