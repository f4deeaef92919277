package compare_test

import (
	"testing"
)

// Both sides stand in one world, are called in turns by the same runtime, and the journal tells their calls apart.
func TestBothSidesServeInOneWorld(t *testing.T) {
	w := boot(t, shape{pairs: 1, instanceType: "m5.xlarge", quick: true})
	began := w.mark()
	w.start()
	for round := range 2 {
		for _, n := range w.pairs[0].inTurn(round) {
			pods := n.make(1)
			for _, c := range n.each((*node).add, pods) {
				if !c.address.IsValid() || c.took <= 0 || c.cpu <= 0 {
					t.Errorf("%s: ADD came to %+v", n.machine, c)
				}
			}
			if linked, err := n.linked(pods); linked != 1 || err != nil {
				t.Errorf("%s: %d links of a pod, error %v", n.machine, linked, err)
			}
			n.each((*node).del, pods)
			n.remove(pods)
		}
	}
	for _, n := range w.all() {
		counts := w.calls(n, began)
		if counts["DescribeNetworkInterfaces"] == 0 || counts["DescribeInstances"] > 10 {
			t.Errorf("%s: calls %v", n.machine, counts)
		}
		t.Logf("%s: calls from start to here: %v", n.machine, counts)
	}
}
