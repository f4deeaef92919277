package hostnet

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Services that the tests' kube-proxy knows: one ClusterIP for each endpoint, and NodePorts with the external traffic
// policies Cluster (masqueraded) and Local (not).
const (
	clusterIPPeer = "172.20.0.20:80"
	clusterIPPodA = "172.20.0.11:80"
	clusterIPPodB = "172.20.0.12:80"

	nodePortPodACluster = 30110
	nodePortPodALocal   = 30111
	nodePortPodBCluster = 30120
	nodePortPodBLocal   = 30121
)

// kubeProxy are kube-proxy's rules as far as packets' ways are concerned: destination NAT in prerouting and output, the
// masquerade mark 0x4000 on hairpin and Cluster traffic, and masquerading in postrouting that takes the mark away.
const kubeProxy = `
table ip kube {
	chain services {
		ip daddr 172.20.0.20 tcp dport 80 dnat to 10.0.3.20:8080
		ip daddr 172.20.0.11 tcp dport 80 ip saddr 10.0.1.11 meta mark set meta mark | 0x4000
		ip daddr 172.20.0.11 tcp dport 80 dnat to 10.0.1.11:8080
		ip daddr 172.20.0.12 tcp dport 80 ip saddr 10.0.2.12 meta mark set meta mark | 0x4000
		ip daddr 172.20.0.12 tcp dport 80 dnat to 10.0.2.12:8080
		fib daddr type != local return
		tcp dport { 30110, 30120 } meta mark set meta mark | 0x4000
		tcp dport { 30110, 30111 } dnat to 10.0.1.11:8080
		tcp dport { 30120, 30121 } dnat to 10.0.2.12:8080
	}
	chain prerouting { type nat hook prerouting priority -100; jump services; }
	chain output { type nat hook output priority -100; jump services; }
	chain postrouting {
		type nat hook postrouting priority 100
		meta mark & 0x4000 == 0 return
		meta mark set meta mark & 0xffffbfff masquerade fully-random
	}
}
`

// flow is one way that a connection takes. seen is the source address that the server must see; empty where it does not
// matter.
type flow struct {
	name, from, to, seen string
	services             bool // needs kubeProxy
}

// flows are those that hold with NodePort on and external SNAT off.
func flows() []flow {
	port := func(addr string) string { return fmt.Sprintf("%s:%d", addr, echoPort) }
	at := func(addr string, nodePort int) string { return fmt.Sprintf("%s:%d", addr, nodePort) }
	list := []flow{
		{name: "pod on primary to peer", from: podA, to: port(peerAddr), seen: podA},
		{name: "peer to pod on primary", from: peerAddr, to: port(podA), seen: peerAddr},
		{name: "pod on secondary to peer", from: podB, to: port(peerAddr), seen: podB},
		{name: "peer to pod on secondary", from: peerAddr, to: port(podB), seen: peerAddr},
		{name: "pods of two ENIs", from: podA, to: port(podB), seen: podA},
		{name: "pods of two ENIs, back", from: podB, to: port(podA), seen: podB},
		{name: "pods of one ENI", from: podB, to: port(podC), seen: podB},
		{name: "node to pod on primary", from: nodePrimary, to: port(podA), seen: ""},
		{name: "node to pod on secondary", from: nodePrimary, to: port(podB), seen: ""},
		{name: "pod on primary to node", from: podA, to: port(nodePrimary), seen: podA},
		{name: "pod on secondary to node", from: podB, to: port(nodePrimary), seen: podB},
		{name: "pod on secondary to node's secondary address", from: podB, to: port(nodeSecondary), seen: podB},
		{name: "peer to node's secondary address", from: peerAddr, to: port(nodeSecondary), seen: peerAddr},
		{name: "pod on primary to outside", from: podA, to: port(outsideAddr), seen: nodePrimary},
		{name: "pod on secondary to outside", from: podB, to: port(outsideAddr), seen: nodePrimary},
		{name: "node to outside", from: nodePrimary, to: port(outsideAddr), seen: nodePrimary},
		{name: "network outside to pod on primary", from: onpremAddr, to: port(podA), seen: onpremAddr},
		{name: "network outside to pod on secondary", from: onpremAddr, to: port(podB), seen: onpremAddr},
	}
	services := []flow{
		{name: "ClusterIP, endpoint on peer", from: podB, to: clusterIPPeer, seen: podB},
		{name: "ClusterIP, endpoint on other ENI", from: podB, to: clusterIPPodA, seen: podB},
		{name: "ClusterIP, endpoint on secondary", from: podA, to: clusterIPPodB, seen: podA},
		{name: "ClusterIP, same ENI", from: podC, to: clusterIPPodB, seen: podC},
		{name: "ClusterIP from node", from: nodePrimary, to: clusterIPPodB},
		{name: "hairpin on primary", from: podA, to: clusterIPPodA},
		{name: "hairpin on secondary", from: podB, to: clusterIPPodB},
	}
	for _, client := range []string{outsideAddr, onpremAddr, peerAddr} {
		services = append(services,
			flow{name: "NodePort Cluster, pod on primary", from: client, to: at(nodePrimary, nodePortPodACluster)},
			flow{name: "NodePort Local, pod on primary", from: client, to: at(nodePrimary, nodePortPodALocal), seen: client},
			flow{name: "NodePort Cluster, pod on secondary", from: client, to: at(nodePrimary, nodePortPodBCluster)},
			flow{name: "NodePort Local, pod on secondary", from: client, to: at(nodePrimary, nodePortPodBLocal), seen: client})
	}
	for _, client := range []string{onpremAddr, peerAddr} { // the internet gateway knows only the primary address
		services = append(services,
			flow{name: "NodePort Cluster at secondary address, pod on primary", from: client, to: at(nodeSecondary, nodePortPodACluster)},
			flow{name: "NodePort Local at secondary address, pod on primary", from: client, to: at(nodeSecondary, nodePortPodALocal), seen: client},
			flow{name: "NodePort Cluster at secondary address, pod on secondary", from: client, to: at(nodeSecondary, nodePortPodBCluster)},
			flow{name: "NodePort Local at secondary address, pod on secondary", from: client, to: at(nodeSecondary, nodePortPodBLocal), seen: client})
	}
	for _, f := range services {
		f.services = true
		list = append(list, f)
	}
	return list
}

