package hostnet

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// Every number that this package writes into the kernel, and why it is that number. The incumbent CNI's are routing tables
// 2 to 15, 101 to 220 and 10000 upwards, rule priorities 10, 20, 512, 1024, 1535, 1536 and 32765, and the nftables table
// `ip aws-cni`; none of ours is among them, so that both sets of objects can stand side by side while one replaces the
// other.
const (
	// protocol marks our rules (FRA_PROTOCOL) and routes (rtm_protocol): what carries it, at a priority or in a table of
	// ours, is ours to change and to remove.
	protocol = api.RouteProtocol

	// tablePods holds one /32 route for each pod. The plugin writes them, this package only looks at them.
	tablePods = api.PodsTable
	// tableMain is the kernel's main table.
	tableMain = unix.RT_TABLE_MAIN
	// tableLast ends the range of our tables: an ENI's table is tablePods plus its mark, and a mark has seven bits.
	tableLast = tablePods + int(markENIMask)

	// priorityPods is before everything that could catch a pod's address (the incumbent's to-pod rules are at 512, and a
	// packet with an ENI's mark must still reach a pod of this node) and after the local table, also where the incumbent
	// has moved that from 0 to 20.
	priorityPods = 400
	// priorityMain is before the incumbent's rules by source address (1535, 1536), which would send a marked packet out by
	// the pod's own ENI.
	priorityMain = 1040
	// priorityMark plus an ENI's mark: after the incumbent's rules by source address, which win where they still stand.
	priorityMark = 1600
	// prioritySource plus an ENI's mark: packets that the node itself sends from that ENI's primary address.
	prioritySource = 1800

	// markMain: the packet leaves by the main table, that is by the primary ENI. It is the incumbent's bit with the
	// incumbent's meaning (AWS_VPC_K8S_CNI_CONNMARK), so that a connection lives on when one replaces the other.
	markMain uint32 = 0x80
	// markENIMask are the bits for the other ENIs: the mark is the device index + 1. They stay clear of markMain,
	// kube-proxy's 0x4000 and 0x8000, Cilium's and portmap's 0x2000, and Calico's 0xffff0000.
	markENIMask uint32 = 0x7f
	// markOurs is all of the above: the only bits of a packet's or a connection's mark that we ever write.
	markOurs = markMain | markENIMask
	// maxDevice is the largest device index that has a mark. EC2's largest is 15 for each network card.
	maxDevice = int(markENIMask) - 1

	// tableName is our nftables table, in the family ip. The incumbent deletes `aws-cni` when it starts.
	tableName = "vpc-cni"
	// priorityArrive is after conntrack (-200), which must have found the connection, and before destination NAT (-100),
	// after which a NodePort's address is no longer to be seen.
	priorityArrive = -150
	// priorityLeave is after destination NAT (-100): whether a packet leaves the VPC depends on where it really goes.
	priorityLeave = -90
	// priorityFilter is where packets are dropped (NF_IP_PRI_FILTER).
	priorityFilter = 0
	// prioritySNAT is where source NAT belongs (NF_IP_PRI_NAT_SRC).
	prioritySNAT = 100

	// rpFilterLoose is the rp_filter of every ENI link (RFC 3704, loose mode). The kernel's reverse lookup carries no
	// mark, so that strict mode (1) drops what arrives for pods of a secondary ENI; off (0) would be more than is needed.
	rpFilterLoose = 2

	// labelSuffix, after the link's name, is the label of an address that we put on a link: every kernel keeps labels,
	// while an address' protocol (IFA_PROTO) needs Linux 5.18.
	labelSuffix = ":vpc"
	// labelMax is IFNAMSIZ - 1, the longest label.
	labelMax = 15

	// dumpTries is how often an interrupted dump is repeated. Each takes about a millisecond; ten interrupted in a row mean
	// that something rewrites the tables without end, and the next audit tries again.
	dumpTries = 10
	// elementsPerMessage keeps the list of elements in one netlink message under the 64 KiB of an attribute (an element
	// takes about 64 bytes).
	elementsPerMessage = 500
	// changesInterval is the shortest time between two values on Changes: a burst of pods makes hundreds of link and route
	// events, and an Apply takes some milliseconds.
	changesInterval = 100 * time.Millisecond
)
