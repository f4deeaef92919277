package vpc_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// TestRefusals: every illegal request gets EC2's code, and changes nothing.
func TestRefusals(t *testing.T) {
	unknown := "eni-0123456789abcdef0"
	cases := []struct {
		name, want string
		do         func(w *world) error
	}{
		{"create in unknown subnet", vpc.CodeSubnetNotFound, creating(vpc.CreateNetworkInterfaceInput{SubnetID: "subnet-01234567"})},
		{"create in malformed subnet", vpc.CodeSubnetMalformed, creating(vpc.CreateNetworkInterfaceInput{SubnetID: "subnet-x"})},
		{"create an unknown type", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{InterfaceType: "lambda"})},
		{"create with unknown group", vpc.CodeGroupNotFound, creating(vpc.CreateNetworkInterfaceInput{Groups: []string{"sg-01234567"}})},
		{"create with six groups", vpc.CodeGroupsPerInterface, creating(vpc.CreateNetworkInterfaceInput{Groups: make([]string, 6)})},
		{"create with aws: tag", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{Tags: map[string]string{"aws:x": ""}})},
		{"create with 51 tags", vpc.CodeTagLimit, creating(vpc.CreateNetworkInterfaceInput{Tags: manyTags(51)})},
		{"create with long description", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{Description: strings.Repeat("x", 256)})},
		{"create with long token", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{ClientToken: strings.Repeat("x", 65)})},
		{"create more addresses than any type allows", vpc.CodePrivateIPLimit, creating(vpc.CreateNetworkInterfaceInput{SecondaryCount: 50})},
		{"create a negative count", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{SecondaryCount: -1})},
		{"create with count and list", vpc.CodeParameterCombination, creating(vpc.CreateNetworkInterfaceInput{SecondaryCount: 1, Secondary: addrs("10.0.1.9")})},
		{"create outside the subnet", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{Primary: netip.MustParseAddr("10.0.2.9")})},
		{"create on a reserved address", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{Primary: netip.MustParseAddr("10.0.1.3")})},
		{"create on the last address", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{Primary: netip.MustParseAddr("10.0.1.255")})},
		{"create with an address twice", vpc.CodeParameterValue, creating(vpc.CreateNetworkInterfaceInput{Secondary: addrs("10.0.1.9", "10.0.1.9")})},
		{"create on a held address", vpc.CodeIPInUse, func(w *world) error {
			_, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, Primary: w.node.PrivateIP})
			return err
		}},
		{"create with a group of another VPC", vpc.CodeParameterValue, func(w *world) error {
			_, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, Groups: []string{w.elsewhere.DefaultGroup}})
			return err
		}},
		{"attach unknown ENI", vpc.CodeENINotFound, attaching(func(*world) vpc.ENI { return vpc.ENI{ID: unknown} }, 1, 0)},
		{"attach malformed ENI", vpc.CodeENIMalformed, attaching(func(*world) vpc.ENI { return vpc.ENI{ID: "eni-XYZ"} }, 1, 0)},
		{"attach from another zone", vpc.CodeParameterCombination, attaching(func(w *world) vpc.ENI { return w.create(w.otherZone, 0) }, 1, 0)},
		{"attach from another VPC", vpc.CodeParameterCombination, attaching(func(w *world) vpc.ENI { return w.create(w.foreign, 0) }, 1, 0)},
		{"attach at a taken index", vpc.CodeParameterValue, attaching(func(w *world) vpc.ENI { return w.create(w.roomy, 0) }, 0, 0)},
		{"attach at a negative index", vpc.CodeParameterValue, attaching(func(w *world) vpc.ENI { return w.create(w.roomy, 0) }, -1, 0)},
		{"attach on a card that is not there", vpc.CodeParameterValue, attaching(func(w *world) vpc.ENI { return w.create(w.roomy, 0) }, 1, 1)},
		{"attach with too many addresses", vpc.CodePrivateIPLimit, attaching(func(w *world) vpc.ENI { return w.create(w.roomy, 15) }, 1, 0)},
		{"attach the primary again", vpc.CodeENIInUse, attaching(func(w *world) vpc.ENI { return w.InstanceENIs(w.node.ID)[0] }, 1, 0)},
		{"attach one too many", vpc.CodeAttachmentLimit, func(w *world) error {
			i := w.launch("toy")
			w.attach(w.create(w.roomy, 0), i, 1)
			_, err := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: w.create(w.roomy, 0).ID, Device: 2})
			return err
		}},
		{"attach one too many on a card", vpc.CodeAttachmentLimit, func(w *world) error {
			i := w.launch("cards")
			in := vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: w.create(w.roomy, 0).ID, Device: 1, Card: 1}
			must(w.AttachNetworkInterface(w.now, in))
			in.NetworkInterfaceID, in.Device = w.create(w.roomy, 0).ID, 2
			_, err := w.AttachNetworkInterface(w.now, in)
			return err
		}},
		{"detach the primary", vpc.CodeNotPermitted, func(w *world) error {
			return w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: w.InstanceENIs(w.node.ID)[0].Attachment.ID})
		}},
		{"detach unknown", vpc.CodeAttachmentNotFound, func(w *world) error {
			return w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: "eni-attach-01234567"})
		}},
		{"detach malformed", vpc.CodeAttachmentMalformed, func(w *world) error {
			return w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: unknown})
		}},
		{"detach while attaching", vpc.CodeIncorrectState, func(w *world) error {
			return w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: w.attach(w.create(w.roomy, 0), w.node, 1).ID})
		}},
		{"delete unknown", vpc.CodeENINotFound, func(w *world) error { return w.DeleteNetworkInterface(w.now, unknown) }},
		{"delete while attaching", vpc.CodeParameterValue, func(w *world) error {
			e := w.create(w.roomy, 0)
			w.attach(e, w.node, 1)
			return w.DeleteNetworkInterface(w.now, e.ID)
		}},
		{"delete while detaching", vpc.CodeParameterValue, func(w *world) error {
			e := w.create(w.roomy, 0)
			a := w.attach(e, w.node, 1)
			if err := w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: a.ID, Force: true}); err != nil {
				return err
			}
			return w.DeleteNetworkInterface(w.now, e.ID)
		}},
		{"assign nothing", vpc.CodeMissingParameter, assigning(vpc.AssignPrivateIpAddressesInput{})},
		{"assign count and list", vpc.CodeParameterCombination, assigning(vpc.AssignPrivateIpAddressesInput{Count: 1, Addresses: addrs("10.0.1.9")})},
		{"assign a negative count", vpc.CodeParameterValue, assigning(vpc.AssignPrivateIpAddressesInput{Count: -1})},
		{"assign over the type's limit", vpc.CodePrivateIPLimit, assigning(vpc.AssignPrivateIpAddressesInput{Count: 15})},
		{"assign outside the subnet", vpc.CodeParameterValue, assigning(vpc.AssignPrivateIpAddressesInput{Addresses: addrs("10.0.1.9", "10.9.9.9")})},
		{"assign IPv6", vpc.CodeParameterValue, assigning(vpc.AssignPrivateIpAddressesInput{Addresses: addrs("fd00::1")})},
		{"assign a primary address of another ENI", vpc.CodeIPInUse, func(w *world) error {
			_, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{
				NetworkInterfaceID: w.create(w.roomy, 0).ID, Addresses: []netip.Addr{w.node.PrivateIP}, AllowReassignment: true,
			})
			return err
		}},
		{"assign a service's address", vpc.CodeIPInUse, func(w *world) error {
			if err := w.AddService(vpc.Service{Name: "api", SubnetID: w.roomy.ID, Addr: netip.MustParseAddr("10.0.1.10")}); err != nil {
				return err
			}
			_, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{
				NetworkInterfaceID: w.create(w.roomy, 0).ID, Addresses: addrs("10.0.1.10"), AllowReassignment: true,
			})
			return err
		}},
		{"assign more than the subnet has", vpc.CodeSubnetFull, func(w *world) error {
			e := w.create(w.tiny, 0)
			_, err := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 11})
			return err
		}},
		{"unassign the primary", vpc.CodeParameterValue, unassigning(func(w *world) []netip.Addr { return []netip.Addr{w.node.PrivateIP} })},
		{"unassign what is not there", vpc.CodeParameterValue, unassigning(func(*world) []netip.Addr { return addrs("10.0.1.9") })},
		{"unassign nothing", vpc.CodeMissingParameter, unassigning(func(*world) []netip.Addr { return nil })},
		{"modify nothing", vpc.CodeMissingParameter, modifying(vpc.ModifyNetworkInterfaceAttributeInput{})},
		{"modify two attributes", vpc.CodeParameterCombination, modifying(vpc.ModifyNetworkInterfaceAttributeInput{Description: new(string), SourceDestCheck: new(bool)})},
		{"modify an attachment of another ENI", vpc.CodeAttachmentNotFound, modifying(vpc.ModifyNetworkInterfaceAttributeInput{Attachment: &vpc.AttachmentChange{AttachmentID: "eni-attach-01234567"}})},
		{"modify to an unknown group", vpc.CodeGroupNotFound, modifying(vpc.ModifyNetworkInterfaceAttributeInput{Groups: []string{"sg-01234567"}})},
		{"tag an unknown thing", "InvalidID", func(w *world) error { return w.CreateTags(w.now, []string{"vol-01234567"}, manyTags(1)) }},
		{"tag half and half", vpc.CodeENINotFound, func(w *world) error { return w.CreateTags(w.now, []string{w.node.ID, unknown}, manyTags(1)) }},
		{"tag too much", vpc.CodeTagLimit, func(w *world) error { return w.CreateTags(w.now, []string{w.node.ID}, manyTags(51)) }},
		{"launch an unknown type", vpc.CodeParameterValue, func(w *world) error {
			_, err := w.Launch(w.now, vpc.LaunchInput{Type: "x9.huge", SubnetID: w.roomy.ID})
			return err
		}},
		{"launch with a hop limit of 65", vpc.CodeParameterValue, func(w *world) error {
			_, err := w.Launch(w.now, vpc.LaunchInput{Type: "m5.large", SubnetID: w.roomy.ID, HopLimit: vpc.MaxHopLimit + 1})
			return err
		}},
		{"launch with a negative hop limit", vpc.CodeParameterValue, func(w *world) error {
			_, err := w.Launch(w.now, vpc.LaunchInput{Type: "m5.large", SubnetID: w.roomy.ID, HopLimit: -1})
			return err
		}},
		{"overlapping subnet", vpc.CodeSubnetConflict, func(w *world) error {
			_, err := w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, CIDR: netip.MustParsePrefix("10.0.1.128/25")})
			return err
		}},
		{"subnet outside its VPC", vpc.CodeSubnetRange, func(w *world) error {
			_, err := w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, CIDR: netip.MustParsePrefix("10.2.1.0/24")})
			return err
		}},
		{"IPv6 subnet", vpc.CodeSubnetRange, func(w *world) error {
			_, err := w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, CIDR: netip.MustParsePrefix("fd00::/64")})
			return err
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, vpc.Options{})
			if got := code(c.do(w)); got != c.want {
				t.Fatalf("code %q, want %q", got, c.want)
			}
			w.check()
			w.pass(time.Minute)
		})
	}
}

