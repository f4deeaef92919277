package assets

import (
	"context"
	"fmt"
	"strings"
)

// The variables that name a folder with the programs, where there is one already.
const (
	Var          = "KUBEBUILDER_ASSETS" // source: envtest
	IncumbentVar = "INCUMBENT_ASSETS"
)

// Set is programs that one module pins.
type Set struct {
	Var      string // of the environment
	Module   string // the folder below the main module
	folder   string // of the cache
	programs []program
	flags    func(ctx context.Context, module string) (string, error) // of the linker
}

// program is one program.
type program struct {
	name, path string
}

// ControlPlane is kube-apiserver and etcd, the quicker build first.
func ControlPlane() Set {
	return Set{
		Var: Var, Module: "e2e/controlplane", folder: "assets", flags: versionFlags,
		programs: []program{
			{"etcd", "go.etcd.io/etcd/server/v3"},
			{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
		},
	}
}

// Incumbent is the CNI that EKS ships: agent, plugin, the plugins that its configuration chains, and its health probe. They
// bear no version, as the shipped ones do not: their own build names a package that is not there.
func Incumbent() Set {
	const module = "github.com/aws/amazon-vpc-cni-k8s/cmd/"
	return Set{
		Var: IncumbentVar, Module: "e2e/incumbent", folder: "incumbent",
		flags: func(context.Context, string) (string, error) { return "-s -w", nil },
		programs: []program{
			{"portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"},
			{"routed-eni-cni-plugin", module + "routed-eni-cni-plugin"},
			{"egress-cni-plugin", module + "egress-cni-plugin"},
			{"grpc-health-probe", module + "grpc-health-probe"},
			{"aws-k8s-agent", module + "aws-k8s-agent"},
		},
	}
}

// versionFlags stamp the server with the version of its module, as Kubernetes' own build does: without it the server calls
// itself v0.0.0 and refuses to start.
func versionFlags(ctx context.Context, module string) (string, error) {
	version, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("read version of k8s.io/kubernetes: %q is not v<major>.<minor>.<patch>", version)
	}
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+version,
			"-X", pkg+".gitMajor="+parts[0],
			"-X", pkg+".gitMinor="+parts[1])
	}
	return strings.Join(flags, " "), nil
}
