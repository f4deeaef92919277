package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
)

// A world whose requests must be signed takes its own keys and the credentials that a node's role has in the metadata, and no others.
func TestSignedWorld(t *testing.T) {
	s := start(t, `
signed: true
keys: [{id: AKIDTEST, secret: hush}]
vpc: {cidrs: [10.0.0.0/16], subnets: [{name: one, cidr: 10.0.1.0/24}]}
services: [{name: ec2, subnet: one, address: 10.0.1.200}]
nodes: [{name: node, subnet: one, address: 10.0.1.10, role: worker}]
`)
	node := client(s.open("node"))
	key := func(id, secret string) aws.CredentialsProvider {
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, nil
		})
	}
	role := ec2rolecreds.New(func(o *ec2rolecreds.Options) {
		o.Client = imds.New(imds.Options{Endpoint: "http://169.254.169.254", HTTPClient: node})
	})
	for _, c := range []struct {
		name string
		from aws.CredentialsProvider
		want string
	}{
		{"its own key", key("AKIDTEST", "hush"), ""}, {"the role's credentials", role, ""},
		{"another secret", key("AKIDTEST", "loud"), "SignatureDoesNotMatch"}, {"another key", key("AKIDOTHER", "hush"), "AuthFailure"},
	} {
		sdk := ec2.New(ec2.Options{Region: "us-west-2", BaseEndpoint: &s.ec2, HTTPClient: node, Credentials: c.from, Retryer: aws.NopRetryer{}})
		_, err := sdk.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
		got := ""
		var refusal smithy.APIError
		switch {
		case errors.As(err, &refusal):
			got = refusal.ErrorCode()
		case err != nil:
			got = fmt.Sprint(err)
		}
		if got != c.want {
			t.Errorf("with %s: %q, want %q", c.name, got, c.want)
		}
	}
}
