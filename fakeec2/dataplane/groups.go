package dataplane

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// Prefixes of the names of chains. A chain is for all ENIs with the same security groups.
const (
	egressChain  = "eg-"
	ingressChain = "in-"
	// chainLength is the kernel's limit on a name (NFT_CHAIN_MAXNAMELEN) with room for the prefix.
	chainLength = 120
)

// groupRule is a rule of a security group.
type groupRule = vpc.Rule

// member is an address that a security group counts as one of its own.
type member struct {
	group string
	addr  netip.Prefix // one address, or a /28
}

// chainName names the chain of a set of groups. A set too long for a name is named by its hash.
func chainName(prefix string, groups []string) string {
	joined := strings.ReplaceAll(strings.Join(groups, "+"), "sg-", "")
	if len(joined) > chainLength {
		return fmt.Sprintf("%s%016x", prefix, hash64(joined))
	}
	return prefix + joined
}

// hash64 makes a number of a name where the kernel wants numbers. It is the same in every run.
func hash64(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

// groupKey is a group as a key: 6 bytes, the longest fixed type that may stand in a concatenation, padded to whole registers.
func groupKey(group string) []byte { return binary.BigEndian.AppendUint64(nil, hash64(group)<<16) }

// wantGroups says what the security groups of all ports let pass, and who their members are.
func (p *Plane) wantGroups(w world, enis []vpc.ENI, subnets map[string]vpc.Subnet) {
	groups := map[string]vpc.SecurityGroup{}
	for _, g := range p.model.SecurityGroups() {
		groups[g.ID] = g
	}
	for _, e := range enis {
		f := w.fabrics[e.VPCID]
		var out, in []groupRule
		for _, g := range e.Groups {
			out, in = append(out, groups[g].Egress...), append(in, groups[g].Ingress...)
		}
		f.Chains[chainName(egressChain, e.Groups)], f.Chains[chainName(ingressChain, e.Groups)] = out, in
		for _, g := range e.Groups {
			for _, a := range secondaries(e) {
				p.enlist(w, e.VPCID, member{g, a})
			}
			if e.Primary.IsValid() {
				p.enlist(w, e.VPCID, member{g, single(e.Primary)})
			}
		}
	}
	for _, s := range p.model.Services() {
		vpcID := subnets[s.SubnetID].VPCID
		for _, g := range p.serviceGroups(s, vpcID) {
			p.enlist(w, vpcID, member{g, single(s.Addr)})
		}
	}
}

// enlist makes a member known in its VPC and in those that are peered with it.
func (p *Plane) enlist(w world, vpcID string, m member) {
	w.fabrics[vpcID].Members[m] = true
	for _, x := range p.model.Peerings() {
		if other, peered := w.fabrics[x.Other(vpcID)]; peered && !x.CrossRegion {
			other.Members[m] = true
		}
	}
}

func (p *Plane) serviceGroups(s vpc.Service, vpcID string) []string {
	if len(s.Groups) > 0 {
		return s.Groups
	}
	var all []string
	for _, g := range p.model.SecurityGroups() {
		if g.VPCID == vpcID {
			all = append(all, g.ID)
		}
	}
	return all
}

// addChains makes the chains that are new and refills those that changed; the caller flushes.
func (r *rules) addChains(want map[string][]groupRule) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		pass := want[name]
		have, there := r.chains[name]
		if there && slices.Equal(have, pass) {
			continue
		}
		chain := r.conn.AddChain(&nftables.Chain{Name: name, Table: r.ip})
		if there {
			r.conn.FlushChain(chain)
		}
		reason, other := DropIngress, ipSource
		if strings.HasPrefix(name, egressChain) {
			reason, other = DropEgress, ipDestination
		}
		for _, rule := range pass {
			for _, otherEnd := range r.otherEnds(rule, other) {
				r.add(chain, append(matchProtocol(rule), otherEnd, []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}})...)
			}
		}
		r.add(chain, r.drop(reason))
		r.chains[name] = pass
	}
}

// dropChains removes the chains that no port uses any more; the caller flushes.
func (r *rules) dropChains(want map[string][]groupRule) {
	for _, name := range slices.Sorted(maps.Keys(r.chains)) {
		if _, wanted := want[name]; wanted {
			continue
		}
		chain := &nftables.Chain{Name: name, Table: r.ip}
		r.conn.FlushChain(chain)
		r.conn.DelChain(chain)
		delete(r.chains, name)
	}
}

// matchProtocol gives the matchers of a rule's protocol and ports.
func matchProtocol(rule groupRule) [][]expr.Any {
	var parts [][]expr.Any
	number := rule.Number()
	if number >= 0 {
		parts = append(parts, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}}, equals([]byte{byte(number)}))
	}
	switch number {
	case vpc.ProtoTCP, vpc.ProtoUDP:
		parts = append(parts, load(destinationPort), []expr.Any{&expr.Range{
			Op: expr.CmpOpEq, Register: reg1,
			FromData: binaryutil.BigEndian.PutUint16(uint16(rule.From)), ToData: binaryutil.BigEndian.PutUint16(uint16(rule.To)),
		}})
	case vpc.ProtoICMP: // -1 is all
		if rule.From >= 0 {
			parts = append(parts, load(icmpType), equals([]byte{byte(rule.From)}))
		}
		if rule.To >= 0 {
			parts = append(parts, load(icmpCode), equals([]byte{byte(rule.To)}))
		}
	}
	return parts
}

// otherEnds gives the matchers of a rule's other end, of which one must match; the field has its address.
func (r *rules) otherEnds(rule groupRule, addr field) [][]expr.Any {
	switch {
	case rule.Group != "":
		key := value(reg1, groupKey(rule.Group))
		return [][]expr.Any{
			slices.Concat(key, loadTo(addr, regAfter8), inSet(r.sets.members)),
			slices.Concat(key, loadTo(addr, regAfter8), maskedIn(regAfter8, blockMask()), inSet(r.sets.memberBlocks)),
		}
	case !rule.CIDR.Addr().Is4():
		return nil // about IPv6
	case rule.CIDR.Bits() == 0:
		return [][]expr.Any{nil}
	}
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-rule.CIDR.Bits()))
	return [][]expr.Any{slices.Concat(load(addr), masked(mask), equals(rule.CIDR.Addr().AsSlice()))}
}
