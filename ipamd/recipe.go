package ipamd

import (
	"crypto/sha1"
	"encoding/hex"
	"net/netip"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// vethHash is how many hex digits of the hash the name of a host veth has: with a prefix of four letters they fill the
// kernel's 15 bytes. Calico computes the same name (from "namespace.pod") and needs it so.
const vethHash = 11

// gateway is the pods' next hop: link-local, the same in every pod, never asked for on the wire (a permanent neighbour
// entry holds the host end's MAC). The incumbent's.
var gateway = netip.AddrFrom4([4]byte{169, 254, 1, 1})

// recipe says how the plugin has to build a sandbox's interface.
func (a *allocator) recipe(lease reconcile.Lease) api.PodNetwork {
	held := lease.Assignment
	return api.PodNetwork{
		HostVeth: hostVeth(a.vethPrefix, held.Key, held.Pod),
		MTU:      a.podMTU,
		Addr:     netip.PrefixFrom(held.Addr, held.Addr.BitLen()),
		Gateway:  gateway,
		Table:    api.PodsTable,
		Protocol: api.RouteProtocol,
		ENI:      lease.ENI.ID,
		Device:   lease.ENI.Device,
	}
}

// hostVeth names the host's end. A sandbox that belongs to no pod is named by its own id.
func hostVeth(prefix string, key pool.Key, pod pool.Pod) string {
	name := pod.Namespace + "." + pod.Name
	if pod.Name == "" {
		name = key.Sandbox + "." + key.IfName
	}
	sum := sha1.Sum([]byte(name))
	return prefix + hex.EncodeToString(sum[:])[:vethHash]
}

func keyOf(a api.Attachment) pool.Key {
	return pool.Key{Network: a.Network, Sandbox: a.ContainerID, IfName: a.IfName}
}

func attachmentOf(key pool.Key) api.Attachment {
	return api.Attachment{Network: key.Network, ContainerID: key.Sandbox, IfName: key.IfName}
}
