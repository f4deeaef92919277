package eksnode_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
)

// distinct fails unless all pods have addresses of their own.
func distinct(t *testing.T, pods []*pod) {
	t.Helper()
	of := map[netip.Addr]string{}
	for _, p := range pods {
		if other, taken := of[p.addr]; taken {
			t.Errorf("%s and %s both have %s", other, p.Name, p.addr)
		}
		of[p.addr] = p.Name
	}
}

func inAny(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// has tells whether EC2 knows just so many ENIs for the node, attached or not.
func (n *node) has(enis int) error {
	state, err := n.w.State(n.w.t.Context())
	if err != nil {
		return err
	}
	i, err := state.Instance(n.Name())
	if err != nil {
		return err
	}
	count := 0
	for _, e := range state.ENIs {
		if e.Tags["node.k8s.amazonaws.com/instance_id"] == i.ID {
			count++
		}
	}
	if count != enis {
		return fmt.Errorf("EC2 knows %d ENIs, want %d", count, enis)
	}
	return nil
}

// prefixes tells whether the node's primary ENI has just so many prefixes.
func (n *node) prefixes(want int) error {
	if got := n.enis()[0].Prefixes; len(got) != want {
		return fmt.Errorf("it has %v, want %d", got, want)
	}
	return nil
}

// requests are the node's EC2 requests of an action, so far.
func (n *node) requests(action string) []netns.Request {
	n.w.t.Helper()
	all, err := n.w.Journal(n.w.t.Context(), 0)
	check(n.w.t, err)
	primary, key := n.enis()[0].ID, ""
	for _, r := range all { // at its start it tags its primary ENI
		if r.Action == "CreateTags" && r.Params["ResourceId.1"] == primary {
			key = r.AccessKey
		}
	}
	return slices.DeleteFunc(all, func(r netns.Request) bool { return r.Action != action || r.AccessKey != key })
}

// done is how many of the node's requests of an action were successful.
func (n *node) done(action string) (count int) {
	for _, r := range n.requests(action) {
		if r.Code == "" {
			count++
		}
	}
	return count
}
