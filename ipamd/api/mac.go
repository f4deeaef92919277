package api

import (
	"net"
	"net/netip"
)

// The MACs of a pod's two ends are derived from its address: these first bytes (locally administered, unicast), then the
// address' last four. So a host veth tells whose address it was built for, also when its route is gone.
const (
	podMACFirst  = 0x0a
	hostMACFirst = 0x0e
	macSecond    = 0x58
)

// PodMAC is the MAC of the end in the pod.
func PodMAC(addr netip.Addr) net.HardwareAddr { return derivedMAC(podMACFirst, addr) }

// HostMAC is the MAC of the end on the host.
func HostMAC(addr netip.Addr) net.HardwareAddr { return derivedMAC(hostMACFirst, addr) }

func derivedMAC(first byte, addr netip.Addr) net.HardwareAddr {
	bytes := addr.AsSlice()
	return append(net.HardwareAddr{first, macSecond}, bytes[len(bytes)-4:]...)
}

// BuiltFor is the IPv4 address that a host veth with this MAC was built for; false for any other MAC.
func BuiltFor(mac net.HardwareAddr) (netip.Addr, bool) {
	if len(mac) != 6 || mac[0] != hostMACFirst || mac[1] != macSecond {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(mac[2:])), true
}
