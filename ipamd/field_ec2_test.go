package ipamd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// These tests replay public reports about what others do at EC2 (e2e/fieldcases/cases.md, B21 to B24, B48 and B78): the whole daemon
// finds out by itself.

// reading is how long a daemon at rest may take to see what others did at EC2: it looks at the metadata each minute.
const reading = 5 * time.Minute

// awaitFor is await with a limit of its own.
func (w *world) awaitFor(limit time.Duration, what string, met func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !met(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// held are the addresses that EC2 has on the node's attached ENIs, their own left out.
func (w *world) held() []netip.Addr {
	w.t.Helper()
	var list []netip.Addr
	for _, eni := range w.model.InstanceENIs(w.instance.ID) {
		list = append(list, eni.Secondary...)
	}
	return list
}

// onDevice is the node's ENI at a device number.
func (w *world) onDevice(device int) vpc.ENI {
	w.t.Helper()
	for _, eni := range w.model.InstanceENIs(w.instance.ID) {
		if eni.Attachment.Device == device {
			return eni
		}
	}
	w.t.Fatalf("no ENI at device %d", device)
	return vpc.ENI{}
}

// Somebody detaches and deletes an ENI that pods use.
func TestB24AddressesOfAnENIThatSomebodyDetachedAreNotGivenOut(t *testing.T) {
	t.Parallel()
	w := newFieldWorld(t, 2, 3, "MINIMUM_IP_TARGET=4")
	w.start()
	first, second, cut := w.add("first"), w.add("second"), w.add("cut")
	w.await("a free address beside the third pod's", func() bool { return w.metric("awscni_total_ip_addresses") == 4 })
	gone := w.onDevice(1)
	if !slices.Contains(gone.Secondary, cut.addr) {
		t.Fatalf("%s is not on %s: %v", cut.addr, gone.ID, gone.Secondary)
	}
	w.check(w.model.DetachNetworkInterface(time.Now(), vpc.DetachNetworkInterfaceInput{AttachmentID: gone.Attachment.ID}))
	w.await("the ENI can be deleted", func() bool { return w.model.DeleteNetworkInterface(time.Now(), gone.ID) == nil })

	w.awaitFor(reading, "the pod is named", func() bool {
		return w.logged("level=ERROR", "not ours at EC2 any more", "default/cut", cut.addr.String(), gone.ID)
	})
	for _, p := range []*pod{first, second} {
		w.check(w.cniCheck(p))
		w.reaches(p, ec2Addr+":80")
	}
	next := w.sandbox("next")
	w.awaitFor(reading, "a pod starts on another ENI", func() bool { return w.tryAdd(next) == nil })
	if !slices.Contains(w.held(), next.addr) || next.addr == cut.addr {
		t.Errorf("given %s, EC2 has %v on the node and %s is the cut-off pod's", next.addr, w.held(), cut.addr)
	}
	w.reaches(next, ec2Addr+":80")
	w.del(cut)
	w.await("three pods are left", func() bool { return w.metric(assigned) == 3 })
}

// A VPC gains a CIDR while pods run on both ENIs: they reach it with their own addresses.
func TestB48CIDRThatTheVPCGainsIsInsideForPodsThatRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	pods := []*pod{w.add("a"), w.add("b"), w.add("c")}
	gained := netip.MustParsePrefix("10.64.0.0/16")
	network, err := w.model.AddCIDR(w.instance.VPCID, gained)
	w.check(err)
	subnet, err := w.model.AddSubnet(vpc.Subnet{VPCID: network.ID, CIDR: netip.MustParsePrefix("10.64.1.0/24")})
	w.check(err)
	const address = "10.64.1.20"
	w.check(w.model.AddService(vpc.Service{Name: "late", Addr: netip.MustParseAddr(address), SubnetID: subnet.ID}))
	place := filepath.Join(w.dir, "netns", "late")
	w.await("namespace of the new address", func() bool { _, err := os.Stat(place); return err == nil && w.plane.Sync() == nil })
	late := w.open("late")
	t.Cleanup(func() { _ = late.Close() })
	listener, err := late.Listen(t.Context(), "tcp", address+":80")
	w.check(err)
	t.Cleanup(func() { _ = listener.Close() })

	w.awaitFor(reading, "the kernel has the new CIDR", func() bool { return strings.Contains(strings.Join(w.view().Kernel, "\n"), gained.String()) })
	for _, p := range pods {
		w.reaches(p, address+":80")
		conn, err := listener.Accept()
		w.check(err)
		if from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); from != p.addr {
			t.Errorf("%s comes as %s", p.addr, from)
		}
		_ = conn.Close()
	}
	if said := fmt.Sprint(w.view().Warnings); said != "[]" {
		t.Errorf("warnings: %s", said)
	}
}

