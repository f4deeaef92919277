package cni_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// A plugin that is chained after this one may not delete the pod's route on the host (ipamd/docs/kernel.md). One that does
// is found out by CHECK, whoever repairs; the daemon here repairs nothing.
func TestB41CHECKCatchesAChainedPluginThatDeletesHostRoutes(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, version)
			// The real one deleted what it did not know from every table, and passed the result on.
			script := fmt.Sprintf("#!/bin/sh\nprev=$(cat)\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\nip route flush table %d\n"+
				"echo \"$prev\" | sed 's/.*\"prevResult\"://; s/,\"type\":.*//'\n", api.PodsTable)
			if err := os.WriteFile(filepath.Join(n.folder, "thief"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			n.chain(t, version, "thief")
			s := n.sandbox("one", "web-0")
			n.add(s)
			if routes := n.podRoutes(); len(routes) != 0 {
				t.Fatalf("the chained plugin left %v", routes)
			}
			if err := n.check(s); code(t, err) != api.CodeDiffers || !strings.Contains(err.Error(), "route to 10.0.1.20/32 in table 7000 is missing") {
				t.Errorf("CHECK: %v", err)
			}
			n.del(s)
			n.clean()
		})
	}
}

// ADD, DEL, ADD: the same address over another veth. There is one route to it, over the right link, also when DEL did not
// come or came late.
func TestB43OneRouteToAnAddressThatComesBack(t *testing.T) {
	for _, first := range []string{"DEL in time", "DEL late"} {
		t.Run(first, func(t *testing.T) {
			n := newNode(t, "1.0.0")
			host := n.route()
			old, young := n.sandbox("old", "web-0"), n.sandbox("young", "web-1")
			before := n.add(old).IPs[0].Address.IP
			if first == "DEL in time" {
				n.del(old)
				if routes := n.podRoutes(); len(routes) != 0 {
					t.Errorf("routes after DEL: %v", routes)
				}
			} else if err := n.allocator.Release(t.Context(), api.ReleaseRequest{Attachment: api.Attachment{Network: network, ContainerID: "old", IfName: "eth0"}}); err != nil {
				t.Fatal(err)
			}
			result := n.add(young)
			addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP.To4())
			if !result.IPs[0].Address.IP.Equal(before) {
				t.Fatalf("address %s, not %s", addr, before)
			}
			n.del(old)
			link, err := netlink.LinkByName(result.Interfaces[0].Name)
			if err != nil {
				t.Fatal(err)
			}
			if routes := n.podRoutes(); len(routes) != 1 || routes[0].LinkIndex != link.Attrs().Index {
				t.Errorf("routes %v, the pod's link is %d", routes, link.Attrs().Index)
			}
			if err := ping(host, addr); err != nil {
				t.Error(err)
			}
			n.del(young)
			n.clean()
		})
	}
}
