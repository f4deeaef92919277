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

// wantGroups says what the security groups of all ENIs let pass, and who their members are.
func (w world) wantGroups(r reading) {
	for _, e := range r.ENIs {
		f := w.fabrics[e.VPCID]
		var out, in []groupRule
		for _, g := range e.Groups {
			out, in = append(out, r.groups[g].Egress...), append(in, r.groups[g].Ingress...)
		}
		f.Chains[chainName(egressChain, e.Groups)], f.Chains[chainName(ingressChain, e.Groups)] = out, in
		held := secondaries(e)
		if e.Primary.IsValid() {
			held = append(held, single(e.Primary))
		}
		for _, g := range e.Groups {
			w.enlist(r, g, held...)
		}
	}
	for _, s := range r.Services {
		for _, g := range r.Groups {
			if g.VPCID == r.subnets[s.SubnetID].VPCID && (len(s.Groups) == 0 || slices.Contains(s.Groups, g.ID)) {
				w.enlist(r, g.ID, single(s.Addr))
			}
		}
	}
}

// enlist makes members known in the VPC of their group and in those that are peered with it in one region.
func (w world) enlist(r reading, group string, held ...netip.Prefix) {
	home := r.groups[group].VPCID
	in := []string{home}
	for _, x := range r.Peerings {
		if other := x.Other(home); other != "" && !x.CrossRegion {
			in = append(in, other)
		}
	}
	for _, id := range in {
		for _, a := range held {
			w.fabrics[id].Members[member{group, a}] = true
		}
	}
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
		reason, other := DropIngress, r.p.source
		if strings.HasPrefix(name, egressChain) {
			reason, other = DropEgress, r.p.destination
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
	case vpc.ProtoICMP, vpc.ProtoICMPv6: // -1 is all
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
			slices.Concat(key, loadTo(addr, regAfter8), maskedIn(regAfter8, r.p.blockMask), inSet(r.sets.memberBlocks)),
		}
	case !r.p.has(rule.CIDR.Addr()):
		return nil // about the other protocol
	case rule.CIDR.Bits() == 0:
		return [][]expr.Any{nil}
	}
	return [][]expr.Any{r.p.in(addr, rule.CIDR)}
}
