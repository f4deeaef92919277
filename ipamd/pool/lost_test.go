package pool

import (
	"net/netip"
	"slices"
	"testing"
)

// In a small subnet an address that was taken from a running pod is soon given to somebody else, who may be on this instance.
func TestRunningPodsAddressIsLostUnlessAnENIOfOursHasIt(t *testing.T) {
	cases := []struct {
		name   string
		places []string // where EC2 says the address is, in one reading after the other; "" is nowhere
		lost   bool
		eni    string // of the assignment
	}{
		{"nowhere", []string{""}, true, "eni-1"},
		{"on a stranger's ENI", []string{"stranger"}, true, "eni-1"},
		{"nowhere, then on a stranger's ENI", []string{"", "stranger"}, true, "eni-1"},
		{"on a stranger's ENI that has left", []string{"stranger", ""}, true, "eni-1"},
		{"on another ENI of ours", []string{"eni-2"}, false, "eni-2"},
		{"on a stranger's ENI, then ours again", []string{"stranger", "eni-1"}, false, "eni-1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			w.eni("eni-1", 1, 1)
			w.eni("eni-2", 2, 0)
			w.eni("stranger", 3, 0).Owned = false
			w.sync()
			addr := w.run("s1", "u1")
			for _, place := range c.places {
				w.pass(settle)
				for i := range w.obs.ENIs {
					w.obs.ENIs[i].Secondary = nil
				}
				if e := w.get(place); e != nil {
					e.Secondary = []netip.Addr{addr}
				}
				w.sync()
			}
			if lost := w.p.Lost(); (len(lost) == 1) != c.lost {
				t.Errorf("lost: %v", lost)
			}
			if a, err := w.p.Current(key("s1")); err != nil || a.ENI != c.eni {
				t.Errorf("assigned on %q, %v", a.ENI, err)
			}
			// The kernel is not where EC2's error should show.
			for _, e := range w.p.HostState().ENIs {
				if got := slices.Contains(e.Addresses, addr); got != (e.ID == c.eni) {
					t.Errorf("wanted on %s in the kernel: %v", e.ID, got)
				}
			}
		})
	}
}
