package vpc

import "slices"

// Hypervisors, as EC2 names them. Bare metal has none.
const (
	Nitro = "nitro"
	Xen   = "xen"
)

// InstanceType is what EC2 allows an instance type. Source of the built-in ones: DescribeInstanceTypes, and for Trunk and
// Branches the VPC resource controller's table (no public API has them).
type InstanceType struct {
	Name        string
	ENIs        int   // over all cards
	IPv4        int   // addresses per ENI, the primary included; a prefix counts as one
	IPv6        int   // 0: as many as IPv4
	Cards       []int // ENIs per network card; nil means one card that takes them all
	DefaultCard int
	Hypervisor  string
	BareMetal   bool
	EFA         bool
	Trunk       bool
	Branches    int
}

// TakesPrefixes tells whether prefixes can be delegated to the type: Nitro and bare metal. Source: EC2 user guide.
func (t InstanceType) TakesPrefixes() bool { return t.BareMetal || t.Hypervisor == Nitro }

// complete fills in what follows from the rest.
func (t InstanceType) complete() InstanceType {
	t.Cards = slices.Clone(t.Cards)
	if len(t.Cards) == 0 {
		t.Cards = []int{t.ENIs}
	}
	if t.ENIs == 0 {
		for _, n := range t.Cards {
			t.ENIs += n
		}
	}
	if t.IPv6 == 0 {
		t.IPv6 = t.IPv4
	}
	if t.Hypervisor == "" && !t.BareMetal {
		t.Hypervisor = Nitro
	}
	return t
}

func (t InstanceType) clone() InstanceType {
	t.Cards = slices.Clone(t.Cards)
	return t
}

// MaxIPv4PerENI is the most that any EC2 type allows: CreateNetworkInterface, which does not know the type yet, checks
// against it.
const MaxIPv4PerENI = 50

// checkUsage refuses more addresses and prefixes (network address usage) than a VPC, and a VPC with its peers, may have. What
// CreateNetworkInterface takes counts and is not refused: Attach refuses it, as more of nothing. Source: VPC user guide, "Network
// Address Usage", which names the actions.
func (v *VPC) checkUsage(network string, more int) error {
	if v.usage[network]+more > v.opts.NAULimit {
		return refuse(CodeNAU, "The network address usage of %s would exceed the limit of %d", network, v.opts.NAULimit)
	}
	total, peers := v.usage[network]+more, 0
	for _, p := range v.peerings {
		if other := p.other(network); other != "" {
			total += v.usage[other]
			peers++
		}
	}
	if peers > 0 && total > v.opts.PeeredNAU {
		return refuse(CodeNAUPeered, "The network address usage of %s and its peers would exceed the limit of %d", network, v.opts.PeeredNAU)
	}
	return nil
}

func nitro(name string, enis, ipv4, branches int) InstanceType {
	return InstanceType{Name: name, ENIs: enis, IPv4: ipv4, Trunk: branches > 0, Branches: branches}.complete()
}

func xen(name string, enis, ipv4 int) InstanceType {
	return InstanceType{Name: name, ENIs: enis, IPv4: ipv4, Hypervisor: Xen}.complete()
}

func metal(name string, enis, ipv4, branches int) InstanceType {
	return InstanceType{Name: name, ENIs: enis, IPv4: ipv4, BareMetal: true, Trunk: branches > 0, Branches: branches}.complete()
}

func cards(name string, perCard []int, ipv4, branches int) InstanceType {
	return InstanceType{Name: name, IPv4: ipv4, Cards: perCard, EFA: true, Trunk: branches > 0, Branches: branches}.complete()
}

func withEFA(t InstanceType) InstanceType {
	t.EFA = true
	return t
}

// builtinTypes is a constant table: nothing changes it.
var builtinTypes = []InstanceType{
	xen("t2.micro", 2, 2),
	xen("m4.large", 2, 10),
	nitro("t3.nano", 2, 2, 0),
	nitro("t3.micro", 2, 2, 0),
	nitro("t3.small", 3, 4, 0),
	nitro("t3.medium", 3, 6, 0),
	nitro("t4g.medium", 3, 6, 0),
	nitro("t3.large", 3, 12, 0),
	nitro("t3.xlarge", 4, 15, 0),
	nitro("t3.2xlarge", 4, 15, 0),
	nitro("a1.medium", 2, 4, 10),
	nitro("m6g.medium", 2, 4, 4),
	nitro("m5.large", 3, 10, 9),
	nitro("c5.large", 3, 10, 9),
	nitro("r5.large", 3, 10, 9),
	nitro("m6i.large", 3, 10, 9),
	nitro("m6g.large", 3, 10, 9),
	nitro("m7i.large", 3, 10, 9),
	nitro("m8g.large", 3, 10, 9),
	nitro("m5.xlarge", 4, 15, 18),
	nitro("m5.2xlarge", 4, 15, 38),
	nitro("m5.4xlarge", 8, 30, 54),
	nitro("c5.4xlarge", 8, 30, 54),
	nitro("c5.9xlarge", 8, 30, 54),
	nitro("m5.8xlarge", 8, 30, 54),
	nitro("m5.12xlarge", 8, 30, 54),
	nitro("m5.24xlarge", 15, 50, 107),
	nitro("c5.18xlarge", 15, 50, 107),
	withEFA(nitro("c5n.18xlarge", 15, 50, 107)),
	withEFA(nitro("m6i.32xlarge", 15, 50, 107)),
	withEFA(nitro("p3dn.24xlarge", 15, 50, 107)),
	metal("m5.metal", 15, 50, 120),
	metal("i3.metal", 15, 50, 120),
	withEFA(nitro("g5.48xlarge", 7, 50, 115)),
	withEFA(nitro("inf1.24xlarge", 11, 30, 111)),
	cards("c6in.32xlarge", slices.Repeat([]int{8}, 2), 50, 106),
	cards("p4d.24xlarge", slices.Repeat([]int{15}, 4), 50, 62),
	cards("trn1.32xlarge", slices.Repeat([]int{5}, 8), 50, 82),
	cards("p5.48xlarge", slices.Repeat([]int{2}, 32), 50, 120),
}
