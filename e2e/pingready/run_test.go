package pingready

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// paper is a cluster that exists on paper only: a run that touches it fails the test.
type paper struct {
	t    *testing.T
	info cluster.Info
}

func (p paper) Info() cluster.Info { return p.info }

func (p paper) Config() *rest.Config {
	p.t.Error("the API server was asked for")
	return &rest.Config{}
}

func (p paper) Reconfigure(context.Context, map[string]string) error {
	p.t.Error("the daemons were restarted")
	return nil
}

func (p paper) Ping(cluster.Pod) (net.PacketConn, error) { return nil, errors.New("no pods on paper") }

func (p paper) Follow(func(event.Event)) func() { return func() {} }

func nodes(capacities ...int) (info cluster.Info) {
	for _, capacity := range capacities {
		info.Nodes = append(info.Nodes, cluster.Node{Capacity: capacity})
	}
	return info
}

func TestMorePodsThanTheNodesHoldIsAnErrorThatSaysTheCapacity(t *testing.T) {
	_, err := Run(context.Background(), paper{t, nodes(56, 56)}, Options{Pods: 111})
	capacity, ok := errors.AsType[*CapacityError](err)
	if !ok || capacity.Capacity != 110 || !strings.Contains(err.Error(), "110") {
		t.Errorf("error = %v, want one that says 110", err)
	}
}

func TestARoundOnOneNodeHasThatNodesRoom(t *testing.T) {
	_, err := Run(context.Background(), paper{t, nodes(56, 56)}, Options{Pods: 56, Node: "a"})
	capacity, ok := errors.AsType[*CapacityError](err)
	if !ok || capacity.Capacity != 55 {
		t.Errorf("error = %v, want one that says 55", err)
	}
	info := nodes(56, 56, 56)
	for i, name := range []string{"a", "b", "c"} {
		info.Nodes[i].Name = name
	}
	r := &run{info: info, options: Options{Pods: 4, Node: "b"}, responders: []*responder{{}, {}, {pod: cluster.Pod{Node: "c"}}}}
	for _, s := range r.subjects() {
		if s.pod.Node != "b" || s.peer.pod.Node != "c" {
			t.Errorf("pod on node %q with its responder on %q", s.pod.Node, s.peer.pod.Node)
		}
	}
}

func TestARoundLastsFromTheFirstPodToTheLast(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	var took span
	took.take(record{addExec: at(20), addDone: at(90)}, at(100), at(250))
	took.take(record{addExec: at(10), addDone: at(80)}, at(240), at(110))
	if want := (span{began: at(10), added: at(90), ready: at(250)}); took != want {
		t.Errorf("span %v, want %v", took, want)
	}
}

func TestOneNodeIsNotEnough(t *testing.T) {
	if _, err := Run(context.Background(), paper{t, nodes(56)}, Options{Pods: 1}); err == nil {
		t.Error("a run with one node has nobody to ping")
	}
}

func TestCapacityIsTheSmallestNodesTimesTheNodes(t *testing.T) {
	if got := Capacity(nodes(56, 14, 56)); got != 39 { // 13 beside the responder, on each of 3
		t.Errorf("capacity = %d, want 39", got)
	}
}

func TestRoundsAlternate(t *testing.T) {
	if diff := cmp.Diff([]Knob{Off, On, Off, On}, Alternate(2)); diff != "" {
		t.Errorf("rounds (-want +got):\n%s", diff)
	}
}

// A node with 14 addresses, one for the responder: 13 are left. After a round of 10, three are fresh and ten cool down.
func TestARoundWaitsForTheCooldownOfTheAddressesItNeeds(t *testing.T) {
	tests := []struct {
		name string
		pods int
		want time.Duration
	}{
		{"enough fresh ones", 6, 0},
		{"one of those that were released first", 8, 30 * time.Second},
		{"all of them", 26, 34*time.Second + 500*time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				info := nodes(14, 14)
				info.Nodes[0].Name, info.Nodes[1].Name = "a", "b"
				r := &run{info: info, cooling: map[string][]time.Time{}, options: Options{Pods: test.pods, Cooldown: 30 * time.Second, Out: &bytes.Buffer{}}}
				began := time.Now()
				for i := range 10 {
					r.cooling["a"] = append(r.cooling["a"], began.Add(time.Duration(i)*500*time.Millisecond))
				}
				if err := r.awaitAddresses(context.Background()); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(began); got != test.want {
					t.Errorf("waited %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestRecorderKeepsTheFirstSighting(t *testing.T) {
	r := newRecorder("key")
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	for _, e := range []event.Event{
		{Kind: event.AddExec, At: at(1)},
		{Kind: event.AddFailed, At: at(2), Detail: "no address"},
		{Kind: event.AddExec, At: at(3)},
		{Kind: event.AddDone, At: at(4)},
		{Kind: event.ContainerStarted, At: at(5), Address: "10.0.0.5"},
		{Kind: event.Programmed, At: at(6)},
		{Kind: event.Programmed, At: at(9)},
	} {
		e.UID = "u"
		r.take(e)
	}
	got := r.get("u")
	if got.addExec != at(1) || got.addDone != at(4) || got.started != at(5) || got.programmed != at(6) || got.address != "10.0.0.5" {
		t.Errorf("record = %+v", got)
	}
	if want := []string{"add_failed: no address"}; !slices.Equal(got.troubles, want) {
		t.Errorf("troubles = %q, want %q", got.troubles, want)
	}
}

func TestWaitNamesWhoIsMissing(t *testing.T) {
	r := newRecorder("key")
	r.take(event.Event{UID: "a", Kind: event.PodGone, At: time.Unix(1, 0)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	missing, err := r.wait(ctx, []string{"a", "b"}, func(p record) bool { return !p.gone.IsZero() })
	if err == nil || len(missing) != 1 || missing[0] != "b" {
		t.Errorf("missing = %v, error %v, want b", missing, err)
	}
}
