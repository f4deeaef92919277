package podnet

import (
	"errors"
	"strings"
	"testing"
)

// TestLateSetupOfAnOlderSandboxLeavesTheNewerOneAlone stops the older sandbox's plugin at each of its steps, and lets the
// newer one of the same pod start meanwhile.
func TestLateSetupOfAnOlderSandboxLeavesTheNewerOneAlone(t *testing.T) {
	older, newer := recipe("eniaaaa", "10.0.1.20"), recipe("eniaaaa", "10.0.1.21")
	superseded := errors.New("superseded")
	never := func() error { return superseded }
	for name, late := range map[string]func(s *sandbox, start func()) error{
		"before its veth": func(s *sandbox, start func()) error {
			start()
			_, err := Setup(s.ns.Path(), s.ifName, older, never)
			if !errors.Is(err, superseded) {
				t.Errorf("the reason is lost: %v", err)
			}
			return err
		},
		"after its veth": func(s *sandbox, start func()) error {
			built, err := s.create(older)
			if err != nil {
				return err
			}
			start()
			return s.furnish(older, built, never)
		},
		"when it was allowed to clear the name": func(s *sandbox, start func()) error {
			stale := namespace(t, "stale")
			if _, err := Setup(stale.Path(), "eth0", recipe("eniaaaa", "10.0.1.22"), always); err != nil {
				return err
			}
			asked := 0
			_, err := Setup(s.ns.Path(), s.ifName, older, func() error {
				if asked++; asked > 1 {
					return superseded
				}
				start() // right after the answer, seen from the newer sandbox
				return nil
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := namespace(t, "older"), namespace(t, "newer")
			s, _, err := open(first.Path(), "eth0")
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			err = late(s, func() {
				if _, err := Setup(second.Path(), "eth0", newer, always); err != nil {
					t.Fatal(err)
				}
			})
			if !errors.Is(err, ErrTaken) {
				t.Errorf("the older sandbox's plugin is told %v", err)
			}
			if err := Teardown(first.Path(), "eth0"); err != nil {
				t.Error(err)
			}
			if err := Check(second.Path(), "eth0", newer); err != nil {
				t.Errorf("the newer sandbox: %v", err)
			}
		})
	}
}

// TestLateSetupLeavesTheRouteOfTheAddressesNextHolder is about a plugin that slept until its address was another pod's.
func TestLateSetupLeavesTheRouteOfTheAddressesNextHolder(t *testing.T) {
	late, holder := namespace(t, "late"), namespace(t, "holder")
	if _, err := Setup(holder.Path(), "eth0", recipe("enibbbb", "10.0.1.20"), always); err != nil {
		t.Fatal(err)
	}
	_, err := Setup(late.Path(), "eth0", recipe("eniaaaa", "10.0.1.20"), func() error { return errors.New("not yours") })
	if !errors.Is(err, ErrTaken) {
		t.Errorf("Setup: %v", err)
	}
	if err := Check(holder.Path(), "eth0", recipe("enibbbb", "10.0.1.20")); err != nil {
		t.Errorf("the holder: %v", err)
	}
	if got := ip(t, "", "link", "show", "type", "veth"); strings.Contains(got, "eniaaaa") {
		t.Errorf("links of the late sandbox stay:\n%s", got)
	}
}

func TestHalfBuiltPairOfTheSameSandboxIsReplacedWithoutAsking(t *testing.T) {
	ns := namespace(t, "pod")
	want := recipe("eniaaaa", "10.0.1.20")
	s, _, err := open(ns.Path(), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.create(want); err != nil {
		t.Fatal(err)
	}
	if _, err := Setup(ns.Path(), "eth0", want, func() error { t.Error("asked"); return nil }); err != nil {
		t.Fatal(err)
	}
}
