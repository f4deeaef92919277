package podnet

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestCheckNamesEachDifference(t *testing.T) {
	want := recipe("eniaaaa", "10.0.1.20")
	host := func(args ...string) func(*netlab.Namespace) []string {
		return func(*netlab.Namespace) []string { return append([]string{"ip"}, args...) }
	}
	pod := func(args ...string) func(*netlab.Namespace) []string {
		return func(ns *netlab.Namespace) []string {
			return append([]string{"nsenter", "--net=" + ns.Path(), "ip"}, args...)
		}
	}
	cases := []struct {
		name   string
		tamper func(*netlab.Namespace) []string
		says   string
	}{
		{"pod down", pod("link", "set", "eth0", "down"), "eth0 is down"},
		{"host down", host("link", "set", "eniaaaa", "down"), "eniaaaa is down"},
		{"pod MTU", pod("link", "set", "eth0", "mtu", "1500"), "MTU of eth0 is 1500, not 9001"},
		{"host MTU", host("link", "set", "eniaaaa", "mtu", "1400"), "MTU of eniaaaa is 1400, not 9001"},
		{"no address", pod("addr", "flush", "dev", "eth0"), "eth0 lacks address 10.0.1.20/32"},
		{"host MAC changed", host("link", "set", "eniaaaa", "address", "02:00:00:00:00:01"), "neighbour 169.254.1.1 is 0e:58:0a:00:01:14, not permanently 02:00:00:00:00:01"},
		{"gateway unknown", pod("neigh", "del", "169.254.1.1", "dev", "eth0"), "neighbour 169.254.1.1"},
		{"pod unknown", host("neigh", "del", "10.0.1.20", "dev", "eniaaaa"), "neighbour 10.0.1.20"},
		{"no default route", pod("route", "del", "default"), "route to 0.0.0.0/0 in table 254 is missing"},
		{"other default route", pod("route", "replace", "default", "dev", "eth0", "proto", "201"), "route to 0.0.0.0/0 in table 254 leads by gateway"},
		{"no host route", host("route", "flush", "table", "7000"), "route to 10.0.1.20/32 in table 7000 is missing"},
		{"route elsewhere", host("route", "replace", "10.0.1.20", "dev", "lo", "table", "7000"), "route to 10.0.1.20/32 in table 7000 leads over another link"},
		{"foreign protocol", host("route", "replace", "10.0.1.20", "dev", "eniaaaa", "table", "7000", "proto", "80"), "has protocol 80, not 201"},
		{"no link", pod("link", "del", "eth0"), "sandbox has no link eth0; host has no link eniaaaa"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ns := namespace(t, "pod")
			if _, err := Setup(ns.Path(), "eth0", want, always); err != nil {
				t.Fatal(err)
			}
			command := c.tamper(ns)
			if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", command, err, output)
			}
			err := Check(ns.Path(), "eth0", want)
			var differs *Difference
			if !errors.As(err, &differs) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Check says %v, not %q", err, c.says)
			}
			if _, err := Setup(ns.Path(), "eth0", want, always); err != nil {
				t.Fatal(err)
			}
			if err := Check(ns.Path(), "eth0", want); err != nil {
				t.Errorf("Setup did not repair: %v", err)
			}
		})
	}
}
