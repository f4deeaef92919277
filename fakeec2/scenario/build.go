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

// Build makes the model of a scenario. The nodes are launched now.
func (s Scenario) Build(now time.Time) (World, error) {
	w := World{Model: vpc.New(s.options()), RPFilter: map[string]int{}}
	rules := make([]fault.Rule, len(s.Faults))
	for i, f := range s.Faults {
		rules[i] = f.Rule()
	}
	var err error
	if w.Faults, err = fault.New(rules...); err != nil {
		return World{}, fmt.Errorf("build faults: %w", err)
	}
	places, err := s.buildVPC(w.Model)
	if err != nil {
		return World{}, err
	}
	if err := s.buildAddresses(w.Model, places); err != nil {
		return World{}, err
	}
	for _, n := range s.Nodes {
		in, err := n.launch(places)
		if err != nil {
			return World{}, fmt.Errorf("build node %s: %w", n.Name, err)
		}
		instance, err := w.Model.Launch(now, in)
		if err != nil {
			return World{}, fmt.Errorf("build node %s: %w", n.Name, err)
		}
		w.RPFilter[instance.ID] = defaultRPFilter
		if n.RPFilter != nil {
			w.RPFilter[instance.ID] = *n.RPFilter
		}
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

// places are ids by the names that the file uses.
type places struct {
	subnets, groups map[string]string
}

func (p places) subnet(name string) (string, error) {
	id, known := p.subnets[name]
	if !known {
		return "", fmt.Errorf("find subnet %q: not in the scenario", name)
	}
	return id, nil
}

func (s Scenario) buildVPC(model *vpc.VPC) (places, error) {
	p := places{subnets: map[string]string{}, groups: map[string]string{}}
	network, err := model.AddVPC(vpc.Network{ID: s.VPC.ID, CIDRs: s.VPC.CIDRs})
	if err != nil {
		return p, fmt.Errorf("build VPC: %w", err)
	}
	p.groups["default"] = network.DefaultGroup
	for _, g := range s.VPC.Groups {
		added, err := model.AddSecurityGroup(vpc.SecurityGroup{ID: g.ID, VPCID: network.ID, Name: g.Name, Tags: g.Tags})
		if err != nil {
			return p, fmt.Errorf("build security group %s: %w", g.Name, err)
		}
		p.groups[g.Name] = added.ID
	}
	for _, sub := range s.VPC.Subnets {
		if _, taken := p.subnets[sub.Name]; taken || sub.Name == "" {
			return p, fmt.Errorf("build subnet %s: the name %q is empty or used twice", sub.CIDR, sub.Name)
		}
		added, err := model.AddSubnet(vpc.Subnet{ID: sub.ID, VPCID: network.ID, AZ: sub.AZ, CIDR: sub.CIDR, Tags: sub.Tags})
		if err != nil {
			return p, fmt.Errorf("build subnet %s: %w", sub.Name, err)
		}
		p.subnets[sub.Name] = added.ID
	}
	return p, nil
}

// buildAddresses adds services and outside hosts.
func (s Scenario) buildAddresses(model *vpc.VPC, p places) error {
	for _, x := range s.Services {
		subnet, err := p.subnet(x.Subnet)
		if err != nil {
			return fmt.Errorf("build service %s: %w", x.Name, err)
		}
		if err := model.AddService(vpc.Service{Name: x.Name, Addr: x.Address, SubnetID: subnet, Namespace: x.Namespace}); err != nil {
			return fmt.Errorf("build service %s: %w", x.Name, err)
		}
	}
	for _, x := range s.Outside {
		if err := model.AddOutside(vpc.Outside{Name: x.Name, Addr: x.Address, CIDR: x.Network, Namespace: x.Namespace}); err != nil {
			return fmt.Errorf("build outside host %s: %w", x.Name, err)
		}
	}
	return nil
}

func (n Node) launch(p places) (vpc.LaunchInput, error) {
	subnet, err := p.subnet(n.Subnet)
	if err != nil {
		return vpc.LaunchInput{}, err
	}
	in := vpc.LaunchInput{
		ID: n.ID, Name: n.Name, Type: n.Type, SubnetID: subnet, ImageID: n.Image, Role: n.Role, Namespace: n.Namespace,
		PrivateIP: n.Address, Public: n.Public, HopLimit: n.HopLimit, TokensRequired: n.TokensRequired, Tags: n.Tags,
	}
	if in.Type == "" {
		in.Type = defaultType
	}
	for _, name := range n.Groups {
		id, known := p.groups[name]
		if !known {
			return vpc.LaunchInput{}, fmt.Errorf("find security group %q: not in the scenario", name)
		}
		in.Groups = append(in.Groups, id)
	}
	return in, nil
}
