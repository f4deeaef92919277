package vpc_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// timeline samples a view each second and gives its changes as "3s one two".
func (w *world) timeline(seconds int, view func() string) []string {
	var out []string
	last := ""
	for n := range seconds + 1 {
		if now := view(); n == 0 || now != last {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%ds %s", n, now)))
			last = now
		}
		w.pass(time.Second)
	}
	return out
}

// scripted takes lags from a map by name, or by name and the last part of the resource.
func scripted(lags map[string]time.Duration) vpc.Script {
	return func(lag, resource string) (time.Duration, bool) {
		_, item, _ := strings.Cut(resource, "/")
		if d, ok := lags[lag+" "+item]; ok {
			return d, true
		}
		d, ok := lags[lag]
		return d, ok
	}
}

func (w *world) metadata(of vpc.ENI) string {
	_, enis, _ := w.MetadataENIs(w.node.ID)
	for _, e := range enis {
		if e.ID != of.ID {
			continue
		}
		if e.Bare {
			return "bare"
		}
		device := e.Attachment.Device
		if e.DeviceUnknown {
			device = 0
		}
		return fmt.Sprint("device ", device, " with ", len(e.Secondary), "+", len(e.Prefixes), "+", len(e.IPv6))
	}
	return "-"
}

func TestMetadataComePieceByPiece(t *testing.T) {
	second := time.Second
	w := newWorld(t, vpc.Options{Seed: 5, Script: scripted(map[string]time.Duration{
		vpc.LagMetadataMAC: 2 * second, vpc.LagMetadataLeaves: 2 * second, vpc.LagMetadataDevice: 4 * second,
		vpc.LagMetadataAssign + " 10.0.1.101": 8 * second, vpc.LagMetadataAssign + " 10.0.1.102": 9 * second, vpc.LagMetadataAssign: 7 * second,
	})})
	e := must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, Secondary: addrs("10.0.1.101", "10.0.1.102"), IPv6Count: 1}))
	w.attach(e, w.node, 2)
	want := []string{"0s -", "2s bare", "4s device 0 with 0+0+0", "6s device 2 with 0+0+0", "7s device 2 with 0+0+1", "8s device 2 with 1+0+1", "9s device 2 with 2+0+1"}
	if diff := cmp.Diff(want, w.timeline(12, func() string { return w.metadata(e) })); diff != "" {
		t.Fatal(diff)
	}
}

func TestMetadataKeepWhatIsGone(t *testing.T) {
	second := time.Second
	w := newWorld(t, vpc.Options{Script: scripted(map[string]time.Duration{
		vpc.LagMetadataUnassign: 4 * second, vpc.LagMetadataGone: 6 * second, vpc.LagMetadataBare: 200 * second, vpc.LagDetach: 2 * second,
	})})
	e := must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, SecondaryCount: 1, PrefixCount: 0}))
	a := w.attach(e, w.node, 1)
	w.pass(time.Minute)
	if err := w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: e.Secondary}); err != nil {
		t.Fatal(err)
	}
	if err := w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: a.ID}); err != nil {
		t.Fatal(err)
	}
	n := 0
	got := w.timeline(300, func() string {
		if n++; n == 4 { // gone from EC2 altogether
			if err := w.DeleteNetworkInterface(w.now, e.ID); err != nil {
				t.Fatal(err)
			}
		}
		return w.metadata(e)
	})
	if diff := cmp.Diff([]string{"0s device 1 with 1+0+0", "4s device 1 with 0+0+0", "6s bare", "206s -"}, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestMetadataFollowGroupsAndNewLags(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	w.SetDelays(vpc.Delays{Attach: time.Second, Link: time.Second, Detach: time.Second, IMDS: vpc.Never})
	e := w.InstanceENIs(w.node.ID)[0]
	g := must(w.AddSecurityGroup(vpc.SecurityGroup{VPCID: w.network.ID, Name: "other"}))
	if err := w.ModifyNetworkInterfaceAttribute(w.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: e.ID, Groups: []string{g.ID}}); err != nil {
		t.Fatal(err)
	}
	must(w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1}))
	w.pass(time.Hour)
	_, enis, _ := w.Metadata(w.node.ID)
	if enis[0].Groups[0] == g.ID || len(enis[0].Secondary) != 0 {
		t.Fatal("metadata that never change have changed")
	}
	d := w.Delays()
	d.IMDS = 2 * time.Hour
	w.SetDelays(d)
	w.pass(time.Hour)
	_, enis, _ = w.Metadata(w.node.ID)
	if enis[0].Groups[0] != g.ID || len(enis[0].Secondary) != 1 {
		t.Fatalf("two hours after the change: %+v", enis[0])
	}
}

