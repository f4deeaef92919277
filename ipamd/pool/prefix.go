package pool

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// member is an address together with the prefix that it comes out of; that is not valid for a secondary address.
type member struct {
	addr  netip.Addr
	block netip.Prefix
}

// longestShift bounds what a prefix may hold: EC2's are /28, of 16 addresses. A shorter one would be no prefix of an ENI, and
// taking a subnet for one would flood the pool.
const longestShift = 4

// members gives secondary addresses and all the addresses of prefixes. Every address of a prefix is for pods: a subnet's
// reserved ones are never in one. Source: the EC2 user guide, "Assign prefixes to network interfaces".
func members(secondary []netip.Addr, prefixes []netip.Prefix) []member {
	list := make([]member, 0, len(secondary)+len(prefixes)<<longestShift)
	for _, addr := range secondary {
		list = append(list, member{addr: addr})
	}
	for _, prefix := range prefixes {
		block := prefix.Masked()
		if !block.IsValid() || !block.Addr().Is4() || block.Addr().BitLen()-block.Bits() > longestShift {
			continue
		}
		for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
			list = append(list, member{addr, block})
		}
	}
	return list
}

// blocks gives the ENI's prefixes, ascending.
func (e *eni) blocks() []netip.Prefix {
	var list []netip.Prefix
	for _, a := range e.addresses {
		if a.block.IsValid() && !slices.Contains(list, a.block) {
			list = append(list, a.block)
		}
	}
	return list
}

// places is how many of the ENI's places for secondary addresses are taken: a prefix takes one.
func (e *eni) places() int {
	n, last := 0, netip.Prefix{}
	for _, a := range e.addresses {
		if !a.block.IsValid() || a.block != last {
			n++
		}
		last = a.block
	}
	return n
}

// unusedBlocks gives prefixes of an ENI that hold no more than n addresses in all, each of which is free: none is used, rests,
// is still named by an annotation or waits for the kernel.
func (p *Pool) unusedBlocks(e *eni, now time.Time, n int) []netip.Prefix {
	var list []netip.Prefix
	for _, block := range e.blocks() {
		size := 0
		for _, a := range e.addresses {
			if a.block != block {
				continue
			}
			size++
			if p.condition(a, now) != Free {
				size = n + 1
				break
			}
		}
		if size <= n {
			list = append(list, block)
			n -= size
		}
	}
	return list
}

// NewPrefixes makes the list of the given prefixes, ascending.
func NewPrefixes(prefixes []netip.Prefix) Prefixes {
	sorted := slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare)
	texts := make([]string, len(sorted))
	for i, prefix := range sorted {
		texts[i] = prefix.String()
	}
	return Prefixes(strings.Join(texts, ","))
}

// List parses the list; what is not a prefix is left out.
func (l Prefixes) List() []netip.Prefix {
	var list []netip.Prefix
	for text := range strings.SplitSeq(string(l), ",") {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			list = append(list, prefix)
		}
	}
	return list
}

func (l Prefixes) addresses() []netip.Addr {
	var list []netip.Addr
	for _, m := range members(nil, l.List()) {
		list = append(list, m.addr)
	}
	return list
}