// populate puts pods and servers in place.
func (l *lab) populate() {
	l.tb.Helper()
	for _, addr := range []string{podA, podB, podC} {
		l.echo(l.pod(addr))
	}
	for _, ns := range []*netlab.Namespace{l.peer, l.outside, l.onprem, l.node} {
		l.echo(ns)
	}
}

// at is the namespace that an address lives in.
func (l *lab) at(addr string) *netlab.Namespace {
	switch addr {
	case nodePrimary:
		return l.node
	case peerAddr:
		return l.peer
	case outsideAddr:
		return l.outside
	case onpremAddr:
		return l.onprem
	}
	return l.pods[addr]
}

// try runs a flow twice: the second connection finds neighbours and caches filled.
func (l *lab) try(f flow) error {
	for range 2 {
		seen, err := dial(l.at(f.from), f.to)
		if err != nil {
			return err
		}
		if f.seen != "" && seen != f.seen {
			return fmt.Errorf("server saw %s, want %s", seen, f.seen)
		}
	}
	return nil
}

// nft runs the nft program in the node. A test that needs it fails where there is none: kube-proxy's part of the flows would
// go untested without a word.
func (l *lab) nft(input string, args ...string) string {
	l.tb.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		l.tb.Fatal("this test needs the nft program, as root: apt-get install -y nftables (an ordinary user's PATH lacks /usr/sbin): ", err)
	}
	cmd := exec.Command(path, args...)
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	l.must(l.node.Start(cmd))
	if err := cmd.Wait(); err != nil {
		l.tb.Fatalf("nft %v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

func TestEveryFlowArrivesWithoutSourceCheckDrops(t *testing.T) {
	for _, image := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("rp_filter=%d", image), func(t *testing.T) {
			l := newLab(t, labOptions{rpFilter: image})
			l.populate()
			l.apply(l.host(settings()), wanted())
			for _, withServices := range []bool{false, true} {
				t.Run(fmt.Sprintf("services=%v", withServices), func(t *testing.T) {
					l.tb = t
					if withServices {
						l.nft(kubeProxy, "-f", "-")
					}
					for _, f := range flows() {
						if f.services && !withServices {
							continue
						}
						before := l.drops()
						if err := l.try(f); err != nil {
							t.Errorf("%s (%s to %s): %v", f.name, f.from, f.to, err)
						}
						if n := l.drops() - before; n != 0 {
							t.Errorf("%s (%s to %s): %d packets from a wrong source", f.name, f.from, f.to, n)
						}
					}
				})
			}
			l.tb = t
		})
	}
}

