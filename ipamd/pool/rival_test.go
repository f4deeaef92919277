package pool

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// ask is an ADD that has arrived and may wait.
func (w *world) ask(sandbox string) Request {
	return Request{Key: key(sandbox), Pod: pod("u1"), Seq: w.p.Ticket()}
}

func (w *world) give(req Request) error {
	_, err := w.p.Assign(req, w.now)
	return err
}

func TestOlderSandboxOfAPodCannotBecomeDone(t *testing.T) {
	start := func(t *testing.T) (*world, Request, Request) {
		w := newWorld(t, Settings{})
		w.eni("eni-1", 1, 4)
		w.sync()
		return w, w.ask("older"), w.ask("newer")
	}
	t.Run("overtaken before done", func(t *testing.T) {
		w, older, newer := start(t)
		if err := errors.Join(w.give(older), w.give(newer)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.p.Current(older.Key); !errors.Is(err, ErrSuperseded) {
			t.Errorf("its plugin may still clear the name: %v", err)
		}
		if err := w.p.Done(older.Key, w.now); !errors.Is(err, ErrSuperseded) {
			t.Errorf("done: %v", err)
		}
		if err := w.p.Done(newer.Key, w.now); err != nil {
			t.Error(err)
		}
		if !w.p.Abort(older.Key, w.now) {
			t.Error("the older one's address is not given back")
		}
	})
	t.Run("the newer one is given an address first", func(t *testing.T) {
		w, older, newer := start(t)
		if err := w.give(newer); err != nil {
			t.Fatal(err)
		}
		if !w.p.Superseded(older) {
			t.Error("it waits on")
		}
		if err := w.give(older); !errors.Is(err, ErrSuperseded) {
			t.Errorf("assign: %v", err)
		}
	})
	t.Run("the newer one is gone again, and may have removed its veth", func(t *testing.T) {
		w, older, newer := start(t)
		if err := errors.Join(w.give(older), w.give(newer)); err != nil {
			t.Fatal(err)
		}
		w.p.Abort(newer.Key, w.now)
		if err := w.p.Done(older.Key, w.now); !errors.Is(err, ErrSuperseded) {
			t.Errorf("done: %v", err)
		}
	})
	t.Run("over a restart, with a clock that was set back", func(t *testing.T) {
		w, older, newer := start(t)
		w.now = w.now.Add(time.Hour)
		if err := errors.Join(w.give(older), w.p.Done(older.Key, w.now)); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(-time.Hour)
		if err := errors.Join(w.give(newer), w.p.Done(newer.Key, w.now)); err != nil {
			t.Fatal(err)
		}
		again := New(Settings{BootID: "boot"})
		again.Restore(w.p.Snapshot(), w.now)
		w.p = again
		for _, held := range w.p.Snapshot().Assignments {
			w.pods = append(w.pods, PodRoute{Addr: held.Addr, Link: "eni" + held.Key.Sandbox})
		}
		w.sync()
		if err := w.give(older); !errors.Is(err, ErrSuperseded) {
			t.Errorf("a repeat of the older one's ADD: %v", err)
		}
		if err := w.give(newer); err != nil {
			t.Errorf("a repeat of the newer one's ADD: %v", err)
		}
		if err := w.give(w.ask("newest")); err != nil {
			t.Error(err)
		}
		if err := w.give(newer); !errors.Is(err, ErrSuperseded) {
			t.Errorf("numbers began anew: %v", err)
		}
	})
	t.Run("a state without numbers", func(t *testing.T) {
		w, older, newer := start(t)
		if err := errors.Join(w.give(older), w.p.Done(older.Key, w.now)); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		if err := errors.Join(w.give(newer), w.p.Done(newer.Key, w.now)); err != nil {
			t.Fatal(err)
		}
		saved := w.p.Snapshot()
		for i := range saved.Assignments {
			saved.Assignments[i].Seq = 0
		}
		w.p = New(Settings{BootID: "boot"})
		w.p.Restore(saved, w.now)
		if _, err := w.p.Current(older.Key); !errors.Is(err, ErrSuperseded) {
			t.Errorf("the older one: %v", err)
		}
		if _, err := w.p.Current(newer.Key); err != nil {
			t.Errorf("the newer one: %v", err)
		}
	})
}

func TestSandboxesOfOtherPodsNetworksAndInterfacesAreNoRivals(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 5)
	w.sync()
	first := w.ask("first")
	others := []Request{w.ask("a"), w.ask("b"), w.ask("c"), w.ask("d")}
	others[0].Key.Network = "other"
	others[1].Key.IfName = "net1"
	others[2].Pod.Name = "other"
	others[3].Pod.Namespace = "other"
	if err := w.give(first); err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		if err := w.give(other); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.p.Done(first.Key, w.now); err != nil {
		t.Error(err)
	}
}

// TestReleasedAddressIsFreeOnlyWhenItsRouteIsGone: the runtime may name no namespace, or a wrong one, and then the veth
// stands on.
func TestReleasedAddressIsFreeOnlyWhenItsRouteIsGone(t *testing.T) {
	w := newWorld(t, Settings{})
	w.eni("eni-1", 1, 1)
	w.sync()
	addr := w.run("s1", "u1")
	began := w.now
	w.pass(time.Second)
	if _, ok := w.p.Release(key("s1"), w.now); !ok {
		t.Fatal("unknown")
	}
	if !w.p.NeedHost(w.now) {
		t.Error("nobody asks for the kernel's word")
	}
	w.refuse("s2", "u2")

	late := HostReport{ENIs: []string{"eni-0", "eni-1"}, Addresses: []netip.Addr{addr}}
	w.p.FoldHost(late, HostReading{Began: began, Now: w.now}) // knows nothing of what happened since
	w.refuse("s2", "u2")
	w.kernel(false)
	if got := w.condition(addr); got != Occupied || w.p.NeedHost(w.now) {
		t.Errorf("its route stands: %s", got)
	}
	w.refuse("s2", "u2")
	w.unroute(addr)
	w.kernel(false)
	if got := w.assign("s2", "u2"); got != addr {
		t.Errorf("got %s", got)
	}
}
