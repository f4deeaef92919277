package vpc_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a small region: a VPC with a roomy and a tiny subnet in one zone, one subnet in another, a second VPC, and a node.
type world struct {
	t *testing.T
	*vpc.VPC
	now                    time.Time
	network, elsewhere     vpc.Network
	roomy, tiny, otherZone vpc.Subnet
	foreign                vpc.Subnet
	node                   vpc.Instance
}

func newWorld(t *testing.T, opts vpc.Options) *world {
	t.Helper()
	opts.Types = append(opts.Types, vpc.InstanceType{Name: "toy", ENIs: 2, IPv4: 3}, vpc.InstanceType{Name: "cards", Cards: []int{2, 1}, IPv4: 4})
	w := &world{t: t, VPC: vpc.New(opts), now: start}
	w.network = must(w.AddVPC(vpc.Network{CIDRs: prefixes("10.0.0.0/16"), IPv6CIDRs: prefixes("2600:1f14:0:100::/56")}))
	w.elsewhere = must(w.AddVPC(vpc.Network{CIDRs: prefixes("10.1.0.0/16")}))
	w.roomy = must(w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24"), IPv6CIDR: netip.MustParsePrefix("2600:1f14:0:101::/64")}))
	w.tiny = must(w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, CIDR: netip.MustParsePrefix("10.0.2.0/28")}))
	w.otherZone = must(w.AddSubnet(vpc.Subnet{VPCID: w.network.ID, CIDR: netip.MustParsePrefix("10.0.3.0/24"), AZ: "us-west-2b"}))
	w.foreign = must(w.AddSubnet(vpc.Subnet{VPCID: w.elsewhere.ID, CIDR: netip.MustParsePrefix("10.1.1.0/24")}))
	w.node = w.launch("m5.xlarge")
	return w
}

func (w *world) launch(kind string) vpc.Instance {
	w.t.Helper()
	return must(w.Launch(w.now, vpc.LaunchInput{Type: kind, SubnetID: w.roomy.ID}))
}

func (w *world) create(subnet vpc.Subnet, secondary int) vpc.ENI {
	w.t.Helper()
	return must(w.CreateNetworkInterface(w.now, vpc.CreateNetworkInterfaceInput{SubnetID: subnet.ID, SecondaryCount: secondary}))
}

func (w *world) attach(e vpc.ENI, i vpc.Instance, device int) vpc.Attachment {
	w.t.Helper()
	return must(w.AttachNetworkInterface(w.now, vpc.AttachNetworkInterfaceInput{InstanceID: i.ID, NetworkInterfaceID: e.ID, Device: device}))
}

// pass lets time go by and checks the books.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	w.Advance(w.now)
	w.check()
}

func (w *world) check() {
	w.t.Helper()
	if err := w.Check(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eni(id string) vpc.ENI {
	w.t.Helper()
	e, ok := w.ENI(id)
	if !ok {
		w.t.Fatalf("%s is gone", id)
	}
	return e
}

// free is the subnet's accounting.
func (w *world) free(s vpc.Subnet) int {
	got, _ := w.Subnet(s.ID)
	return got.Free
}

// must is for steps that a test takes for granted.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// code is EC2's code of an error, or "" for none.
func code(err error) string {
	var refusal *vpc.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	if err != nil {
		return "not a refusal: " + err.Error()
	}
	return ""
}
