package netns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// Defaults of Options: the demo's cluster.
const (
	defaultInstanceType = "m5.xlarge"
	defaultNodes        = 2
)

// The addresses of the world, which is one VPC in one zone.
const (
	apiServerName    = "apiserver"
	apiServerAddress = "10.0.255.10:6443"
	ec2Address       = "10.0.255.20"
	internetName     = "internet"
	internetAddress  = "203.0.113.10"
)

// WithDefaults gives the options with every default filled in.
func (o Options) WithDefaults() Options {
	if o.InstanceType == "" {
		o.InstanceType = defaultInstanceType
	}
	if o.Nodes == 0 && len(o.Machines) == 0 {
		o.Nodes = defaultNodes
	}
	if o.StatusDelay == nil {
		delay := sandbox.KubeletDelay()
		o.StatusDelay = &delay
	}
	if o.Keys == "" {
		o.Keys = policygate.AWSPodIPs
	}
	o.Logs, _ = filepath.Abs(o.Logs) // fails only without a working directory, where nothing works
	return o
}

// Info is what a cluster with these options is.
func (o Options) Info() cluster.Info {
	o = o.WithDefaults()
	info := cluster.Info{Kind: Kind, Logs: o.Logs, Labels: []string{"annotation", "late-del", "status-delay"},
		DaemonUser: account.DaemonUser, DaemonRole: account.DaemonGrant}
	if o.Away != nil && o.Audit {
		info.Labels = append(info.Labels, "badday")
	}
	for i := range o.Nodes {
		info.Nodes = append(info.Nodes, cluster.Node{Name: nodeName(i), InstanceType: o.InstanceType, Capacity: capacity(o.InstanceType)})
	}
	return info
}

func nodeName(i int) string { return "node-" + string(rune('a'+i)) }

// subnet is the i-th node's own: 10.0.<i+1>.0/24, or a /20 where an instance type has more addresses than a /24.
func (o Options) subnet(i int) netip.Prefix {
	const most = 200 // of 251 in a /24, some of which are the ENIs' own
	if capacity(o.InstanceType) <= most {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i + 1), 0}), 24)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i+1) << 4, 0}), 20)
}

// nodeAddress is the node's own.
func (o Options) nodeAddress(i int) netip.Addr { return tenth(o.subnet(i)) }

// machineSubnet is the i-th machine's: a /21, which has room for prefixes, from 10.0.128.0 on.
func machineSubnet(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(128 + i<<3), 0}), 21)
}

// public is the public address of the i-th instance.
func public(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(10 + i)}) }

// tenth is the tenth address of a subnet.
func tenth(subnet netip.Prefix) netip.Addr {
	address := subnet.Addr().As4()
	address[3] = 10
	return netip.AddrFrom4(address)
}

// capacity is how many addresses for pods an instance type has room for: every ENI's own address is not for pods. An
// unknown type has none; the fake refuses to launch it.
func capacity(instanceType string) int {
	for _, known := range vpc.New(vpc.Options{}).InstanceTypes() {
		if known.Name == instanceType {
			return known.ENIs * (known.IPv4 - 1)
		}
	}
	return 0
}

// world is the scenario that fakeec2 is given: a VPC with one subnet for each node and one for services, and a host in the
// internet. Machines are as EKS makes them: version 2 of the metadata service only, two hops, strict rp_filter.
func (o Options) world() map[string]any {
	subnets := []map[string]any{{"name": "services", "cidr": "10.0.255.0/24"}}
	var nodes []map[string]any
	add := func(name, instanceType string, cidr netip.Prefix) {
		subnet := "subnet-" + name
		subnets = append(subnets, map[string]any{"name": subnet, "cidr": cidr.String()})
		nodes = append(nodes, map[string]any{
			"name": name, "type": instanceType, "subnet": subnet, "address": tenth(cidr).String(),
			"public": public(len(nodes)).String(), "securityGroups": []string{"nodes"},
			"role": "node", "hopLimit": 2, "tokensRequired": true, "rpFilter": 1,
		})
	}
	for i := range o.Nodes {
		add(nodeName(i), o.InstanceType, o.subnet(i))
	}
	for i, m := range o.Machines {
		add(m.Name, m.InstanceType, machineSubnet(i))
	}
	return map[string]any{
		"seed": o.Seed, "lags": o.Lags,
		"vpc": map[string]any{
			"cidrs": []string{"10.0.0.0/16"}, "subnets": subnets,
			"securityGroups": []map[string]any{{"name": "nodes"}},
		},
		"services": []map[string]any{
			{"name": apiServerName, "subnet": "services", "address": "10.0.255.10"},
			{"name": "ec2", "subnet": "services", "address": ec2Address},
		},
		"outside": []map[string]any{{"name": internetName, "address": internetAddress, "network": "203.0.113.0/24"}},
		"nodes":   nodes,
	}
}

// writeWorld writes the scenario to a file.
func (o Options) writeWorld(path string) error {
	text, err := yaml.Marshal(o.world())
	if err != nil {
		return fmt.Errorf("encode scenario: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write scenario: %w", err)
	}
	return nil
}
