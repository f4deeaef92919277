//go:build tools

// Package incumbent pins the programs of the CNI that EKS ships, which the harness builds from source and runs unmodified:
// agent, plugin, the two plugins that its configuration chains, and its health probe. It is a module of its own because its
// versions must not reach the main module.
package incumbent

import (
	_ "github.com/aws/amazon-vpc-cni-k8s/cmd/aws-k8s-agent"
	_ "github.com/aws/amazon-vpc-cni-k8s/cmd/egress-cni-plugin"
	_ "github.com/aws/amazon-vpc-cni-k8s/cmd/grpc-health-probe"
	_ "github.com/aws/amazon-vpc-cni-k8s/cmd/routed-eni-cni-plugin"
	_ "github.com/containernetworking/plugins/plugins/meta/portmap"
)
