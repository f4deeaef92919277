package api

import (
	"net"
	"net/netip"
	"testing"
)

func TestAHostVethsMACTellsItsPodsAddress(t *testing.T) {
	addr := netip.MustParseAddr("10.0.1.20")
	if mac := HostMAC(addr); mac.String() != "0e:58:0a:00:01:14" {
		t.Errorf("host's end %s", mac)
	}
	if got, ok := BuiltFor(HostMAC(addr)); !ok || got != addr {
		t.Errorf("built for %v, %v", got, ok)
	}
	for _, other := range []net.HardwareAddr{nil, PodMAC(addr), {2, 0x58, 10, 0, 1, 20}, {0x0e, 0x59, 10, 0, 1, 20}, make(net.HardwareAddr, 20)} {
		if got, ok := BuiltFor(other); ok {
			t.Errorf("%s is taken for %s's", other, got)
		}
	}
}
