package conformance

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// said is an answer as a question compares it: status, code and message, or "done".
func said(err error) string {
	var refusal smithy.APIError
	var response *smithyhttp.ResponseError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &refusal) && errors.As(err, &response):
		return fmt.Sprintf("%d %s: %s", response.HTTPStatusCode(), refusal.ErrorCode(), refusal.ErrorMessage())
	}
	return err.Error()
}

// question is something about EC2 that no source tells: what is asked, and how the fake answers it unless it is told otherwise.
type question struct {
	name   string
	ask    func(w *world) error
	likely string // a regular expression
}

// questions are asked of a real account first of all.
func questions() []question {
	assign, unassign := "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"
	return []question{
		{"more addresses than any type has, at create", sending("CreateNetworkInterface", set("SecondaryPrivateIpAddressCount", "50")),
			`^400 PrivateIpAddressLimitExceeded: Number of private addresses will exceed limit\.$`},
		{"more addresses than the type has, at attach", func(w *world) error {
			_, err := w.tryAttach(w.node, w.eni(ec2.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: aws.Int32(12)}), 2)
			return err
		}, `^400 PrivateIpAddressLimitExceeded: `},
		{"an attachment that is not there", sending("DetachNetworkInterface", set("AttachmentId", "eni-attach-0123456789abcdef0")),
			`^400 InvalidAttachmentID\.NotFound: The attachment 'eni-attach-0123456789abcdef0' does not exist$`},
		{"two ENIs that are not there", sending("DescribeNetworkInterfaces", set("NetworkInterfaceId.1", "eni-0123456789abcdef0", "NetworkInterfaceId.2", "eni-0123456789abcdef1")),
			`^400 InvalidNetworkInterfaceID\.NotFound: The networkInterface ID 'eni-0123456789abcdef0' does not exist$`},
		{"unassign one address that is there and one that is not", func(w *world) error {
			return w.do(unassign, set("PrivateIpAddress.1", w.secondary, "PrivateIpAddress.2", "10.0.1.239"))
		}, `^400 InvalidParameterValue: Some of the specified addresses are not assigned to interface eni-`},
		{"unassign the primary address", func(w *world) error {
			return w.do(unassign, set("PrivateIpAddress.1", *w.describe(w.attached).PrivateIpAddress))
		}, `^400 InvalidParameterValue: .*cannot be unassigned`},
		{"assign addresses and prefixes at once", sending(assign, set("Ipv4PrefixCount", "1")), `^400 InvalidParameterCombination: `},
		{"prefixes where fewer than 16 addresses are free", func(w *world) error {
			return w.do("CreateNetworkInterface", set("SubnetId", w.small, "Ipv4PrefixCount", "1"))
		}, `^400 InvalidParameterValue: There aren't sufficient free Ipv4 addresses or prefixes`},
		{"the first /28 of a subnet, which overlaps the reserved addresses", sending(assign, set("SecondaryPrivateIpAddressCount", "", "Ipv4Prefix.1", "10.0.1.0/28")),
			`^400 InvalidParameterValue: `},
		{"a group that is not there", sending("CreateNetworkInterface", set("SecurityGroupId.1", "sg-0123456789abcdef0")),
			`^400 InvalidGroup\.NotFound: The security group 'sg-0123456789abcdef0' does not exist$`},
		{"a page token that is none", sending("DescribeNetworkInterfaces", set("NetworkInterfaceId.1", "", "MaxResults", "5", "NextToken", "none")),
			`^400 InvalidPaginationToken: `},
		{"a page of four", sending("DescribeNetworkInterfaces", set("NetworkInterfaceId.1", "", "MaxResults", "4")), `^400 InvalidParameterValue: `},
		{"a prefix on Xen", func(w *world) error {
			_, err := w.tryAttach(w.run("m4.large"), w.eni(ec2.CreateNetworkInterfaceInput{Ipv4PrefixCount: aws.Int32(1)}), 1)
			return err
		}, `^400 InvalidParameterCombination: `},
		{"a trunk on a type without", func(w *world) error {
			_, err := w.tryAttach(w.run("t3.small"), w.trunk, 1)
			return err
		}, `^400 InvalidParameterCombination: `},
	}
}

// TestQuestions: the fake gives its likely answer; with a real account, EC2's other answers are written down.
func TestQuestions(t *testing.T) {
	for _, q := range questions() {
		t.Run(q.name, func(t *testing.T) {
			parallel(t)
			w := newWorld(t, nil)
			got := said(q.ask(w))
			switch {
			case regexp.MustCompile(q.likely).MatchString(got):
			case real():
				record(t, "%s: EC2 answers %q where the fake says %s", q.name, got, q.likely)
			default:
				t.Errorf("%q, want %s", got, q.likely)
			}
		})
	}
}