func creating(in vpc.CreateNetworkInterfaceInput) func(*world) error {
	return func(w *world) error {
		if in.SubnetID == "" {
			in.SubnetID = w.roomy.ID
		}
		return unchanged(w, func() error {
			_, err := w.CreateNetworkInterface(w.now, in)
			return err
		})
	}
}

func attaching(eni func(*world) vpc.ENI, device, card int) func(*world) error {
	return func(w *world) error {
		in := vpc.AttachNetworkInterfaceInput{InstanceID: w.node.ID, NetworkInterfaceID: eni(w).ID, Device: device, Card: card}
		return unchanged(w, func() error {
			_, err := w.AttachNetworkInterface(w.now, in)
			return err
		})
	}
}

func assigning(in vpc.AssignPrivateIpAddressesInput) func(*world) error {
	return func(w *world) error {
		in.NetworkInterfaceID = w.InstanceENIs(w.node.ID)[0].ID
		return unchanged(w, func() error {
			_, err := w.AssignPrivateIpAddresses(w.now, in)
			return err
		})
	}
}

func unassigning(list func(*world) []netip.Addr) func(*world) error {
	return func(w *world) error {
		e := w.InstanceENIs(w.node.ID)[0]
		fresh := must(w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 1}))
		bad := list(w)
		if len(bad) > 0 {
			bad = append(fresh, bad...) // one good one: all or nothing
		}
		return unchanged(w, func() error {
			return w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: bad})
		})
	}
}