// own fails the test unless the pods have addresses that EC2 holds on the node now, and none of them is an ENI's own.
func (w *world) own(pods ...*pod) {
	w.t.Helper()
	held, seen := w.held(), map[netip.Addr]bool{}
	for _, p := range pods {
		if !slices.Contains(held, p.addr) || seen[p.addr] {
			w.t.Errorf("%s has %s (given before: %t), EC2 has %v", p.conf.ContainerID, p.addr, seen[p.addr], held)
		}
		seen[p.addr] = true
		w.reaches(p, ec2Addr+":80")
	}
}

// The metadata never list an ENI that is attached, and DescribeNetworkInterfaces shows it late: what fills the node is no ENI's own
// address, and so after a restart.
func TestB22PrimaryThatIsListedLateIsNoPodsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "IP_COOLDOWN_PERIOD=0")
	w.model.ChangeLags(func(l *vpc.Lags) {
		l.MetadataMAC, l.MetadataAssign, l.Describe = vpc.Exactly(vpc.Never), vpc.Exactly(0), vpc.Exactly(2*time.Second)
	})
	w.start()
	for round := range 2 {
		var pods []*pod
		for _, name := range []string{"a", "b", "c", "d"} {
			pods = append(pods, w.add(fmt.Sprint(name, round)))
		}
		w.own(pods...)
		for _, p := range pods {
			w.del(p)
		}
		w.await("EC2 describes what the node has", func() bool { // a life that begins before waits longer than a pod should
			w.model.Advance(time.Now())
			described := 0
			for _, eni := range w.model.Described(0).InstanceENIs(w.instance.ID) {
				described += len(eni.Secondary)
			}
			return described == len(w.held())
		})
		w.kill()
		w.start()
	}
}

// Somebody takes a free address away at EC2, the metadata list it for ever, and the daemon starts anew.
func TestB21AddressThatOnlyTheMetadataListIsNotGivenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "WARM_IP_TARGET=1", "IP_COOLDOWN_PERIOD=0")
	w.model.ChangeLags(func(l *vpc.Lags) { l.MetadataUnassign = vpc.Exactly(vpc.Never) })
	w.start()
	first := w.add("first")
	w.await("a free address", func() bool { return w.metric("awscni_total_ip_addresses") == 2 })
	primary := w.onDevice(0)
	taken := slices.DeleteFunc(primary.Secondary, func(a netip.Addr) bool { return a == first.addr })
	w.check(w.model.UnassignPrivateIpAddresses(time.Now(), vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: primary.ID, Addresses: taken}))
	w.kill()
	w.start()
	pods := []*pod{first}
	for _, name := range []string{"second", "third", "fourth"} {
		pods = append(pods, w.add(name))
	}
	w.own(pods...)
}

// The instance's metadata take version 2 alone, with a hop limit of 1: the daemon, which is on the node, reads them, its role's
// credentials among them; a pod does not.
func TestB78MetadataVersion2WithAHopLimitOf1AreEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = slices.DeleteFunc(w.env, func(s string) bool {
		return strings.HasPrefix(s, "AWS_ACCESS_KEY_ID=") || strings.HasPrefix(s, "AWS_SECRET_ACCESS_KEY=")
	})
	yes := true
	_, err := w.model.ModifyInstanceMetadataOptions(time.Now(), w.instance.ID, vpc.MetadataOptions{HopLimit: 1, TokensRequired: &yes})
	w.check(err)
	w.start()
	var pods []*pod
	for _, name := range []string{"a", "b", "c"} { // an ENI is attached
		pods = append(pods, w.add(name))
	}
	w.own(pods...)
	w.check(w.token(w.node))
	for _, p := range []*pod{pods[0], pods[2]} {
		if err := w.token(p.ns); err == nil {
			t.Errorf("pod %s gets a token", p.addr)
		}
	}
}

// token asks for a metadata token from a namespace, as an SDK does. An answer that may not leave the node never comes.
func (w *world) token(from *netlab.Namespace) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://169.254.169.254/latest/api/token", http.NoBody)
	w.check(err)
	request.Header.Set("X-aws-ec2-metadata-token-ttl-seconds", "60")
	client := &http.Client{Transport: &http.Transport{DialContext: from.DialContext}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Readers of the incumbent's introspection find each of its pages, or a hint where the same is.
func TestB85PagesOfTheIncumbentAreServedOrHintedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	for path, want := range map[string]string{
		"/v1/enis": "200", "/v1/ipamd-env-settings": "200", "/v1/networkutils-env-settings": "200",
		"/v1/eni-configs": "410", "/v1/pods": "410",
	} {
		if answer := w.page("introspection.sock", path); !strings.HasPrefix(answer, want) || want == "410" && !strings.Contains(answer, "/v1/enis") {
			t.Errorf("%s: %s", path, answer)
		}
	}
}
