package fuzz

import (
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// must is for steps that a test takes for granted.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// failure is EC2's error body.
type failure struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

// post sends a form; what is no EC2 error gives a failure without a code.
func post(h http.Handler, form string) (int, failure) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var f failure
	if err := xml.Unmarshal(w.Body.Bytes(), &f); err != nil {
		return w.Code, failure{}
	}
	return w.Code, f
}

// fuzzed is a small world whose ids a fuzzer can know.
func fuzzed() (*vpc.VPC, *ec2api.Handler) {
	model := vpc.New(vpc.Options{})
	n := must(model.AddVPC(vpc.Network{ID: "vpc-00000001", DefaultGroup: "sg-00000001", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, IPv6CIDRs: []netip.Prefix{netip.MustParsePrefix("2600::/56")}}))
	must(model.AddSubnet(vpc.Subnet{ID: "subnet-00000001", VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.1.0/26"), IPv6CIDR: netip.MustParsePrefix("2600::/64")}))
	must(model.Launch(start, vpc.LaunchInput{ID: "i-00000001", Type: "m5.large", SubnetID: "subnet-00000001", PrivateIP: netip.MustParseAddr("10.0.1.9")}))
	return model, ec2api.New(ec2api.Options{VPC: model, Now: func() time.Time { return start }})
}

func FuzzRequest(f *testing.F) {
	model, h := fuzzed()
	eni := model.InstanceENIs("i-00000001")[0]
	for _, seed := range []string{
		"Action=DescribeNetworkInterfaces&Version=2016-11-15&Filter.1.Name=tag:a&Filter.1.Value.1=*b?\\*",
		"Action=DescribeNetworkInterfaces&Version=2016-11-15&MaxResults=5&NextToken=AAAA",
		"Action=CreateNetworkInterface&Version=2016-11-15&SubnetId=subnet-00000001&PrivateIpAddresses.1.Primary=true&PrivateIpAddresses.1.PrivateIpAddress=10.0.1.9",
		"Action=CreateNetworkInterface&Version=2016-11-15&SubnetId=subnet-00000001&Ipv4PrefixCount=1&Ipv6AddressCount=2&Ipv6Prefix.1.Ipv6Prefix=2600::1:0:0:0/80",
		"Action=CreateNetworkInterface&Version=2016-11-15&TagSpecification.1.Tag.1.Key=k&TagSpecification.1.ResourceType=network-interface&SubnetId=x",
		"Action=AssignPrivateIpAddresses&Version=2016-11-15&NetworkInterfaceId=" + eni.ID + "&SecondaryPrivateIpAddressCount=3",
		"Action=AssignPrivateIpAddresses&Version=2016-11-15&NetworkInterfaceId=" + eni.ID + "&Ipv4Prefix.1=10.0.1.16/28&Ipv4Prefix.2=10.0.1.16/32",
		"Action=AssignIpv6Addresses&Version=2016-11-15&NetworkInterfaceId=" + eni.ID + "&Ipv6Addresses.1=2600::7&Ipv6Prefix.1=2600::/80",
		"Action=UnassignPrivateIpAddresses&Version=2016-11-15&NetworkInterfaceId=" + eni.ID + "&Ipv4Prefix.1=10.0.1.9/32",
		"Action=ModifyNetworkInterfaceAttribute&Version=2016-11-15&NetworkInterfaceId=" + eni.ID + "&Attachment.DeleteOnTermination=true&Attachment.AttachmentId=" + eni.Attachment.ID,
		"Action=CreateSubnetCidrReservation&Version=2016-11-15&SubnetId=subnet-00000001&Cidr=10.0.1.32/27&ReservationType=prefix",
		"Action=CreateSubnet&Version=2016-11-15&VpcId=vpc-00000001&CidrBlock=10.0.2.0/28&Ipv6CidrBlock=2600:0:0:1::/64",
		"Action=CreateVpc&Version=2016-11-15&CidrBlock=10.1.0.0/16&Ipv6CidrBlock=::/44",
		"Action=RunInstances&Version=2016-11-15&ImageId=a&InstanceType=m5.large&MinCount=1&MaxCount=9&NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId=subnet-00000001&NetworkInterface.2.DeviceIndex=0&NetworkInterface.2.NetworkInterfaceId=x",
		"Action=TerminateInstances&Version=2016-11-15&InstanceId.1=i-00000001",
		"Action=AuthorizeSecurityGroupIngress&Version=2016-11-15&GroupId=sg-00000001&IpPermissions.1.IpProtocol=6&IpPermissions.1.FromPort=1&IpPermissions.1.ToPort=70000&IpPermissions.1.IpRanges.1.CidrIp=::/0",
		"Action=CreateTags&Version=2016-11-15&ResourceId.1=i-00000001&Tag.1.Key=%00&Tag.2.Key=%ff",
		"Action.1=x&Version=..&=&.&..1=;%",
	} {
		f.Add(seed)
	}
	known := h.Actions()
	f.Fuzz(func(t *testing.T, form string) {
		model, h := fuzzed()
		status, got := post(h, form)
		if err := model.Check(); err != nil {
			t.Fatal(err)
		}
		if status == http.StatusOK {
			return
		}
		if status >= 500 || got.Code == "" || got.RequestID == "" || got.Code == "InternalError" {
			t.Fatalf("%d %s: %s", status, got.Code, got.Message)
		}
		action := h.Journal(0)[0].Action
		if got.Code != "" && slices.Contains(known, action) && !slices.Contains(h.Codes(action), got.Code) {
			t.Fatalf("%s does not own up to %s: %s", action, got.Code, got.Message)
		}
	})
}