func TestDescriptionsLag(t *testing.T) {
	second := time.Second
	w := newWorld(t, vpc.Options{ReuseDelay: -1, Script: scripted(map[string]time.Duration{vpc.LagDescribe: 3 * second, vpc.LagCount: 5 * second})})
	w.pass(time.Minute)
	e := w.create(w.roomy, 1)
	described := func(age time.Duration) string {
		d := w.Described(age)
		subnets := must(d.Subnets([]string{w.roomy.ID}))
		enis, err := d.ENIs([]string{e.ID}, nil)
		all := must(d.ENIs(nil, func(x *vpc.ENI) bool { return x.ID == e.ID }))
		if err != nil {
			return fmt.Sprint("none ", len(all), " ", subnets[0].Free)
		}
		return fmt.Sprint(len(enis[0].Secondary), " ", len(all), " ", subnets[0].Free)
	}
	n := 0
	got := w.timeline(40, func() string {
		switch n++; n {
		case 11:
			must(w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1}))
		case 21:
			if err := w.DeleteNetworkInterface(w.now, e.ID); err != nil {
				t.Fatal(err)
			}
		}
		return described(0)
	})
	want := []string{"0s none 0 250", "3s 1 1 250", "5s 1 1 248", "13s 2 1 248", "15s 2 1 247", "23s none 0 247", "25s none 0 250"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if got := described(36 * second); got != "1 1 248" { // five seconds after the beginning
		t.Fatalf("a stale read: %s", got)
	}
	if got := described(28 * second); got != "2 1 247" { // as it was then, not as it was told then
		t.Fatalf("a stale read: %s", got)
	}
}

func TestNewENIIsUnknownForAWhile(t *testing.T) {
	w := newWorld(t, vpc.Options{Lags: &vpc.Lags{Create: vpc.Exactly(3 * time.Second)}})
	e := w.create(w.roomy, 0)
	in := vpc.AttachNetworkInterfaceInput{InstanceID: w.node.ID, NetworkInterfaceID: e.ID, Device: 1}
	if _, err := w.AttachNetworkInterface(w.now, in); code(err) != vpc.CodeENINotFound {
		t.Fatalf("attach: %v", err)
	}
	if _, err := w.Described(0).ENIs([]string{e.ID}, nil); code(err) != vpc.CodeENINotFound {
		t.Fatalf("describe: %v", err)
	}
	w.pass(3 * time.Second)
	must(w.AttachNetworkInterface(w.now, in))
}