func modifying(in vpc.ModifyNetworkInterfaceAttributeInput) func(*world) error {
	return func(w *world) error {
		in.NetworkInterfaceID = w.InstanceENIs(w.node.ID)[0].ID
		return unchanged(w, func() error { return w.ModifyNetworkInterfaceAttribute(w.now, in) })
	}
}

// unchanged fails the test where a refused request left something behind.
func unchanged(w *world, do func() error) error {
	w.t.Helper()
	_, before := w.Events(0)
	enis, subnets := w.ENIs(), w.Subnets()
	err := do()
	if _, after := w.Events(0); err != nil && after != before {
		w.t.Errorf("a refused request wrote %d events", after-before)
	}
	byValue := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	byPrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(enis, w.ENIs(), byValue) + cmp.Diff(subnets, w.Subnets(), byPrefix); err != nil && diff != "" {
		w.t.Errorf("a refused request changed the model: %s", diff)
	}
	return err
}

func manyTags(n int) map[string]string {
	tags := map[string]string{}
	for i := range n {
		tags[fmt.Sprint("key", i)] = "v"
	}
	return tags
}

func TestQuotaOfENIs(t *testing.T) {
	w := newWorld(t, vpc.Options{ENIQuota: 2}) // the node's primary is one of them
	w.create(w.roomy, 0)
	if _, err := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID}); code(err) != vpc.CodeENILimit {
		t.Fatal(err)
	}
}

