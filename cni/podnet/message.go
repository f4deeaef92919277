package podnet

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// batch is rtnetlink requests that go to the kernel in one call, which carries them out in their order. Only the last asks
// for an answer: the kernel speaks of the others only where it refuses them (net/netlink/af_netlink.c, netlink_rcv_skb).
// Most of a pod's cost beside the kernel's own is calls and wake-ups, and this has few of them.
type batch struct {
	bytes []byte
	texts []string // of each request, for its refusal
	begun int      // offset of the last request
}

// batchSize is room for all requests that a pod needs at once, in bytes.
const batchSize = 1 << 10

func newBatch() *batch { return &batch{bytes: make([]byte, 0, batchSize)} }

// request begins the next request. head is its family's fixed part.
func (b *batch) request(text string, kind, flags uint16, head []byte) {
	b.begun = len(b.bytes)
	b.texts = append(b.texts, text)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0) // length: see sealed
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, unix.NLM_F_REQUEST|flags)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, uint32(len(b.texts)-1)) // sequence: its place in the batch
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0)
	b.bytes = append(b.bytes, head...)
	b.seal()
}

// seal writes the last request's length.
func (b *batch) seal() {
	binary.NativeEndian.PutUint32(b.bytes[b.begun:], uint32(len(b.bytes)-b.begun))
}

func (b *batch) attribute(kind uint16, value []byte) {
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, uint16(unix.SizeofRtAttr+len(value)))
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = append(b.bytes, value...)
	for len(b.bytes)%unix.RTA_ALIGNTO != 0 {
		b.bytes = append(b.bytes, 0)
	}
	b.seal()
}

func (b *batch) number(kind uint16, value int) {
	b.attribute(kind, binary.NativeEndian.AppendUint32(nil, uint32(value)))
}

func (b *batch) text(kind uint16, value string) { b.attribute(kind, append([]byte(value), 0)) }

// nested begins an attribute that holds what is added until end is called.
func (b *batch) nested(kind uint16) (end func()) {
	at := len(b.bytes)
	b.attribute(kind, nil)
	return func() {
		binary.NativeEndian.PutUint16(b.bytes[at:], uint16(len(b.bytes)-at))
		b.seal()
	}
}

// linkHead is a struct ifinfomsg.
func linkHead(index int, flags uint32) []byte {
	head := binary.NativeEndian.AppendUint32(make([]byte, 0, unix.SizeofIfInfomsg), unix.AF_UNSPEC)
	head = binary.NativeEndian.AppendUint32(head, uint32(index))
	head = binary.NativeEndian.AppendUint32(head, flags)
	return binary.NativeEndian.AppendUint32(head, flags) // the flags that are meant
}

const (
	vethInfoPeer = 1      // VETH_INFO_PEER of linux/veth.h
	skipStats    = 1 << 3 // RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: counters are most of an answer about a link
)

// pairEnd is one end of a veth pair to be.
type pairEnd struct {
	name string
	mac  net.HardwareAddr
}

// addVeth makes a pair: the host's end here, the pod's end in the namespace that fd is open on.
func (b *batch) addVeth(host, pod pairEnd, mtu, fd int) {
	b.request("create veth", unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, linkHead(0, 0))
	end := func(e pairEnd) {
		b.text(unix.IFLA_IFNAME, e.name)
		b.attribute(unix.IFLA_ADDRESS, e.mac)
		if mtu > 0 {
			b.number(unix.IFLA_MTU, mtu)
		}
	}
	end(host)
	closeInfo := b.nested(unix.IFLA_LINKINFO)
	b.attribute(unix.IFLA_INFO_KIND, []byte("veth"))
	closeData := b.nested(unix.IFLA_INFO_DATA)
	closePeer := b.nested(vethInfoPeer)
	b.bytes = append(b.bytes, linkHead(0, 0)...)
	end(pod)
	b.number(unix.IFLA_NET_NS_FD, fd)
	closePeer()
	closeData()
	closeInfo()
}

// getLink asks for a link by its index, or by its name where that is 0.
func (b *batch) getLink(name string, index int) {
	b.request("read link "+name, unix.RTM_GETLINK, 0, linkHead(index, 0))
	b.number(unix.IFLA_EXT_MASK, skipStats)
	if index == 0 {
		b.text(unix.IFLA_IFNAME, name)
	}
}

func (b *batch) setUp(index int) {
	b.request("set link up", unix.RTM_NEWLINK, 0, linkHead(index, unix.IFF_UP))
}

func (b *batch) delLink(index int) {
	b.request("remove link", unix.RTM_DELLINK, 0, linkHead(index, 0))
}

func (b *batch) setAddr(index int, addr netip.Prefix) {
	head := []byte{byte(family(addr.Addr())), byte(addr.Bits()), 0, unix.RT_SCOPE_UNIVERSE}
	head = binary.NativeEndian.AppendUint32(head, uint32(index))
	b.request("add address "+addr.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, head)
	b.attribute(unix.IFA_LOCAL, addr.Addr().AsSlice())
	b.attribute(unix.IFA_ADDRESS, addr.Addr().AsSlice())
}

func (b *batch) setNeighbour(n *netlink.Neigh) {
	head := binary.NativeEndian.AppendUint32(make([]byte, 0, unix.SizeofNdMsg), uint32(n.Family)) // family and padding
	head = binary.NativeEndian.AppendUint32(head, uint32(n.LinkIndex))
	head = binary.NativeEndian.AppendUint16(head, uint16(n.State))
	head = append(head, 0, 0)
	b.request("add neighbour entry of "+n.IP.String(), unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, head)
	b.attribute(unix.NDA_DST, n.IP)
	b.attribute(unix.NDA_LLADDR, n.HardwareAddr)
}

// setRoute adds a route; flags are NLM_F_EXCL or NLM_F_REPLACE: what is to happen where there is one already.
func (b *batch) setRoute(r netlink.Route, flags uint16) {
	bits, _ := r.Dst.Mask.Size()
	table := byte(unix.RT_TABLE_MAIN)
	if r.Table > 0 {
		table = unix.RT_TABLE_UNSPEC // RTA_TABLE has it
	}
	head := []byte{byte(familyOf(r.Dst)), byte(bits), 0, 0, table, byte(r.Protocol), byte(r.Scope), unix.RTN_UNICAST}
	head = binary.NativeEndian.AppendUint32(head, uint32(r.Flags))
	b.request("add route to "+r.Dst.String(), unix.RTM_NEWROUTE, unix.NLM_F_CREATE|flags, head)
	b.attribute(unix.RTA_DST, r.Dst.IP)
	if r.Gw != nil {
		b.attribute(unix.RTA_GATEWAY, r.Gw)
	}
	if r.Table > 0 {
		b.number(unix.RTA_TABLE, r.Table)
	}
	b.number(unix.RTA_OIF, r.LinkIndex)
}
