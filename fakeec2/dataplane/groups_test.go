package dataplane_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// group makes a security group of the lab's VPC.
func (l *lab) group(name string, egress []vpc.Rule, ingress ...vpc.Rule) string {
	l.t.Helper()
	g := vpc.SecurityGroup{VPCID: l.a.VPCID, Name: name, Ingress: append([]vpc.Rule{}, ingress...), Egress: append([]vpc.Rule{}, egress...)}
	return must(l.model.AddSecurityGroup(g))(l.t).ID
}

// join replaces the groups of an instance's primary ENI.
func (l *lab) join(instance vpc.Instance, groups ...string) {
	l.t.Helper()
	eni := l.model.InstanceENIs(instance.ID)[0].ID
	l.check(l.model.ModifyNetworkInterfaceAttribute(l.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: eni, Groups: groups}))
	l.sync()
}

var (
	everywhere = netip.MustParsePrefix("0.0.0.0/0")
	outAll     = []vpc.Rule{{Protocol: vpc.Any, CIDR: everywhere}}
)

func tcp(from, to int, source netip.Prefix) vpc.Rule {
	return vpc.Rule{Protocol: "tcp", From: from, To: to, CIDR: source}
}

// connect says whether a TCP connection comes about, and for which reason a packet of it was dropped.
func (l *lab) connect(from, to *netlab.Namespace, at string) string {
	l.t.Helper()
	listener := must(to.Listen(l.t.Context(), "tcp4", at))(l.t)
	defer listener.Close()
	before := must(l.plane.Counters())(l.t)
	ctx, cancel := context.WithTimeout(l.t.Context(), 3*silence)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp4", at)
	if err == nil {
		conn.Close()
		return ""
	}
	for reason, n := range must(l.plane.Counters())(l.t) {
		if n > before[reason] {
			return reason
		}
	}
	return err.Error()
}

func TestSecurityGroupsLetPassWhatTheirRulesSay(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	client, strict := l.group("client", outAll), l.group("strict", []vpc.Rule{tcp(443, 443, everywhere)})
	web := l.group("web", nil, tcp(80, 81, netip.MustParsePrefix("10.0.1.0/24")), vpc.Rule{Protocol: "tcp", From: 443, To: 443, Group: strict})
	for _, c := range []struct {
		name, at string
		of       []string // groups of node a
		want     string
	}{
		{"a port in the range", "10.0.2.10:80", []string{client}, ""},
		{"the range's end", "10.0.2.10:81", []string{client}, ""},
		{"a port beyond it", "10.0.2.10:82", []string{client}, dataplane.DropIngress},
		{"a group that is no member", "10.0.2.10:443", []string{client}, dataplane.DropIngress},
		{"a member of the named group", "10.0.2.10:443", []string{strict}, ""},
		{"what the sender may not", "10.0.2.10:80", []string{strict}, dataplane.DropEgress},
		{"the union of groups", "10.0.2.10:80", []string{client, strict}, ""},
		{"the union of groups as members", "10.0.2.10:443", []string{client, strict}, ""},
	} {
		l.join(l.a, c.of...)
		l.join(l.b, web)
		if got := l.connect(a, b, c.at); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// Another subnet's address is outside the range, and a packet that is not TCP has no rule.
	l.join(l.a, client)
	l.dropped(echo{from: a, dst: addrB}, dataplane.DropIngress)
	// A source that was translated is no member: groups know private addresses only.
	l.dropped(echo{from: l.ns("internet"), dst: publicA}, dataplane.DropIngress)
}

func TestSecurityGroupsAreStateful(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	out, in := l.group("out", outAll), l.group("in", nil, tcp(80, 80, everywhere))
	l.join(l.a, out) // nothing may come in but answers
	l.join(l.b, in)  // nothing may go out but answers
	listener := must(b.Listen(t.Context(), "tcp4", "10.0.2.10:80"))(t)
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := must(a.DialContext(ctx, "tcp4", "10.0.2.10:80"))(t)
	defer conn.Close()
	server := <-accepted
	defer server.Close()
	l.dropped(echo{from: b, dst: addrA}, dataplane.DropEgress)

	// Rules that go do not end flows that they let in. Source: EC2 user guide, connection tracking.
	l.check(l.model.RevokeSecurityGroup(l.now, in, false, []vpc.Rule{tcp(80, 80, everywhere)}))
	l.sync()
	must(server.Write([]byte("still")))(t)
	text := make([]byte, 5)
	if _, err := conn.Read(text); err != nil || string(text) != "still" {
		t.Errorf("read %q, %v over the standing connection", text, err)
	}
	if got := l.connect(a, b, "10.0.2.10:81"); got != dataplane.DropIngress {
		t.Errorf("a new connection: %q, want it dropped as %s", got, dataplane.DropIngress)
	}
}

// A packet of a known flow that leaves by another ENI is new there: each ENI tracks for itself.
func TestStateBelongsToTheENI(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a, b := l.ns("node-a"), l.ns("node-b")
	addr := l.assign(l.b, true)
	l.answers(echo{from: a, dst: addr})
	closed := l.group("closed", outAll)
	other := l.attach(l.b, 0)
	l.check(l.model.ModifyNetworkInterfaceAttribute(l.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: other.ID, Groups: []string{closed}}))
	h := must(b.Netlink())(t)
	defer h.Close()
	l.check(h.LinkSetUp(must(h.LinkByName("eth1"))(t)))
	must(l.model.AssignPrivateIpAddresses(l.now, vpc.AssignPrivateIpAddressesInput{
		NetworkInterfaceID: other.ID, Addresses: []netip.Addr{addr}, AllowReassignment: true,
	}))(t)
	l.sync()
	l.dropped(echo{from: a, dst: addr}, dataplane.DropIngress) // the same flow (an echo's id is the process's), at another ENI
}