func TestDescribedInstanceShowsADetachedENI(t *testing.T) {
	w := newWorld(t, vpc.Options{DetachDelay: -1, Script: scripted(map[string]time.Duration{vpc.LagDescribe: 3 * time.Second})})
	e := w.create(w.roomy, 0)
	a := w.attach(e, w.node, 1)
	w.pass(time.Minute)
	if err := w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: a.ID}); err != nil {
		t.Fatal(err)
	}
	got := w.timeline(5, func() string { return fmt.Sprint(len(w.Described(0).InstanceENIs(w.node.ID))) })
	if diff := cmp.Diff([]string{"0s 2", "3s 1"}, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestSeededRangesDifferAndStayInRange(t *testing.T) {
	attached := func(seed uint64) []string {
		w := newWorld(t, vpc.Options{Seed: seed, Lags: &vpc.Lags{Attach: vpc.Range{Min: 2 * time.Second, Max: 9 * time.Second}}})
		i := w.launch("m5.24xlarge")
		for n := range 10 {
			w.attach(w.create(w.roomy, 0), i, n+1)
		}
		w.pass(time.Minute)
		events, _ := w.Events(0)
		events = slices.DeleteFunc(events, func(e vpc.Event) bool { return e.Kind != vpc.ENIAttached || e.Instance != i.ID || e.At.Equal(start) })
		for _, e := range events {
			if lag := e.At.Sub(start); lag < 2*time.Second || lag > 9*time.Second {
				t.Errorf("attached after %s", lag)
			}
		}
		return kinds(events)
	}
	if one := attached(1); len(one) != 10 || one[0] == one[9] || !slices.Equal(one, attached(1)) || slices.Equal(one, attached(2)) {
		t.Fatalf("%q", one)
	}
}

func TestRunInstancesArePendingFirst(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	run := vpc.RunInput{Min: 2, Max: 2, ClientToken: "t", LaunchInput: vpc.LaunchInput{Type: "m5.large", Interfaces: []vpc.LaunchInterface{
		{Device: 1, Create: vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, SecondaryCount: 1}, KeepOnTermination: true},
		{Device: 0, Create: vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, PrefixCount: 1}},
	}}}
	got := must(w.RunInstances(w.now, run))
	if len(got) != 2 || got[0].State != vpc.Pending || got[0].ReservationID != got[1].ReservationID {
		t.Fatalf("%+v", got)
	}
	if again := must(w.RunInstances(w.now, run)); again[0].ID != got[0].ID || len(w.Instances()) != 3 {
		t.Fatal("a repeated token ran more instances")
	}
	enis := w.InstanceENIs(got[0].ID)
	if len(enis) != 2 || enis[0].Attachment.Link || len(enis[0].Prefixes) != 1 || len(enis[1].Secondary) != 1 {
		t.Fatalf("%+v", enis)
	}
	late := w.create(w.roomy, 0)
	in := vpc.AttachNetworkInterfaceInput{InstanceID: got[0].ID, NetworkInterfaceID: late.ID, Device: 2}
	if _, err := w.AttachNetworkInterface(w.now, in); code(err) != vpc.CodeIncorrectInstanceState {
		t.Fatalf("attach to a pending instance: %v", err)
	}
	w.pass(2 * time.Second)
	if i, _ := w.Instance(got[0].ID); i.State != vpc.Running || !w.InstanceENIs(got[0].ID)[1].Attachment.Link {
		t.Fatalf("%+v", i)
	}
	if err := w.TerminateInstance(w.now, got[0].ID); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if _, gone := w.ENI(enis[0].ID); gone || w.eni(enis[1].ID).Status != vpc.Available {
		t.Fatal("delete on termination was not kept")
	}
	before := len(w.ENIs())
	run.ClientToken, run.Min, run.Max = "u", 200, 200
	if _, err := w.RunInstances(w.now, run); code(err) != vpc.CodeCIDRBlocks && code(err) != vpc.CodeParameterValue {
		t.Fatalf("too many: %v", err)
	}
	if len(w.ENIs()) != before {
		t.Fatalf("a refused launch left %d ENIs", len(w.ENIs())-before)
	}
	w.check()
}

func TestQuotas(t *testing.T) {
	w := newWorld(t, vpc.Options{NAULimit: 5, PeeredNAU: 6, TagSettle: time.Second})
	e := w.create(w.roomy, 2) // with the node's primary: 4
	if _, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 2}); code(err) != vpc.CodeNAU {
		t.Fatalf("sixth of five: %v", err)
	}
	must(w.AddPeering(vpc.Peering{A: w.network.ID, B: w.elsewhere.ID}))
	w.create(w.foreign, 1)
	if _, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1}); code(err) != vpc.CodeNAUPeered {
		t.Fatalf("seventh of six: %v", err)
	}
	tag := func() error { return w.CreateTags(w.now, []string{e.ID}, map[string]string{"a": "b"}) }
	if err := tag(); err != nil {
		t.Fatal(err)
	}
	if err := tag(); code(err) != vpc.CodeConcurrentTag {
		t.Fatalf("at once: %v", err)
	}
	w.pass(time.Second)
	if err := tag(); err != nil {
		t.Fatal(err)
	}
	routes := w.Routes(w.network.ID)
	if len(routes) != 5 || routes[2].Destination != netip.MustParsePrefix("10.1.0.0/16") {
		t.Fatalf("%+v", routes)
	}
}
