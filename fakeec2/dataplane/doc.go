// Package dataplane makes a modelled VPC true in network namespaces: it really forwards packets, and really drops them.
//
// It owns one fabric namespace for each VPC, the namespaces of instances, services and outside hosts (those that it made),
// the link of every attached ENI, and the laws of the VPC's network: an address is delivered only to the ENI that holds it,
// a packet whose source is not its ENI's is dropped, nothing but unicast passes, a TTL stays what it was, security groups are
// stateful for each ENI, peered VPCs see each other's private addresses and nobody further, only an address with a public
// association gets through the internet gateway, and the resolver, the clock and instance metadata are beside every ENI.
// Every drop is counted by its reason; vpc.Flows is the same law without a kernel, and a test holds one against the other.
// It never decides what the world looks like: it follows the model, level by level, and never touches a namespace that is
// not part of that world.
//
// How it forwards: the fabric is an ordinary router. Each ENI has a port there (the other end of its veth) with the subnet's
// gateway address on it, one permanent neighbour entry for the ENI's primary address (and one for its link-local IPv6 address),
// and one route via that for each address and prefix that the ENI holds. So nothing ever asks by ARP for a secondary address, and
// the fabric asks for nothing at all: the kernel's neighbour table, which is one for the whole machine, gets no learned entry from
// here. rules.go has the nftables rules, with the reason for each; protocol.go what IPv6 has in another place than IPv4.
//
// Start reading at Plane; want.go and ports.go say what should be, as a value; fabric.go brings the kernel there; adopt.go takes
// links that others made.
package dataplane
