package store

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// encode is the first document of an encoder.
func encode(snap pool.Snapshot) ([]byte, error) { return newEncoder().encode(snap) }

// TestEncoderWritesWhatIsThere changes a snapshot at random, also in ways that a pool never does, and reads each text back.
func TestEncoderWritesWhatIsThere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	e := newEncoder()
	snap := pool.Snapshot{BootID: "boot \"1\""}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	fresh := func() (netip.Addr, pool.Pod, time.Time) {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(40))})
		return addr, pool.Pod{Namespace: "ns", Name: fmt.Sprint("p", random.IntN(1000))}, at.Add(time.Duration(random.IntN(50)) * time.Second)
	}
	for range 600 {
		switch addr, pod, when := fresh(); random.IntN(8) {
		case 0:
			snap.Assignments = append(slices.Clone(snap.Assignments), pool.Assignment{Key: pool.Key{Sandbox: "s"}, Pod: pod, Addr: addr, Since: when})
		case 1:
			snap.Cooling = append(slices.Clone(snap.Cooling), pool.Cooling{Addr: addr, Pod: pod, Until: when})
		case 2:
			owner := pool.Owner{Pod: pod, Sandbox: "s", Addr: addr}
			snap.Annotations = append(slices.Clone(snap.Annotations), pool.Annotation{Owner: owner, Keys: []string{"a"}, Wish: pool.WishPresent, Since: when})
		case 3:
			snap.Assignments = without(random, snap.Assignments)
		case 4:
			snap.Cooling = without(random, snap.Cooling)
		case 5:
			snap.Annotations = without(random, snap.Annotations)
		case 6:
			if n := len(snap.Assignments); n > 0 {
				snap.Assignments = slices.Clone(snap.Assignments)
				snap.Assignments[random.IntN(n)].Done = true
			}
			if n := len(snap.Annotations); n > 0 {
				snap.Annotations = slices.Clone(snap.Annotations)
				snap.Annotations[random.IntN(n)].Keys = []string{"b", "c"}
			}
		case 7:
			snap.Assignments, snap.Annotations = slices.Clone(snap.Assignments), slices.Clone(snap.Annotations)
			slices.SortFunc(snap.Assignments, func(a, b pool.Assignment) int { return a.Addr.Compare(b.Addr) })
			slices.SortFunc(snap.Annotations, func(a, b pool.Annotation) int { return a.Since.Compare(b.Since) })
		}
		text, err := e.encode(snap)
		if err != nil || !json.Valid(text) {
			t.Fatalf("%v: %s", err, text)
		}
		got, err := decode(text, steps())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(snap, got, sameAddr, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	}
}

func without[T any](random *rand.Rand, list []T) []T {
	if len(list) == 0 {
		return list
	}
	i := random.IntN(len(list))
	return slices.Delete(slices.Clone(list), i, i+1)
}

// A pod's further addresses are part of what is owned: without them a value of all addresses would not be known as ours.
func TestFurtherAddressesOfAnAnnotationAreKept(t *testing.T) {
	snap := pool.Snapshot{BootID: "b", Annotations: []pool.Annotation{{
		Owner: pool.Owner{Pod: pool.Pod{Namespace: "n", Name: "p", UID: "u"}, Sandbox: "s", Addr: netip.MustParseAddr("10.0.0.1")},
		More:  []netip.Addr{netip.MustParseAddr("2001:db8::1")}, Keys: []string{"k"}, Wish: pool.WishPresent, Since: time.Unix(1, 0).UTC(),
	}}}
	memory := NewMemory()
	if err := New(memory, "state").Save(snap); err != nil {
		t.Fatal(err)
	}
	got, found, err := New(memory, "state").Load()
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if diff := cmp.Diff(snap, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-saved +loaded):\n%s", diff)
	}
}
