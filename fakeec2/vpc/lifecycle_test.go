package vpc_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

func kinds(events []vpc.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.At.Sub(start).String()+" "+e.Kind)
	}
	return out
}

func TestAttachAndLinkRunIndependently(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	e := w.create(w.roomy, 1)
	if e.Status != vpc.Pending || w.eni(e.ID).Status != vpc.Available {
		t.Fatalf("created as %s, then %s", e.Status, w.eni(e.ID).Status)
	}
	_, since := w.Events(0)
	changed := w.Changed()
	a := w.attach(e, w.node, 1)
	select {
	case <-changed:
	default:
		t.Fatal("Changed did not fire")
	}
	if a.Status != vpc.Attaching || a.Link {
		t.Fatalf("answer %+v", a)
	}
	if due, ok := w.Next(); !ok || !due.Equal(start.Add(time.Second)) {
		t.Fatalf("next is due at %s, %v", due, ok)
	}
	w.pass(10 * time.Second) // late on purpose: events carry the moment they were due
	if err := w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: a.ID}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if err := w.DeleteNetworkInterface(w.now, e.ID); err != nil {
		t.Fatal(err)
	}
	events, _ := w.Events(since)
	want := []string{"0s eni-attaching", "1s eni-attached", "2s link-added", "10s eni-detaching", "13s link-removed", "13s eni-detached", "1m10s eni-deleted"}
	if diff := cmp.Diff(want, kinds(events)); diff != "" {
		t.Fatal(diff)
	}
	if due, ok := w.Next(); ok {
		t.Fatalf("something is still due at %s", due)
	}
}

func TestDelaysMayBeNoneOrNever(t *testing.T) {
	w := newWorld(t, vpc.Options{AttachDelay: -1, LinkDelay: vpc.Never, DetachDelay: -1})
	e := w.create(w.roomy, 0)
	a := w.attach(e, w.node, 1)
	got := w.eni(e.ID).Attachment
	if got.Status != vpc.Attached || got.Link {
		t.Fatalf("%+v", got)
	}
	w.pass(time.Hour)
	if w.eni(e.ID).Attachment.Link {
		t.Fatal("the link that never comes came")
	}
	if err := w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: a.ID}); err != nil {
		t.Fatal(err)
	}
	if w.eni(e.ID).Attachment != nil {
		t.Fatal("still attached")
	}
}

func TestMetadataLagBehind(t *testing.T) {
	w := newWorld(t, vpc.Options{IMDSLag: 5 * time.Second})
	known := func() int {
		_, enis, _ := w.Metadata(w.node.ID)
		n := 0
		for _, e := range enis {
			n += len(e.Addresses())
		}
		return n
	}
	if known() != 1 {
		t.Fatalf("a new instance's metadata know %d addresses", known())
	}
	w.pass(time.Minute)
	e := w.create(w.roomy, 2)
	w.attach(e, w.node, 1)
	steps := []struct {
		after time.Duration
		want  int
	}{{4 * time.Second, 1}, {time.Second, 4}}
	for _, s := range steps {
		w.pass(s.after)
		if known() != s.want {
			t.Fatalf("%s after attach: %d addresses, want %d", w.now.Sub(start), known(), s.want)
		}
	}
	if err := w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: e.Secondary}); err != nil {
		t.Fatal(err)
	}
	w.pass(5*time.Second - 1)
	if known() != 4 {
		t.Fatal("the metadata know too early")
	}
	w.pass(1)
	if known() != 2 {
		t.Fatal("the metadata do not know yet")
	}
}

func TestTerminateKeepsWhatIsNotToBeDeleted(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	before := w.free(w.roomy)
	doomed, kept := w.create(w.roomy, 3), w.create(w.roomy, 0)
	for n, e := range []vpc.ENI{doomed, kept} {
		a := w.attach(e, w.node, n+1)
		if err := w.ModifyNetworkInterfaceAttribute(w.now, vpc.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceID: e.ID, Attachment: &vpc.AttachmentChange{AttachmentID: a.ID, DeleteOnTermination: n == 0},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.pass(time.Minute)
	if err := w.TerminateInstance(w.now, w.node.ID); err != nil {
		t.Fatal(err)
	}
	late := w.create(w.roomy, 0)
	_, err := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: w.node.ID, NetworkInterfaceID: late.ID, Device: 3})
	if code(err) != vpc.CodeIncorrectInstanceState {
		t.Fatalf("attach to a dying instance: %v", err)
	}
	w.pass(3 * time.Second)
	if i, _ := w.Instance(w.node.ID); i.State != vpc.Terminated {
		t.Fatalf("state %s", i.State)
	}
	if _, there := w.ENI(doomed.ID); there {
		t.Fatal("an ENI with DeleteOnTermination outlived its instance")
	}
	if w.eni(kept.ID).Status != vpc.Available {
		t.Fatal("an ENI without DeleteOnTermination did not become available")
	}
	if got := w.free(w.roomy); got != before+1-2 { // the primary's address came back; kept and late hold one each
		t.Fatalf("%d free, want %d", got, before-1)
	}
	w.pass(time.Hour)
	if _, there := w.Instance(w.node.ID); there {
		t.Fatal("still described after an hour")
	}
}