// An address that no pod has, because it is free or its pod has just ended: what comes for it ends on the node. Routed on, it
// would leave by an ENI that does not hold its source, or go round.
func TestPacketsForAddressesWithoutAPodEndOnTheNode(t *testing.T) {
	for _, cfg := range variants() {
		l := newLab(t, labOptions{})
		l.populate()
		l.apply(l.host(cfg), wanted())
		l.nft(`table ip watch { chain out { type filter hook postrouting priority 200; ip daddr 10.0.2.12 oifname != "eni*" counter; }; }`, "-f", "-")
		l.must(netlab.DelRoute(l.node, netlab.Route{Dst: netip.MustParsePrefix(podB + "/32"), Link: "eni0a00020c", Table: tablePods}))
		for _, from := range []string{peerAddr, onpremAddr, podA, podC} {
			l.shout(l.at(from), podB)
		}
		if text := l.nft("", "list", "table", "ip", "watch"); !strings.Contains(text, "counter packets 0 ") {
			t.Errorf("packets went on:\n%s", text)
		}
		if n := l.drops(); n != 0 {
			t.Errorf("%d packets from a wrong source", n)
		}
	}
}

// shout sends packets to an address, without hope for an answer.
func (l *lab) shout(from *netlab.Namespace, to string) {
	l.tb.Helper()
	conn, err := from.DialContext(l.tb.Context(), "udp", to+":9")
	l.must(err)
	defer conn.Close()
	for range 5 {
		_, _ = conn.Write([]byte("x")) // fails where an earlier one had an answer after all, which the caller's counters show
	}
}

// While one replaces the other, the incumbent's rules by pod address, its route of a pod and its ENI table stand beside ours.
func TestFlowsBesideTheIncumbentsRules(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	l.populate()
	l.withTools(func(x tool) error { return incumbent(x, addrs(podB, podC)) })
	l.apply(l.host(settings()), wanted())
	l.nft(kubeProxy, "-f", "-")
	for _, f := range flows() {
		if err := l.try(f); err != nil {
			t.Errorf("%s (%s to %s): %v", f.name, f.from, f.to, err)
		}
	}
	if n := l.drops(); n != 0 {
		t.Errorf("%d packets from a wrong source", n)
	}
}

// What the daemon changes while pods talk must cost them nothing: other addresses, CIDRs, ENIs and settings come and go while
// a pod on the secondary ENI pings the peer without a pause.
func TestChangesLoseNoPacketOfOthers(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	l.populate()
	fewer, wider, third := wanted(), wanted(), wanted()
	fewer.ENIs[1].Addresses = addrs(podB)
	wider.VPCCIDRs = prefixes("10.0.0.0/16", "100.64.0.0/10")
	third.ENIs = append(third.ENIs, pool.HostENI{ID: "eni-third", MAC: "02:00:00:00:07:0a", Device: 2,
		SubnetCIDR: netip.MustParsePrefix("10.0.7.0/24"), Primary: netip.MustParseAddr("10.0.7.10"), Addresses: addrs("10.0.7.11")})
	l.port(port{ns: l.node, link: "eth2", mac: "02:00:00:00:07:0a", gateway: "10.0.7.1", addrs: []string{"10.0.7.10", "10.0.7.11"}, bare: true})
	l.apply(l.host(settings()), wanted())

	p := l.pinger()
	if err := p.ping(); err != nil {
		t.Fatal(err)
	}
	stop, failed := make(chan struct{}), make(chan error, 1)
	sent := 0
	go func() {
		for {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			sent++
			if err := p.ping(); err != nil {
				failed <- err
				return
			}
		}
	}()
	for i := range 60 {
		l.apply(l.host(variants()[i%4]), []pool.HostState{wanted(), fewer, wider, third}[i/4%4])
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Errorf("lost after %d pings: %v", sent, err)
	}
	if n := l.drops(); n != 0 {
		t.Errorf("%d packets from a wrong source", n)
	}
	t.Logf("%d pings during 60 changes", sent)
}
