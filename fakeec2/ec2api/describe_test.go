package ec2api_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// TestFiltersOfNetworkInterfaces has four ENIs: "primary" of the node, "pods" attached with tags, "free" and "odd".
func TestFiltersOfNetworkInterfaces(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	make1 := func(in vpc.CreateNetworkInterfaceInput) vpc.ENI {
		in.SubnetID = e.subnet.ID
		return must(e.model.CreateNetworkInterface(start, in))
	}
	pods := make1(vpc.CreateNetworkInterfaceInput{
		Description: "aws-K8S-i-1", Groups: []string{e.group.ID}, Secondary: []netip.Addr{netip.MustParseAddr("10.0.1.40")},
		Tags: map[string]string{"owner": "cni", "Owner": "x"},
	})
	free := make1(vpc.CreateNetworkInterfaceInput{Description: "aws-K8S-i-2", Tags: map[string]string{"owner": "vpc-cni"}})
	odd := make1(vpc.CreateNetworkInterfaceInput{Description: `star * and \ sign`})
	a := e.attach(pods, 3)
	names := map[string]string{e.model.InstanceENIs(e.node.ID)[0].ID: "primary", pods.ID: "pods", free.ID: "free", odd.ID: "odd"}

	cases := []struct {
		name    string
		filters []types.Filter
		want    string
	}{
		{"none", nil, "free odd pods primary"},
		{"id", filter("network-interface-id", free.ID), "free"},
		{"ids are OR-ed", filter("network-interface-id", free.ID, odd.ID), "free odd"},
		{"filters are AND-ed", append(filter("status", "available"), filter("tag-key", "owner")...), "free"},
		{"the same filter twice is AND-ed", append(filter("tag-key", "owner"), filter("tag-key", "Owner")...), "pods"},
		{"status", filter("status", "in-use"), "pods primary"},
		{"vpc", filter("vpc-id", e.network.ID), "free odd pods primary"},
		{"another vpc", filter("vpc-id", "vpc-01234567"), ""},
		{"subnet", filter("subnet-id", e.subnet.ID), "free odd pods primary"},
		{"zone", filter("availability-zone", "us-west-2?"), "free odd pods primary"},
		{"instance", filter("attachment.instance-id", e.node.ID), "pods primary"},
		{"attachment", filter("attachment.attachment-id", a.ID), "pods"},
		{"device", filter("attachment.device-index", "3"), "pods"},
		{"attachment status", filter("attachment.status", "attaching"), "pods"},
		{"group", filter("group-id", e.group.ID), "pods"},
		{"description with a star", filter("description", "aws-K8S-*"), "free pods"},
		{"case matters", filter("description", "AWS-*"), ""},
		{"star in the middle", filter("description", "aws*2"), "free"},
		{"question mark", filter("description", "aws-K8S-i-?"), "free pods"},
		{"only stars", filter("description", "**"), "free odd pods primary"},
		{"escaped star", filter("description", `star \* and *`), "odd"},
		{"escaped backslash", filter("description", `* and \\ sign`), "odd"},
		{"escaped star is no wildcard", filter("description", `aws\*`), ""},
		{"empty pattern matches the empty value", filter("description", ""), "primary"},
		{"type", filter("interface-type", "interface"), "free odd pods primary"},
		{"mac", filter("mac-address", free.MAC), "free"},
		{"primary address", filter("private-ip-address", "10.0.1.20"), "primary"},
		{"any address", filter("addresses.private-ip-address", "10.0.1.40"), "pods"},
		{"has secondaries", filter("addresses.primary", "false"), "pods"},
		{"owner", filter("owner-id", "123456789012"), "free odd pods primary"},
		{"requester", filter("requester-id", "*"), ""},
		{"managed", filter("requester-managed", "true"), ""},
		{"IPv6", filter("ipv6-addresses.ipv6-address", "*"), ""},
		{"tag", filter("tag:owner", "cni"), "pods"},
		{"tag with wildcard", filter("tag:owner", "*cni"), "free pods"},
		{"tag keys differ by case", filter("tag:Owner", "*"), "pods"},
		{"tag key", filter("tag-key", "owner"), "free pods"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, err := e.sdk.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{Filters: c.filters})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, eni := range out.NetworkInterfaces {
				got = append(got, names[*eni.NetworkInterfaceId])
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Fatal(diff)
			}
		})
	}
	byID := must(e.sdk.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{
		NetworkInterfaceIds: []string{free.ID, pods.ID}, Filters: filter("status", "available"),
	}))
	if len(byID.NetworkInterfaces) != 1 || *byID.NetworkInterfaces[0].NetworkInterfaceId != free.ID {
		t.Errorf("ids and a filter: %d", len(byID.NetworkInterfaces))
	}
}

func TestFiltersOfInstances(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	other := must(e.model.Launch(start, vpc.LaunchInput{Type: "toy", SubnetID: e.subnet.ID}))
	cases := []struct {
		filters []types.Filter
		want    []string
	}{
		{filter("instance-type", "m5.*"), []string{e.node.ID}},
		{filter("instance-state-name", "running"), []string{e.node.ID, other.ID}},
		{filter("instance-state-code", "48"), nil},
		{filter("tag:Name", "node-1"), []string{e.node.ID}},
		{filter("private-ip-address", "10.0.1.20"), []string{e.node.ID}},
		{filter("network-interface.addresses.private-ip-address", other.PrivateIP.String()), []string{other.ID}},
		{filter("instance.group-id", e.network.DefaultGroup), []string{e.node.ID, other.ID}},
	}
	for _, c := range cases {
		out, err := e.sdk.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: c.filters})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range out.Reservations {
			got = append(got, *r.Instances[0].InstanceId)
		}
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", *c.filters[0].Name, diff)
		}
	}
}

func TestPagesAreWholeWhileThingsComeAndGo(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	var want []string
	for range 23 {
		want = append(want, e.create(0).ID)
	}
	slices.Sort(want)
	pages := ec2.NewDescribeNetworkInterfacesPaginator(e.sdk, &ec2.DescribeNetworkInterfacesInput{
		Filters: filter("status", "available"), MaxResults: ptr(int32(5)),
	})
	var got []string
	count := 0
	for pages.HasMorePages() {
		out := must(pages.NextPage(t.Context()))
		if count++; count == 1 { // the last of the first page goes: the next page must not skip anything
			if err := e.model.DeleteNetworkInterface(start, *out.NetworkInterfaces[4].NetworkInterfaceId); err != nil {
				t.Fatal(err)
			}
		}
		for _, eni := range out.NetworkInterfaces {
			got = append(got, *eni.NetworkInterfaceId)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || count != 5 {
		t.Fatalf("%d pages: %s", count, diff)
	}
	first := must(e.sdk.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{MaxResults: ptr(int32(5))}))
	_, err := e.sdk.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{
		MaxResults: ptr(int32(5)), NextToken: first.NextToken, Filters: filter("status", "available"),
	})
	if codeOf(err) != "InvalidPaginationToken" {
		t.Fatalf("a token with other filters: %v", err)
	}
}