func TestNetworkServicesNeedNoRules(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	a := l.ns("node-a")
	l.join(l.a, l.group("nothing", nil))
	l.dropped(echo{from: a, dst: addrB}, dataplane.DropEgress)
	for _, dst := range []string{"10.0.1.1", "169.254.169.254", "169.254.169.253", "10.0.0.2", "169.254.169.123"} {
		l.answers(echo{from: a, dst: netip.MustParseAddr(dst)})
	}
	for _, server := range []string{"169.254.169.253:53", "10.0.0.2:53"} {
		for name, want := range map[string]dnsmessage.RCode{
			"ip-10-0-2-10.us-west-2.compute.internal.":  dnsmessage.RCodeSuccess,
			"ip-192-0-2-10.us-west-2.compute.internal.": dnsmessage.RCodeNameError,
			"ip-10-0-2-10.eu-north-1.compute.internal.": dnsmessage.RCodeNameError,
			"ip-fe80--1-10.us-west-2.compute.internal.": dnsmessage.RCodeNameError,
			"example.com.": dnsmessage.RCodeNameError,
			"ip-10-0-2-10.us-west-2.compute.internal.x.": dnsmessage.RCodeNameError,
		} {
			question := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
				Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
			}}}
			var answer dnsmessage.Message
			l.check(answer.Unpack(l.exchange(a, server, must(question.Pack())(t))))
			if answer.RCode != want || answer.ID != 7 {
				t.Errorf("%s at %s: %v, want %v", name, server, answer.Header, want)
			}
			if want == dnsmessage.RCodeSuccess && (len(answer.Answers) != 1 || answer.Answers[0].Body.(*dnsmessage.AResource).A != addrB.As4()) {
				t.Errorf("%s at %s: answers %v, want %s", name, server, answer.Answers, addrB)
			}
		}
	}
	request := make([]byte, 48)
	request[0], request[40] = 4<<3|3, 0xab
	if got := l.exchange(a, "169.254.169.123:123", request); len(got) != 48 || got[0] != 4<<3|4 || got[24] != 0xab || got[40] < 0xe0 {
		t.Errorf("the clock answers %x", got)
	}
}

// exchange sends a datagram and gives the answer.
func (l *lab) exchange(from *netlab.Namespace, to string, data []byte) []byte {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	conn := must(from.DialContext(ctx, "udp4", to))(l.t)
	defer conn.Close()
	must(conn.Write(data))(l.t)
	deadline, _ := ctx.Deadline()
	l.check(conn.SetReadDeadline(deadline))
	answer := make([]byte, 1500)
	n := must(conn.Read(answer))(l.t)
	return answer[:n]
}

func TestLinkLocalAllowanceIsPerENI(t *testing.T) {
	l := newLab(t, dataplane.Options{})
	conn := must(l.ns("node-a").DialContext(t.Context(), "udp4", "169.254.169.254:9"))(t)
	defer conn.Close()
	for range 3000 {
		_, _ = conn.Write([]byte("x")) // refusals of the port come back as errors
	}
	if n := l.counter(dataplane.DropAllowance); n < 500 || n > 2900 {
		t.Errorf("%d of 3000 packets at once were over the allowance of 1024 a second", n)
	}
	l.answers(echo{from: l.ns("node-b"), dst: netip.MustParseAddr("169.254.169.254")})
}
