package vpc

// Snapshot is the network of a model at one moment: whatever one of its parts refers to is there.
type Snapshot struct {
	Seq       uint64 // of the last change that it holds
	VPCs      []Network
	Subnets   []Subnet
	Groups    []SecurityGroup
	Peerings  []Peering
	Instances []Instance
	ENIs      []ENI
	Services  []Service
	Outsides  []Outside
}

// Snapshot reads everything that a follower needs, each list in the order of its ids or names.
func (v *VPC) Snapshot() Snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Snapshot{
		Seq:       v.seq,
		VPCs:      all(v.networks, (*Network).clone),
		Subnets:   all(v.subnets, (*subnet).snapshot),
		Groups:    all(v.groups, (*SecurityGroup).clone),
		Peerings:  all(v.peerings, func(p Peering) Peering { return p }),
		Instances: all(v.instances, func(i *instance) Instance { return i.clone() }),
		ENIs:      all(v.enis, (*ENI).clone),
		Services:  all(v.services, func(s Service) Service { return s }),
		Outsides:  all(v.outsides, func(o Outside) Outside { return o }),
	}
}
