package vpc_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// TestInferredLawsMayBeOthers: what no source tells of EC2 has a second reading.
func TestInferredLawsMayBeOthers(t *testing.T) {
	many := func(w *world) error {
		_, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, SecondaryCount: 60})
		return err
	}
	halfThere := func(w *world) error {
		e := w.create(w.roomy, 1)
		return w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: append(e.Secondary, netip.MustParseAddr("10.0.1.254"))})
	}
	mixed := func(w *world) error {
		got, err := w.AssignPrivate(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: w.create(w.roomy, 0).ID, Count: 1, PrefixCount: 1})
		if err == nil && (len(got.Addresses) != 1 || len(got.Prefixes) != 1) {
			w.t.Errorf("%+v", got)
		}
		return err
	}
	onXen := func(w *world) error {
		_, err := w.prefixes(w.InstanceENIs(w.launch("m4.large").ID)[0], 1)
		return err
	}
	trunkOn := func(kind string, branches int) func(w *world) error {
		return func(w *world) error {
			trunk := must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, InterfaceType: vpc.TrunkInterface}))
			_, err := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: w.launch(kind).ID, NetworkInterfaceID: trunk.ID, Device: 1})
			for n := 0; err == nil && n < branches; n++ {
				_, err = w.AssociateTrunkInterface(w.now, vpc.AssociateTrunkInterfaceInput{BranchID: w.create(w.roomy, 0).ID, TrunkID: trunk.ID, VLAN: n + 1})
			}
			return err
		}
	}
	cases := []struct {
		name           string
		other          vpc.Inferred
		do             func(*world) error
		likely, second string
	}{
		{"too many addresses at create", vpc.Inferred{LateAddressLimit: true}, many, vpc.CodePrivateIPLimit, ""},
		{"unassign what is half there", vpc.Inferred{UnassignKnown: true}, halfThere, vpc.CodeParameterValue, ""},
		{"addresses and prefixes", vpc.Inferred{MixedLists: true}, mixed, vpc.CodeParameterCombination, ""},
		{"prefix on Xen", vpc.Inferred{PrefixOnXen: vpc.CodeUnsupported}, onXen, vpc.CodeParameterCombination, vpc.CodeUnsupported},
		{"trunk on a type without", vpc.Inferred{UnfitType: vpc.CodeNotPermitted}, trunkOn("t3.small", 0), vpc.CodeParameterCombination, vpc.CodeNotPermitted},
		{"a branch too many", vpc.Inferred{BranchLimit: vpc.CodeNotPermitted}, trunkOn("m6g.medium", 5), vpc.CodeAttachmentLimit, vpc.CodeNotPermitted},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for want, inferred := range map[string]vpc.Inferred{c.likely: {}, c.second: c.other} {
				w := newWorld(t, vpc.Options{Inferred: inferred})
				if got := code(c.do(w)); got != want {
					t.Errorf("%+v: %q, want %q", inferred, got, want)
				}
				w.check()
			}
		})
	}
}

func TestUnknownIDsAreNamedOneByOneOrTogether(t *testing.T) {
	ids := []string{"eni-0123456789abcdef0", "eni-0123456789abcdef1"}
	for want, inferred := range map[string]vpc.Inferred{
		"InvalidNetworkInterfaceID.NotFound: The networkInterface ID 'eni-0123456789abcdef0' does not exist":                       {},
		"InvalidNetworkInterfaceID.NotFound: The networkInterface IDs 'eni-0123456789abcdef0, eni-0123456789abcdef1' do not exist": {AllMissing: true},
	} {
		w := newWorld(t, vpc.Options{Inferred: inferred})
		if _, err := w.Described(0).ENIs(ids, nil); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// TestCardThatIsNotSaid is a trap of EC2 in the field: without NetworkCardIndex the device index must be free on every card.
func TestCardThatIsNotSaid(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	i := w.launch("p4d.24xlarge")
	in := vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: w.create(w.roomy, 0).ID, Device: 1, Card: 2}
	must(w.AttachNetworkInterface(w.now, in))
	in = vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: w.create(w.roomy, 0).ID, Device: 1, CardUnsaid: true}
	if _, err := w.AttachNetworkInterface(w.now, in); code(err) != vpc.CodeParameterValue {
		t.Fatalf("device 1 of card 2, then of no card: %v", err)
	}
	in.CardUnsaid = false
	must(w.AttachNetworkInterface(w.now, in))
	w.pass(time.Minute)
}

func TestEFAOnlyHasNoAddresses(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	e := must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, InterfaceType: vpc.EFAOnly}))
	if e.Primary.IsValid() || len(e.Addresses()) != 0 {
		t.Fatalf("%+v", e)
	}
	if _, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1}); code(err) != vpc.CodeParameterCombination {
		t.Fatalf("an address for it: %v", err)
	}
	i := w.launch("p5.48xlarge")
	must(w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: e.ID, Device: 1, Card: 1}))
	w.pass(time.Minute)
	if _, enis, _ := w.Metadata(i.ID); len(enis) != 2 || len(enis[1].Addresses()) != 0 {
		t.Fatalf("%+v", enis)
	}
}