func TestMessagesAreEC2s(t *testing.T) {
	w := newWorld(t, vpc.Options{})
	e := w.create(w.roomy, 0)
	w.attach(e, w.node, 1)
	other := w.create(w.roomy, 0)
	_, occupied := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: w.node.ID, NetworkInterfaceID: other.ID, Device: 1})
	_, full := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.tiny.ID, SecondaryCount: 20})
	_, many := w.AssignPrivateIpAddresses(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Count: 15})
	_, short := w.AssignPrivate(w.now, vpc.AssignPrivateIpAddressesInput{NetworkInterfaceID: w.create(w.tiny, 0).ID, PrefixCount: 1})
	_, inUse := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: w.node.ID, NetworkInterfaceID: e.ID, Device: 2})
	_, group := w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: w.roomy.ID, Groups: []string{"sg-0123456789abcdef0"}})
	toy := w.launch("toy")
	w.attach(w.create(w.roomy, 0), toy, 1)
	_, enis := w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: toy.ID, NetworkInterfaceID: other.ID, Device: 2})
	primary := w.InstanceENIs(w.node.ID)[0]
	_, missing := w.DescribeNetworkInterfaces([]string{e.ID, "eni-0123456789abcdef0", "eni-0123456789abcdef1"})
	cases := []struct {
		err  error
		want string
	}{
		{w.DeleteNetworkInterface(w.now, e.ID), "InvalidParameterValue: Network interface '" + e.ID + "' is currently in use."},
		{occupied, "InvalidParameterValue: Instance '" + w.node.ID + "' already has an interface attached at device index '1'."},
		{full, "InsufficientFreeAddressesInSubnet: The specified subnet does not have enough free addresses to satisfy the request."},
		{many, "PrivateIpAddressLimitExceeded: Number of private addresses will exceed limit."},
		{short, "InvalidParameterValue: There aren't sufficient free Ipv4 addresses or prefixes"},
		{inUse, "InvalidNetworkInterface.InUse: Interface: [" + e.ID + "] in use."},
		{enis, "AttachmentLimitExceeded: Interface count 3 exceeds the limit for toy"},
		{group, "InvalidGroup.NotFound: The security group 'sg-0123456789abcdef0' does not exist"},
		{w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: primary.Attachment.ID}),
			"OperationNotPermitted: The network interface at device index 0 and networkCard index 0 cannot be detached."},
		{w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: "ela-attach-0123456789abcdef0"}),
			"OperationNotPermitted: You are not allowed to manage 'ela-attach' attachments."},
		{w.DetachNetworkInterface(w.now, vpc.DetachNetworkInterfaceInput{AttachmentID: "eni-attach-0123456789abcdef0"}),
			"InvalidAttachmentID.NotFound: The attachment 'eni-attach-0123456789abcdef0' does not exist"},
		{w.UnassignPrivateIpAddresses(w.now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: e.ID, Addresses: addrs("10.0.1.254")}),
			"InvalidParameterValue: Some of the specified addresses are not assigned to interface " + e.ID},
		{w.DeleteNetworkInterface(w.now, "eni-xyz"), "InvalidNetworkInterfaceId.Malformed: Invalid id: \"eni-xyz\" (expecting \"eni-...\")"},
		{missing, "InvalidNetworkInterfaceID.NotFound: The networkInterface ID 'eni-0123456789abcdef0' does not exist"},
	}
	for _, c := range cases {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}