func TestStoppedInstanceHasNoLinks(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	if err := w.StopInstance(w.now, w.node.ID); err != nil {
		t.Fatal(err)
	}
	e := w.create(w.roomy, 0)
	w.attach(e, w.node, 1)
	w.pass(time.Minute)
	if got := w.eni(e.ID).Attachment; got.Status != vpc.Attached || got.Link {
		t.Fatalf("%+v", got)
	}
	if err := w.StartInstance(w.now, w.node.ID); err != nil {
		t.Fatal(err)
	}
	w.pass(2 * time.Second)
	for _, e := range w.InstanceENIs(w.node.ID) {
		if !e.Attachment.Link {
			t.Fatalf("device %d has no link after start", e.Attachment.Device)
		}
	}
}

func TestSubnetGivesAllButTheFiveReserved(t *testing.T) {
	w := newWorld(t, vpc.Options{Seed: 7})
	var got []netip.Addr
	for range 11 {
		got = append(got, w.create(w.tiny, 0).Primary)
	}
	if _, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.tiny.ID}); code(err) != vpc.CodeSubnetFull {
		t.Fatalf("twelfth address: %v", err)
	}
	slices.SortFunc(got, netip.Addr.Compare)
	var want []netip.Addr
	for a := netip.MustParseAddr("10.0.2.4"); a != netip.MustParseAddr("10.0.2.15"); a = a.Next() {
		want = append(want, a)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Fatal(diff)
	}
}

func TestReleasedAddressRests(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	first := w.create(w.tiny, 0)
	if err := w.DeleteNetworkInterface(w.now, first.ID); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if e := w.create(w.tiny, 0); e.Primary == first.Primary {
			t.Fatal("a released address was given again while others were free")
		}
	}
	if e := w.create(w.tiny, 0); e.Primary != first.Primary {
		t.Fatal("the last address is not the resting one")
	}
	w.check()
}

func TestClientTokenGivesTheFirstAnswerAgain(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	in := vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, SecondaryCount: 2, ClientToken: "one"}
	first := must(w.CreateNetworkInterface(w.now, in))
	free := w.free(w.roomy)
	w.pass(time.Minute)
	again := must(w.CreateNetworkInterface(w.now, in))
	if diff := cmp.Diff(first, again, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || w.free(w.roomy) != free {
		t.Fatalf("the repeat is not the first answer: %s", diff)
	}
	in.SecondaryCount = 3
	if _, err := w.CreateNetworkInterface(w.now, in); code(err) != vpc.CodeIdempotentMismatch {
		t.Fatalf("other parameters: %v", err)
	}
}

func TestAnswersAreCopies(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	e := w.create(w.roomy, 2)
	w.attach(e, w.node, 1)
	got := w.eni(e.ID)
	want := w.eni(e.ID)
	got.Secondary[0] = got.Primary
	got.Groups[0] = "sg-broken"
	got.Attachment.Device = 9
	if diff := cmp.Diff(want, w.eni(e.ID), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Fatalf("a caller changed the model: %s", diff)
	}
}

func TestReassignmentMovesAnAddress(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	from, to := w.create(w.roomy, 1), w.create(w.roomy, 0)
	in := vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: to.ID, Addresses: from.Secondary}
	if _, err := w.AssignPrivateIpAddresses(w.now, in); code(err) != vpc.CodeAlreadyAssigned {
		t.Fatalf("without AllowReassignment: %v", err)
	}
	in.AllowReassignment = true
	fresh := must(w.AssignPrivateIpAddresses(w.now, in))
	w.check()
	if !slices.Equal(fresh, from.Secondary) || len(w.eni(from.ID).Secondary) != 0 || !slices.Equal(w.eni(to.ID).Secondary, from.Secondary) {
		t.Fatalf("moved %s", fresh)
	}
	if fresh := must(w.AssignPrivateIpAddresses(w.now, in)); len(fresh) != 0 {
		t.Fatalf("newly assigned twice: %s", fresh)
	}
	if holder, ok := w.Holder(w.network.ID, from.Secondary[0]); !ok || holder.ID != to.ID {
		t.Fatalf("holder is %s", holder.ID)
	}
}

func TestEventsTellWhenTheLogWasCut(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	e := w.create(w.roomy, 0)
	for n := range 300_000 {
		on := n%2 == 0
		if err := w.ModifyNetworkInterfaceAttribute(w.now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: e.ID, SourceDestCheck: &on}); err != nil {
			t.Fatal(err)
		}
	}
	events, next := w.Events(0)
	if len(events) < 1<<17 || events[0].Seq == 1 || events[len(events)-1].Seq != next {
		t.Fatalf("%d events from %d to %d", len(events), events[0].Seq, next)
	}
	if rest, _ := w.Events(next); len(rest) != 0 {
		t.Fatalf("%d events after the last", len(rest))
	}
}
